"""How packed FP4 caches are stored, which depends on the attention backends that read them.

Mirrors the access registry of `srt/layers/quantization/fp4_kv_cache_quant_method.py` (0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 16
"""Values that share one scale in both recipes (fp4_kv_cache_quant_method.py:443, 741)."""

WORKSPACE_PREFILL = frozenset({"flashinfer"})
"""Prefill backends that read NVFP4 through an FP8 workspace (…:868)."""
NATIVE_PREFILL = frozenset({"trtllm_mha"})
NATIVE_DECODE = frozenset({"trtllm_mha"})


@dataclass(frozen=True, slots=True)
class Fp4Layout:
    """Which tensors stand beside the packed values."""

    recipe: str
    """nvfp4 | fp4_mx_block16."""
    linear_scales: bool
    """One scale row a token."""
    native_scales: bool
    """Scales a page, as TRT-LLM's SM100 kernels read them."""
    workspace: str | None
    """dtype of the shared dequantisation workspace, or None."""


def fp4_layout(recipe: str, backends: tuple[str | None, str | None], sm100: bool) -> Fp4Layout:
    """The tensors of `recipe` for a (prefill, decode) backend pair."""
    prefill, decode = backends
    if recipe != "nvfp4":
        return Fp4Layout(recipe, linear_scales=True, native_scales=False, workspace=None)
    workspace = prefill in WORKSPACE_PREFILL
    native = prefill in NATIVE_PREFILL or decode in NATIVE_DECODE
    return Fp4Layout(
        recipe,
        linear_scales=workspace or (native and not sm100),
        native_scales=native and sm100,
        workspace="float8_e4m3fn" if workspace else None,
    )


def fp4_cell_bytes(layout: Fp4Layout, heads: int, head_dim: int, layers: int) -> int:
    """Bytes that the engine prices a token at; V is priced at K's head dim."""
    packed = heads * (head_dim // 2) * layers * 2
    if layout.recipe == "nvfp4":
        scales = heads * (head_dim // BLOCK) * layers * 2
        scales *= int(layout.linear_scales) + int(layout.native_scales)
    else:
        scales = heads * head_dim // BLOCK * layers * 2
    workspace = heads * head_dim * 2 if layout.workspace else 0
    return packed + scales + workspace
