"""Widths and switches that the engine works out from its options, computed on demand."""

from __future__ import annotations

from kvtui.core.resolution import Resolution


def ep_scale_joiner(r: Resolution) -> bool:
    """True for a process that joins a running elastic expert-parallel group."""
    return bool(r.ep_join_mode == "scale")


def attn_dp_enabled(r: Resolution) -> bool:
    """True where attention runs data-parallel inside the tensor-parallel group."""
    return bool(r.attn_dp_size > 1) or ep_scale_joiner(r)


def num_dp_ranks(r: Resolution) -> int:
    """Replicas times attention-DP groups; one of the two is one."""
    return int(r.dp_size * r.attn_dp_size)


def attn_tp_size(r: Resolution) -> int:
    """Ranks that share one attention layer's heads."""
    return max(1, int(r.tp_size) // int(r.attn_dp_size) // int(r.attn_cp_size))


def mamba_extra_buffer(r: Resolution) -> bool:
    """True where the radix cache keeps spare state buffers for recurrent layers."""
    return r.disable_radix_cache is False and r.mamba_radix_cache_strategy in (
        "extra_buffer",
        "extra_buffer_lazy",
    )


def uses_mla(r: Resolution) -> bool:
    """True for a model whose attention is MLA as the engine classes it."""
    return r.model.attention_arch == "MLA"
