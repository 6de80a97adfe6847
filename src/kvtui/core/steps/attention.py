"""Attention backends: which fits GPU, KV dtype and page, and what the engine rewrites.

Mirrors `handle_attention_backend_compatibility` of `srt/arg_groups/attention_hook.py` and the
passes of `srt/arg_groups/overrides.py` that it runs (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvtui.core.derived import uses_mla, whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.graphs import DECODE, PREFILL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.attention_default import (
    BACKEND_OPTIONS,
    attention_backend_default,
    without_backend,
)
from kvtui.core.steps.graphs import graphs_off

AITER_LONG_CONTEXT = 8192
AITER_FRACTION = 0.85

XPU_PAGES = (64, 128)
XPU_MLA_PAGES = (64, 128, 16, 32)


@dataclass(frozen=True, slots=True)
class PageConstraint:
    """Pages that a backend's kernels come in; any other becomes `becomes`."""

    backend: str
    allowed: tuple[int, ...]
    becomes: int
    prefill_too: bool = False
    """False where a prefill-only choice of the backend leaves the page alone."""
    draft_too: bool = False


PAGE_CONSTRAINTS = (
    PageConstraint("flashmla", (64,), 64),
    PageConstraint("trtllm_mla", (32, 64), 64),
    PageConstraint("cutedsl_mla", (32, 64), 64, prefill_too=True),
    PageConstraint("trtllm_mha", (16, 32, 64, 128), 64, prefill_too=True, draft_too=True),
    PageConstraint("hpc_ops", (64,), 64, prefill_too=True),
)
"""overrides.py:1143, applied in this order."""


def chosen_for_decode(r: Resolution, backend: str) -> bool:
    """True where the common or the decode option names `backend`."""
    return backend in (r.attention_backend, r.decode_attention_backend)


def chosen_anywhere(r: Resolution, backend: str) -> bool:
    """True where any of the three backend options names `backend`."""
    return chosen_for_decode(r, backend) or r.prefill_attention_backend == backend


@step("arg_groups/attention_hook.py:131")
def uncaptured_backends(r: Resolution) -> None:
    """PyTorch's own attention kernels can't be captured."""
    if r.attention_backend in ("torch_native", "flex_attention"):
        graphs_off(r, f"{r.attention_backend} runs without CUDA graphs", DECODE, PREFILL)


@rule(
    "KV220",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:169",
    example=Example(
        "--attention-backend flex_attention --speculative-algorithm NGRAM",
    ),
    fragments=("Speculative decoding is currently not supported with Flex Attention",),
)
def flex_attention_does_not_verify(r: Resolution) -> Iterator[Hit]:
    """`flex_attention` excludes speculative decoding.

    Why: it has no kernels that verify draft tokens.

    Fix: choose another backend, or drop speculation.
    """
    if r.attention_backend == "flex_attention" and r.speculative_algorithm is not None:
        yield hit(
            f"flex_attention can't verify the drafts of {r.speculative_algorithm}",
            without_backend(r, "flex_attention"),
            drop("speculative_algorithm", title="drop speculative decoding"),
        )


@step("arg_groups/attention_hook.py:176")
def whisper_without_prefix_cache(r: Resolution) -> None:
    """Whisper pads encoder tokens, which prefixes can't share."""
    if r.disable_radix_cache or not r.model.is_encoder_decoder:
        return
    if "WhisperForConditionalGeneration" in (r.model.hf_config.get("architectures") or ()):
        r.declare("Whisper's encoder tokens can't be shared", disable_radix_cache=True)


@step("arg_groups/overrides.py:1143")
def pages_of_the_backend(r: Resolution) -> None:
    """Backends with fixed pages replace a page size that they don't have."""
    for row in PAGE_CONSTRAINTS:
        named = (
            chosen_for_decode(r, row.backend)
            or (row.prefill_too and r.prefill_attention_backend == row.backend)
            or (row.draft_too and r.speculative_draft_attention_backend == row.backend)
        )
        if named and r.page_size not in row.allowed:
            pages = ", ".join(map(str, row.allowed))
            r.declare(f"{row.backend} has pages of {pages} tokens", page_size=row.becomes)


@rule(
    "KV221",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/overrides.py:1211",
    example=Example("--attention-backend trtllm_mla", model="deepseek-ai/DeepSeek-V3"),
    fragments=("TRTLLM MLA backend is only supported on Blackwell",),
)
def trtllm_mla_needs_blackwell(r: Resolution) -> Iterator[Hit]:
    """`trtllm_mla` runs on Blackwell GPUs only.

    Why: its kernels exist for SM100 and SM12x.

    Fix: leave the choice to the engine (fa3 on Hopper, triton elsewhere).
    """
    if chosen_for_decode(r, "trtllm_mla") and not r.platform.is_blackwell:
        yield hit(
            f"trtllm_mla needs a Blackwell GPU; {r.platform.gpu.name} is SM{r.platform.sm}",
            without_backend(r, "trtllm_mla"),
        )


@rule(
    "KV222",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source="arg_groups/overrides.py:1215",
    example=Example(
        "--attention-backend trtllm_mla --kv-cache-dtype fp8_e5m2",
        model="deepseek-ai/DeepSeek-V3",
        gpu="b200",
    ),
    fragments=("TensorRT-LLM MLA backend only supports kv-cache-dtype",),
)
def trtllm_mla_kv_dtype(r: Resolution) -> Iterator[Hit]:
    """`trtllm_mla` reads a KV cache in fp8_e4m3, bf16 or the model's dtype.

    Why: there are no kernels for other formats; the engine takes only the spelling bf16,
    not bfloat16.

    Fix: use fp8_e4m3 (half the bytes of bf16) or auto.
    """
    if not chosen_for_decode(r, "trtllm_mla") or not r.platform.is_blackwell:
        return
    if r.kv_cache_dtype not in ("fp8_e4m3", "bf16", "auto"):
        same = r.kv_cache_dtype == "bfloat16"
        yield hit(
            f"trtllm_mla takes fp8_e4m3, bf16 or auto; found {r.kv_cache_dtype}",
            set_to("spell it bf16", kv_cache_dtype="bf16")
            if same
            else set_to("use fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
        )


@rule(
    "KV223",
    stage=Stage.RESOLVE,
    option="prefill_attention_backend",
    source="arg_groups/overrides.py:1242",
    example=Example(
        "--prefill-attention-backend cutedsl_mla",
        model="deepseek-ai/DeepSeek-V3",
        gpu="b200",
    ),
    fragments=("CuteDSL MLA only supports decoding",),
)
def cutedsl_mla_decodes_only(r: Resolution) -> Iterator[Hit]:
    """`cutedsl_mla` can't be the prefill backend.

    Why: it has decode kernels only; prefill goes to trtllm_mla.

    Fix: name it for decode, or leave the prefill backend out.
    """
    if r.prefill_attention_backend == "cutedsl_mla":
        yield hit(
            "cutedsl_mla has decode kernels only",
            set_to(
                "decode with it, prefill with trtllm_mla",
                prefill_attention_backend=None,
                decode_attention_backend="cutedsl_mla",
            ),
        )


@rule(
    "KV224",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/overrides.py:1245",
    example=Example("--attention-backend cutedsl_mla", model="deepseek-ai/DeepSeek-V3"),
    fragments=("CuteDSL MLA backend is only supported on Blackwell",),
)
def cutedsl_mla_needs_sm100(r: Resolution) -> Iterator[Hit]:
    """`cutedsl_mla` runs on data-centre Blackwell (SM100) only.

    Why: its kernels use that generation's tensor memory.

    Fix: leave the choice to the engine.
    """
    if chosen_anywhere(r, "cutedsl_mla") and not r.platform.is_sm100:
        yield hit(
            f"cutedsl_mla needs SM100; {r.platform.gpu.name} is SM{r.platform.sm}",
            without_backend(r, "cutedsl_mla", "tokenspeed_mla"),
        )


@rule(
    "KV225",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source="arg_groups/overrides.py:1249",
    example=Example(
        "--attention-backend cutedsl_mla --kv-cache-dtype fp8_e5m2",
        model="deepseek-ai/DeepSeek-V3",
        gpu="b200",
    ),
    fragments=("CuteDSL MLA backend only supports kv-cache-dtype",),
)
def cutedsl_mla_kv_dtype(r: Resolution) -> Iterator[Hit]:
    """`cutedsl_mla` reads a KV cache in fp8_e4m3, bf16 or the model's dtype.

    Why: there are no kernels for other formats.

    Fix: use fp8_e4m3 (half the bytes of bf16) or auto.
    """
    if not chosen_anywhere(r, "cutedsl_mla") or not r.platform.is_sm100:
        return
    if r.kv_cache_dtype not in ("fp8_e4m3", "bf16", "bfloat16", "auto"):
        yield hit(
            f"cutedsl_mla takes fp8_e4m3, bf16 or auto; found {r.kv_cache_dtype}",
            set_to("use fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
        )


@step("arg_groups/overrides.py:1258")
def cutedsl_mla_prefills_elsewhere(r: Resolution) -> None:
    """Where cutedsl_mla decodes, trtllm_mla prefills unless another backend is named."""
    if chosen_anywhere(r, "cutedsl_mla") and r.prefill_attention_backend is None:
        r.default("cutedsl_mla only decodes", prefill_attention_backend="trtllm_mla")


def _has_trtllm_mha(r: Resolution) -> bool:
    return r.platform.is_sm90 or r.platform.is_sm100 or r.platform.is_sm120


@rule(
    "KV226",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:203",
    example=Example("--attention-backend trtllm_mha", gpu="a100-80"),
    fragments=(
        "TRTLLM MHA backend for prefill requires",
        "TRTLLM MHA backend for decode is only supported",
    ),
)
def trtllm_mha_gpu(r: Resolution) -> Iterator[Hit]:
    """`trtllm_mha` runs on SM90, SM100 and SM120 only.

    Why: there are no kernels for other GPUs.

    Fix: leave the choice to the engine (flashinfer on older GPUs).
    """
    phases = [
        name
        for name, backend in zip((PREFILL, DECODE), r.backends, strict=True)
        if backend == "trtllm_mha"
    ]
    if phases and not _has_trtllm_mha(r):
        yield hit(
            f"trtllm_mha ({' and '.join(phases)}) needs SM90, SM100 or SM120; "
            f"{r.platform.gpu.name} is SM{r.platform.sm}",
            _without_trtllm_mha(r),
        )


def _without_trtllm_mha(r: Resolution) -> Fix:
    """NVFP4 caches bring trtllm_mha along for decode, so there the KV dtype has to go."""
    named = any(getattr(r.raw, option) == "trtllm_mha" for option in BACKEND_OPTIONS)
    if named or r.kv_cache_dtype != "nvfp4":
        return without_backend(r, "trtllm_mha")
    return set_to("keep KV in fp8_e4m3 (twice the bytes)", kv_cache_dtype="fp8_e4m3")


@rule(
    "KV227",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source="arg_groups/attention_hook.py:218",
    example=Example("--attention-backend trtllm_mha --kv-cache-dtype fp8_e4m3", gpu="rtx5090"),
    fragments=("TRTLLM FMHAv2 prefill on SM120",),
)
def trtllm_mha_sm120_prefill(r: Resolution) -> Iterator[Hit]:
    """On SM120, trtllm_mha prefills neither from an fp8_e4m3 cache nor with skip-softmax.

    Why: prefill goes to an older kernel family there that lacks both.

    Fix: prefill with flashinfer and keep trtllm_mha for decode, or use another KV dtype.
    """
    if r.backends[0] != "trtllm_mha" or not r.platform.is_sm120:
        return
    skips = _skip_softmax_threshold(r) > 0
    if r.kv_cache_dtype == "fp8_e4m3" or skips:
        found = "kv_cache_dtype fp8_e4m3" if r.kv_cache_dtype == "fp8_e4m3" else "skip-softmax"
        yield hit(
            f"trtllm_mha can't prefill with {found} on SM120",
            set_to("prefill with flashinfer", prefill_attention_backend="flashinfer"),
            without_backend(r, "trtllm_mha"),
        )


def _skip_softmax_threshold(r: Resolution) -> float:
    try:
        return float(r.env.get("SGLANG_SKIP_SOFTMAX_PREFILL_THRESHOLD_SCALE_FACTOR", 0))
    except ValueError:
        return 0.0


@rule(
    "KV228",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:234",
    example=Example(
        "--attention-backend trtllm_mha --tp-size 2 --attn-cp-size 2 --enable-prefill-cp "
        "--cp-strategy zigzag",
        model="Qwen/Qwen3-30B-A3B",
    ),
    fragments=("Prefill context parallelism with the TRTLLM MHA",),
)
def trtllm_mha_context_parallel(r: Resolution) -> Iterator[Hit]:
    """Prefill context parallelism on trtllm_mha needs SM100.

    Why: the kernels of SM90 and SM120 don't mask other ranks' shards.

    Fix: prefill with another backend.
    """
    if r.backends[0] == "trtllm_mha" and whole(r.attn_cp_size) > 1 and not r.platform.is_sm100:
        yield hit(
            f"trtllm_mha masks context shards on SM100 only, not on SM{r.platform.sm}",
            without_backend(r, "trtllm_mha"),
        )


@step("arg_groups/overrides.py:1263")
def fa3_leaves_fp8_e5m2_to_triton(r: Resolution) -> None:
    """FA3 has no fp8_e5m2 kernels, so Triton runs instead."""
    if r.attention_backend == "fa3" and r.kv_cache_dtype == "fp8_e5m2":
        r.declare("fa3 reads fp8_e4m3 only, not fp8_e5m2", attention_backend="triton")


@step("arg_groups/overrides.py:1274")
def fa4_pages(r: Resolution) -> None:
    """FA4 on SM100 works on pages of 128 tokens, except for MLA and draft trees."""
    if not chosen_anywhere(r, "fa4") or not r.platform.is_sm100:
        return
    if (r.speculative_eagle_topk or 0) > 1 or uses_mla(r):
        return
    names = r.model.hf_config.get("architectures") or ()
    if "DiffusionGemmaForBlockDiffusion" in names:
        r.declare("block diffusion needs single-token pages", page_size=1)
    elif r.page_size != 128:
        r.declare("fa4 has pages of 128 tokens on SM100", page_size=128)


@step("arg_groups/attention_hook.py:243")
def aiter_workspace(r: Resolution) -> None:
    """aiter's workspace grows with long contexts and comes out of the static fraction."""
    if r.attention_backend != "aiter" or r.model.context_len <= AITER_LONG_CONTEXT:
        return
    honoured = r.env_flag("SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION")
    if not (honoured and r.raw.mem_fraction_static is not None):
        r.declare(
            f"aiter keeps 15% for its workspace at contexts above {AITER_LONG_CONTEXT}",
            mem_fraction_static=r.mem_fraction_static * AITER_FRACTION,
        )


@step("arg_groups/overrides.py:1324")
def intel_xpu_pages(r: Resolution) -> None:
    """Intel's kernels come in few page sizes."""
    if "intel_xpu" not in r.backends:
        return
    pages = XPU_MLA_PAGES if uses_mla(r) else XPU_PAGES
    if r.page_size not in pages:
        r.declare("intel_xpu has few page sizes", page_size=128)


@step("arg_groups/overrides.py:1341")
def page_size_default(r: Resolution) -> None:
    """A page holds one token unless something above asked for more."""
    if r.page_size is not None:
        return
    layout = r.env.get("SGLANG_AITER_KV_CACHE_LAYOUT", "").lower()
    large = r.platform.is_musa or (r.platform.is_hip and layout == "vectorized_5d")
    r.default("the engine's default", page_size=64 if large else 1)


HANDLE_ATTENTION_BACKEND_COMPATIBILITY: tuple[Part, ...] = (
    attention_backend_default,
    uncaptured_backends,
    flex_attention_does_not_verify,
    whisper_without_prefix_cache,
    pages_of_the_backend,
    trtllm_mla_needs_blackwell,
    trtllm_mla_kv_dtype,
    cutedsl_mla_decodes_only,
    cutedsl_mla_needs_sm100,
    cutedsl_mla_kv_dtype,
    cutedsl_mla_prefills_elsewhere,
    trtllm_mha_gpu,
    trtllm_mha_sm120_prefill,
    trtllm_mha_context_parallel,
    fa3_leaves_fp8_e5m2_to_triton,
    fa4_pages,
    aiter_workspace,
    intel_xpu_pages,
)
PAGE_SIZE_DEFAULT: tuple[Part, ...] = (page_size_default,)
