"""The attention and sampling kernels that the engine picks where the user names none.

Mirrors `srt/arg_groups/model_override_base.py:277` and the default passes of
`srt/arg_groups/overrides.py` (0.5.23).
"""

from __future__ import annotations

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Fix, drop
from kvtui.core.resolution import Part, Resolution, step

AITER_MLA_HEADS = (16, 128)
"""Head counts a rank that aiter's MLA kernels come in."""

BACKEND_OPTIONS = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
)


def no_attention_backend_set(r: Resolution) -> bool:
    """True while neither the common nor a phase's attention backend is decided."""
    return all(getattr(r, option) is None for option in BACKEND_OPTIONS)


def has_flashinfer(r: Resolution) -> bool:
    """True where FlashInfer is installed and not switched off by the environment."""
    return r.platform.has_flashinfer and r.env_flag("SGLANG_IS_FLASHINFER_AVAILABLE", True)


def drafts_one_path(r: Resolution) -> bool:
    """True without speculation, or with one draft path on pages of one token."""
    topk = r.speculative_eagle_topk
    return topk is None or (topk == 1 and r.page_size in (None, 1))


def default_attention_backend(r: Resolution) -> str:
    """The backend for this model and GPU where none is chosen."""
    if "WhisperForConditionalGeneration" in (r.model.hf_config.get("architectures") or ()):
        return "flashinfer"
    return _default_for_mla(r) if uses_mla(r) else _default_for_mha(r)


def _default_for_mha(r: Resolution) -> str:
    platform = r.platform
    if platform.is_hopper_with_cuda_12_3 and drafts_one_path(r):
        return "fa3"
    algorithm = r.speculative_algorithm
    width_known = (
        algorithm is None
        or r.speculative_eagle_topk is not None
        or str(algorithm).upper() == "DFLASH"
    )
    if platform.is_sm100 and drafts_one_path(r) and width_known:
        return "fa4" if r.model.has_asymmetric_kv else "trtllm_mha"
    if platform.is_hip:
        return "aiter"
    if platform.is_mps:
        return "torch_native"
    return "flashinfer" if has_flashinfer(r) and not r.model.has_attention_sinks else "triton"


def _default_for_mla(r: Resolution) -> str:
    platform = r.platform
    if platform.is_hopper_with_cuda_12_3:
        return "fa3"
    if platform.is_sm100:
        return "flashinfer"
    if platform.is_hip and r.model.get_num_kv_heads(r.tp_size) in AITER_MLA_HEADS:
        return "aiter"
    return "torch_native" if platform.is_mps else "triton"


def without_backend(r: Resolution, *backends: str) -> Fix:
    """A fix that takes every choice of the named backends back."""
    chosen = [o for o in BACKEND_OPTIONS if r.chose(o) and getattr(r.raw, o) in backends]
    return drop(*(chosen or BACKEND_OPTIONS[:1]), title="let the engine choose the backend")


@step("arg_groups/overrides.py:986")
def sampling_backend_default(r: Resolution) -> None:
    """FlashInfer samples where it is available."""
    if r.sampling_backend is None:
        name = "flashinfer" if has_flashinfer(r) else "pytorch"
        r.default("it is the fastest available", sampling_backend=name)


@step("arg_groups/overrides.py:1125")
def attention_backend_default(r: Resolution) -> None:
    """Equal backends for both phases are the common one; else the default fills the gap."""
    both = r.prefill_attention_backend
    if both is not None and both == r.decode_attention_backend:
        r.declare("both phases use it", attention_backend=both)
    elif r.attention_backend is None:
        r.default(
            "it is the fastest for this model and GPU",
            attention_backend=default_attention_backend(r),
        )


SAMPLING_BACKEND_DEFAULT: tuple[Part, ...] = (sampling_backend_default,)
