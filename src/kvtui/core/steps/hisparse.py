"""HiSparse: sparse attention that keeps most pages in host memory."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.model.archs import DEEPSEEK_V4
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_pools import is_minimax
from kvtui.core.steps.kv_cache_common import spec_name

HOOK = "arg_groups/hisparse_hook.py"
DSA = "deepseek-ai/DeepSeek-V3.2"
OFF = drop("enable_hisparse", title="drop HiSparse (all pages stay in GPU memory)")
CUDA_BACKENDS = {
    "bfloat16": ("flashmla_sparse",),
    "fp8_e4m3": ("flashinfer_sparse_mla", "flashmla_kv"),
}
ANY_CUDA_BACKEND = ("flashinfer_sparse_mla", "flashmla_kv", "flashmla_sparse")
ROCM_BACKENDS = ("aiter", "tilelang", "triton")
"""DSA back ends by KV dtype and platform. Source: hisparse_hook.py:18-22."""
KV_DTYPES = ("bfloat16", "auto", "fp8_e4m3")
"""Source: hisparse_hook.py:153."""


def _deepseek_v4(r: Resolution) -> bool:
    return r.model.arch in DEEPSEEK_V4


@rule(
    "KV660",
    stage=Stage.CHECK,
    option="enable_hisparse",
    source=f"{HOOK}:104",
    example=Example("--enable-hisparse --disable-radix-cache"),
    fragments=("--enable-hisparse is only supported for DSA",),
)
def hisparse_model(r: Resolution) -> Iterator[Hit]:
    """HiSparse runs DSA models, DeepSeek V4 and MiniMax M3.

    Why: it needs a model that itself picks the pages that a token attends to.
    Fix: drop --enable-hisparse; HiCache extends other models into host memory.
    """
    if r.enable_hisparse and not (r.model.is_dsa or _deepseek_v4(r) or is_minimax(r)):
        hicache = set_to(
            "use HiCache instead",
            enable_hisparse=None,
            enable_hierarchical_cache=True,
            disable_radix_cache=None,
        )
        yield hit(f"{r.model.arch} does not pick the pages that it attends to", OFF, hicache)


@rule(
    "KV661",
    stage=Stage.CHECK,
    option="disable_radix_cache",
    source=f"{HOOK}:109",
    example=Example("--enable-hisparse", model=DSA, gpu="h200"),
    fragments=("Hierarchical sparse attention currently requires --disable-radix-cache",),
)
def hisparse_has_no_radix(r: Resolution) -> Iterator[Hit]:
    """HiSparse runs without the radix cache.

    Why: its pages move between GPU and host, so a tree of GPU pages would point at others.
    Fix: --disable-radix-cache; no prefix is reused then.
    """
    if r.enable_hisparse and not r.disable_radix_cache:
        yield hit(
            "the radix cache is on, and HiSparse moves the pages that it points at",
            set_to(
                "turn prefix reuse off",
                disable_radix_cache=True,
                disaggregation_decode_enable_radix_cache=None,
            ),
            OFF,
        )


@rule(
    "KV662",
    stage=Stage.CHECK,
    option="enable_mixed_chunk",
    source=f"{HOOK}:89",
    example=Example(
        "--enable-hisparse --disable-radix-cache --enable-mixed-chunk", model=DSA, gpu="h200"
    ),
    fragments=("--enable-hisparse does not support --enable-mixed-chunk",),
)
def hisparse_has_no_mixed_chunk(r: Resolution) -> Iterator[Hit]:
    """HiSparse does not mix prefill and decode in a batch.

    Why: its decode batch can't be merged with prompt chunks.
    Fix: drop --enable-mixed-chunk.
    """
    if r.enable_hisparse and r.enable_mixed_chunk:
        yield hit(
            "mixed chunks merge decode with prefill, which HiSparse can't",
            drop("enable_mixed_chunk"),
            OFF,
        )


@rule(
    "KV663",
    stage=Stage.CHECK,
    option="speculative_eagle_topk",
    source=f"{HOOK}:119",
    example=Example(
        "--enable-hisparse --disable-radix-cache --speculative-algorithm EAGLE "
        "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8",
        model=DSA,
        gpu="h200",
    ),
    fragments=("HiSparse spec integration supports linear", "HiSparse speculative decoding uses"),
)
def hisparse_speculation(r: Resolution) -> Iterator[Hit]:
    """HiSparse verifies chains of a fixed length.

    Why: the buffers that swap pages in are sized for one chain before the server starts.
    Fix: --speculative-eagle-topk 1, and no --speculative-adaptive.
    """
    if not r.enable_hisparse or spec_name(r) in (None, "NONE"):
        return
    if (r.speculative_eagle_topk or 1) != 1:
        yield hit(
            f"top-k {r.speculative_eagle_topk} drafts a tree; HiSparse verifies chains",
            set_to("draft a chain", speculative_eagle_topk=1),
            OFF,
        )
    if r.speculative_adaptive:
        yield hit(
            "adaptive speculation changes the chain's length, which HiSparse fixes",
            drop("speculative_adaptive"),
            OFF,
            option="speculative_adaptive",
        )


@rule(
    "KV664",
    stage=Stage.CHECK,
    option="enable_hisparse",
    source=f"{HOOK}:139",
    example=Example(
        "--enable-hisparse --disable-radix-cache --tp-size 8",
        model="deepseek-ai/DeepSeek-V4-Flash",
        gpu="mi300x",
        env={"SGLANG_HACK_FLASHMLA_BACKEND": "unified_kv_triton"},
    ),
    fragments=("--enable-hisparse is not supported with the unified-KV path on ROCm",),
)
def hisparse_has_no_unified_rows(r: Resolution) -> Iterator[Hit]:
    """DeepSeek V4 on ROCm runs HiSparse on packed rows only.

    Why: HiSparse attaches to the pool of compressed rows, and unified rows leave none.
    Fix: SGLANG_HACK_FLASHMLA_BACKEND=triton, or no HiSparse.
    """
    name = "SGLANG_HACK_FLASHMLA_BACKEND"
    if not (r.enable_hisparse and r.platform.is_hip and _deepseek_v4(r)):
        return
    if r.env.get(name) == "unified_kv_triton":
        yield hit(
            f"{name} is unified_kv_triton, which has no pool for HiSparse to attach to",
            set_to("use packed rows", **{f"env:{name}": "triton"}),
            OFF,
        )


def _dsa_checks(r: Resolution) -> bool:
    """True where dtype and DSA back end are checked: not for MiniMax M3, nor V4 on ROCm."""
    if not r.enable_hisparse or is_minimax(r):
        return False
    return not (r.platform.is_hip and _deepseek_v4(r))


@rule(
    "KV665",
    stage=Stage.CHECK,
    option="kv_cache_dtype",
    source=f"{HOOK}:72",
    example=Example(
        "--enable-hisparse --disable-radix-cache --tp-size 8 --kv-cache-dtype mxfp8",
        model=DSA,
        gpu="b200",
    ),
    fragments=("HiSparse requires one of",),
)
def hisparse_kv_dtype(r: Resolution) -> Iterator[Hit]:
    """HiSparse stores KV as bfloat16 or fp8_e4m3.

    Why: its copy kernels move rows of these two sizes.
    Fix: --kv-cache-dtype fp8_e4m3 or bfloat16.
    """
    if _dsa_checks(r) and r.kv_cache_dtype not in KV_DTYPES:
        yield hit(
            f"the KV dtype is {r.kv_cache_dtype}; HiSparse moves bfloat16 and fp8_e4m3 rows",
            set_to("store KV as fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
            OFF,
        )


def dsa_backends(r: Resolution) -> tuple[str, ...]:
    """DSA back ends that HiSparse takes on this platform and KV dtype."""
    if r.platform.is_hip:
        return ROCM_BACKENDS
    return CUDA_BACKENDS.get(r.kv_cache_dtype, ANY_CUDA_BACKEND)


@rule(
    "KV666",
    stage=Stage.CHECK,
    option="dsa_prefill_backend",
    source=f"{HOOK}:57",
    example=Example(
        "--enable-hisparse --disable-radix-cache --kv-cache-dtype bfloat16 "
        "--dsa-decode-backend fa3",
        model=DSA,
        gpu="h200",
    ),
    fragments=("HiSparse supports DSA",),
)
def hisparse_dsa_backend(r: Resolution) -> Iterator[Hit]:
    """HiSparse needs DSA back ends that read swapped pages.

    Why: which ones do depends on the KV dtype: flashmla_sparse for bfloat16, flashmla_kv or
    flashinfer_sparse_mla for fp8_e4m3.
    Fix: drop --dsa-prefill-backend and --dsa-decode-backend; the engine picks one.
    """
    if not _dsa_checks(r):
        return
    allowed = dsa_backends(r)
    for phase in ("prefill", "decode"):
        option = f"dsa_{phase}_backend"
        backend = getattr(r, option)
        if backend is None or backend in allowed:
            continue
        own = (
            drop(option)
            if r.chose(option)
            else set_to(f"use {allowed[-1]}", **{option: allowed[-1]})
        )
        yield hit(
            f"DSA {phase} back end {backend} can't read swapped pages of dtype "
            f"{r.kv_cache_dtype}; {', '.join(allowed)} can",
            own,
            OFF,
            option=option,
        )


HISPARSE_VALIDATION: tuple[Part, ...] = (
    hisparse_model,
    hisparse_has_no_radix,
    hisparse_has_no_mixed_chunk,
    hisparse_speculation,
    hisparse_has_no_unified_rows,
    hisparse_kv_dtype,
    hisparse_dsa_backend,
)
