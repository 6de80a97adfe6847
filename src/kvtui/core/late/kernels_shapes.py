"""Attention kernels that lack a model's head shapes, KV dtype, page size or layer mix."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_tp_size, uses_mla, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.late.backends import instead_of, keep_kv_wide, keeps_fp8_e4m3, used_backends
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

GDN_ON_SM120 = ("triton", "trtllm_mha", "flashinfer")
GDN_ON_BLACKWELL = (*GDN_ON_SM120, "fa4")

LARGE_PAGE = 128
"""From here on trtllm-gen has only kernels with a free page size."""


@rule(
    "KV905",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/attention_registry.py:437",
    example=Example("--attention-backend torch_native", model="Qwen/Qwen3.5-27B", gpu="b200"),
    fragments=("backends are supported on Blackwell GPUs for hybrid GDN models",),
)
def gdn_hybrid_on_blackwell(r: Resolution) -> Iterator[Hit]:
    """On Blackwell, GDN hybrids run few attention back ends.

    Why: the engine admits only back ends that were validated there beside GDN layers.

    Fix: use trtllm_mha, flashinfer or triton.
    """
    mambaish = r.model.mambaish
    if not r.platform.is_blackwell or mambaish is None or mambaish.kind != "gdn":
        return
    allowed = GDN_ON_SM120 if r.platform.is_sm120 else GDN_ON_BLACKWELL
    for backend in dict.fromkeys(r.backends):
        if backend not in allowed:
            yield hit(
                f"beside GDN layers on SM{r.platform.sm} only {', '.join(allowed)} run; "
                f"found {backend}",
                set_to(
                    "use triton",
                    attention_backend="triton",
                    prefill_attention_backend=None,
                    decode_attention_backend=None,
                ),
            )


@rule(
    "KV907",
    stage=Stage.SERVE,
    option="kv_cache_dtype",
    source="layers/attention/triton_backend.py",
    example=Example("--attention-backend triton --kv-cache-dtype fp8_e4m3", gpu="a100-80"),
    fragments=("type fp8e4nv not supported in this architecture",),
)
def triton_reads_e4m3(r: Resolution) -> Iterator[Hit]:
    """Triton kernels read an fp8_e4m3 cache from SM89 up only.

    Why: older GPUs can't convert E4M3, and Triton has no emulation; compiling the first
    attention kernel fails.

    Fix: use fp8_e5m2 (same bytes, less precise), 16 bit, or flashinfer where the model allows.
    """
    if not r.platform.is_cuda or r.platform.device_capability >= (8, 9):
        return
    if "triton" in r.backends and keeps_fp8_e4m3(r):
        yield hit(
            f"triton can't read fp8_e4m3 pages on SM{r.platform.sm}; it needs SM89",
            set_to("use fp8_e5m2 (same bytes, less precise)", kv_cache_dtype="fp8_e5m2"),
            keep_kv_wide(r),
        )


def _unreadable(r: Resolution, phase: str, backend: str) -> str | None:
    """Why `backend` can't read the FP8 cache of this launch, or None."""
    major = r.platform.device_capability[0]
    if backend == "fa3" and r.kv_cache_dtype == "fp8_e5m2" and not uses_mla(r):
        return "fa3 reads fp8_e4m3 pages, not fp8_e5m2"
    if not keeps_fp8_e4m3(r):
        return None
    if backend == "fa3" and major == 8:
        return f"fa3 reads fp8_e4m3 pages on SM90, not on SM{r.platform.sm}"
    if backend == "fa4" and major != 10 and phase != "prefill":
        return f"fa4 reads fp8_e4m3 pages on SM100, not on SM{r.platform.sm}"
    return None


@rule(
    "KV908",
    stage=Stage.SERVE,
    option="kv_cache_dtype",
    source="layers/attention/flashattention_backend.py:1426",
    example=Example("--attention-backend fa3 --kv-cache-dtype fp8_e4m3", gpu="a100-80"),
    fragments=(
        "FlashAttention on Ampere/Ada cards only supports fp16 and bf16",
        "FlashAttention only supports fp16, bf16, and fp8_e4m3",
        "FP8 is only supported on SM100 (compute capability 10.x)",
    ),
)
def flash_attention_reads_fp8(r: Resolution) -> Iterator[Hit]:
    """FlashAttention reads an fp8_e4m3 cache on SM90 (fa3) and SM100 (fa4) only.

    Why: its FP8 kernels are built for these GPUs and this format. The engine moves fp8_e5m2
    to triton where fa3 is the common backend, but not where it is named for one phase.

    Fix: keep KV in 16 bit, or use another backend.
    """
    if not r.platform.is_cuda:
        return
    for phase, backend in used_backends(r):
        why = _unreadable(r, phase, backend)
        if why is not None:
            yield hit(why, keep_kv_wide(r), instead_of(r, backend, phase))
            return


@rule(
    "KV909",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/flashattention_backend.py:283",
    example=Example(
        "--attention-backend fa3 --tp-size 8",
        model="XiaomiMiMo/MiMo-V2-Flash",
        gpu="a100-80",
    ),
    fragments=("Only Hopper supports different V headdim",),
)
def fa3_value_width(r: Resolution) -> Iterator[Hit]:
    """`fa3` handles values narrower than keys on Hopper only.

    Why: the kernels for SM8x are built for equal widths.

    Fix: use triton.
    """
    if not r.platform.is_sm80 or uses_mla(r) or "fa3" not in r.backends:
        return
    if r.model.has_asymmetric_kv:
        yield hit(
            f"keys are {r.model.head_dim} wide and values {r.model.v_head_dim}; "
            f"fa3 takes that on SM90 only",
            set_to("use triton", attention_backend="triton"),
        )


@rule(
    "KV910",
    stage=Stage.SERVE,
    option="page_size",
    source="layers/attention/trtllm_mha_backend.py:374",
    example=Example(
        "--attention-backend trtllm_mha --page-size 128 --tp-size 8",
        model="XiaomiMiMo/MiMo-V2-Flash",
        gpu="b200",
    ),
    fragments=("requires trtllm-gen's dynamic tokens-per-page kernels",),
)
def trtllm_mha_large_pages(r: Resolution) -> Iterator[Hit]:
    """`trtllm_mha` takes pages of 128 tokens and more for grouped heads of equal width only.

    Why: the kernels with a free page size are built for grouped-query attention with equal
    key and value widths, on SM100.

    Fix: use pages of 64 tokens.
    """
    page = whole(r.page_size, 1)
    if "trtllm_mha" not in r.backends or not r.platform.is_sm100 or page < LARGE_PAGE:
        return
    model, width = r.model, attn_tp_size(r)
    kv_heads = model.get_num_kv_heads(width)
    grouped = (model.num_attention_heads or 0) // width // max(1, kv_heads) > 1
    if not grouped or model.has_asymmetric_kv or page & (page - 1):
        yield hit(
            f"pages of {page} tokens need grouped heads of equal width in trtllm_mha",
            set_to("use pages of 64 tokens", page_size=64),
        )


@rule(
    "KV911",
    stage=Stage.SERVE,
    option="decode_attention_backend",
    source="layers/attention/attention_registry.py:98",
    example=Example(
        "--tp-size 8 --dcp-size 2 --speculative-algorithm NEXTN --attention-backend trtllm_mla",
        model="deepseek-ai/DeepSeek-V3",
        gpu="b200",
    ),
    fragments=("trtllm_mla cannot serve decode context parallelism",),
)
def trtllm_mla_dcp_speculation(r: Resolution) -> Iterator[Hit]:
    """`trtllm_mla` can't verify drafts under decode context parallelism.

    Why: it doesn't hand the shard's bounds to its kernel, nor return what merging needs.

    Fix: decode with cutedsl_mla.
    """
    sharded = whole(r.dcp_size, 1) > 1 and r.speculative_algorithm is not None
    if sharded and r.backends[1] == "trtllm_mla":
        yield hit(
            f"trtllm_mla can't verify drafts across {r.dcp_size} context shards",
            set_to("decode with cutedsl_mla", decode_attention_backend="cutedsl_mla"),
            drop("dcp_size"),
        )


@rule(
    "KV912",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/hpc_ops_backend.py:142",
    example=Example("--attention-backend hpc_ops --kv-cache-dtype fp8_e5m2"),
    fragments=("The hpc_ops attention backend",),
)
def hpc_ops_shapes(r: Resolution) -> Iterator[Hit]:
    """`hpc_ops` runs heads of width 128 in groups of 4 or 8 over a bf16 or fp8_e4m3 cache.

    Why: its kernels are built for these shapes, and don't verify drafts.

    Fix: leave the choice to the engine.
    """
    if "hpc_ops" not in r.backends or uses_mla(r):
        return
    model, ranks = r.model, max(1, whole(r.tp_size, 1))
    group = (model.num_attention_heads or 0) // ranks // max(1, model.get_num_kv_heads(ranks))
    problems = []
    if r.speculative_algorithm is not None:
        problems.append("speculative decoding")
    if r.kv_cache_dtype not in ("auto", "bf16", "bfloat16", "fp8_e4m3"):
        problems.append(f"a {r.kv_cache_dtype} cache")
    if model.head_dim != 128 or group not in (4, 8):
        problems.append(f"heads of width {model.head_dim} in groups of {group}")
    if problems:
        yield hit(f"hpc_ops does not run {' or '.join(problems)}", instead_of(r, "hpc_ops"))


SHAPE_KERNELS: tuple[Part, ...] = (
    gdn_hybrid_on_blackwell,
    triton_reads_e4m3,
    flash_attention_reads_fp8,
    fa3_value_width,
    trtllm_mha_large_pages,
    trtllm_mla_dcp_speculation,
    hpc_ops_shapes,
)
