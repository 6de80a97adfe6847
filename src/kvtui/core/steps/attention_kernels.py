"""Which linear-attention kernels a launch decodes and verifies with."""

from __future__ import annotations

from kvtui.core.resolution import Resolution

HYBRID = "Qwen/Qwen3.5-27B"
RAGGED_MODES = ("static", "cap-accept", "compact")
"""Values of SGLANG_RAGGED_VERIFY_MODE."""


def decode_kernels(r: Resolution) -> str:
    """The linear-attention kernels of decode; a choice of its own beats the common one."""
    return str(r.linear_attn_decode_backend or r.linear_attn_backend)


def verify_kernels(r: Resolution) -> str | None:
    """The kernels that verify drafts where they are decided: FlashInfer follows decode."""
    chosen: str | None = r.linear_attn_verify_backend
    return "flashinfer" if chosen is None and decode_kernels(r) == "flashinfer" else chosen
