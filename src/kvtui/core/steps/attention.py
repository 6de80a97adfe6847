"""Attention backends: which fits GPU, KV dtype and page, and what the engine rewrites.

Mirrors `handle_attention_backend_compatibility` of `srt/arg_groups/attention_hook.py` and the
passes of `srt/arg_groups/overrides.py` that it runs (0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.derived import uses_mla
from kvtui.core.graphs import DECODE, PREFILL
from kvtui.core.resolution import Part, Resolution, step
from kvtui.core.steps.attention_default import attention_backend_default
from kvtui.core.steps.attention_refusals import (
    chosen_anywhere,
    chosen_for_decode,
    cutedsl_mla_decodes_only,
    cutedsl_mla_kv_dtype,
    cutedsl_mla_needs_sm100,
    flex_attention_does_not_verify,
    trtllm_mha_context_parallel,
    trtllm_mha_gpu,
    trtllm_mha_sm120_prefill,
    trtllm_mla_kv_dtype,
    trtllm_mla_needs_blackwell,
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


@step("arg_groups/attention_hook.py:131")
def uncaptured_backends(r: Resolution) -> None:
    """PyTorch's own attention kernels can't be captured."""
    if r.attention_backend in ("torch_native", "flex_attention"):
        graphs_off(r, f"{r.attention_backend} runs without CUDA graphs", DECODE, PREFILL)


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


@step("arg_groups/overrides.py:1258")
def cutedsl_mla_prefills_elsewhere(r: Resolution) -> None:
    """Where cutedsl_mla decodes, trtllm_mla prefills unless another backend is named."""
    if chosen_anywhere(r, "cutedsl_mla") and r.prefill_attention_backend is None:
        r.default("cutedsl_mla only decodes", prefill_attention_backend="trtllm_mla")


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
