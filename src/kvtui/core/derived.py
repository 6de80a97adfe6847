"""Widths and switches that the engine works out from its options, computed on demand."""

from __future__ import annotations

from typing import Any

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
    groups = max(1, int(r.attn_dp_size)) * max(1, int(r.attn_cp_size))
    return max(1, int(r.tp_size) // groups)


def mamba_extra_buffer(r: Resolution) -> bool:
    """True where the radix cache keeps spare state buffers for recurrent layers."""
    return r.disable_radix_cache is False and r.mamba_radix_cache_strategy in (
        "extra_buffer",
        "extra_buffer_lazy",
    )


def uses_mla(r: Resolution) -> bool:
    """True for a model whose attention is MLA as the engine classes it."""
    return r.model.attention_arch == "MLA"


def whole(value: Any, otherwise: int = 0) -> int:
    """`value` where it is an integer, else `otherwise`: a chosen value may be of a wrong type."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def architecture(r: Resolution) -> str:
    """The first of the model's architectures; raises MissingFact."""
    names = r.model.hf_config.get("architectures") or ("",)
    return str(names[0])


def from_instance(r: Resolution) -> bool:
    """True where weights and configuration come from a running server (`instance://...`)."""
    path = r.model_path
    return isinstance(path, str) and path.startswith("instance://")


def is_dummy(r: Resolution) -> bool:
    """True for `--model-path none` or `dummy`: resolution ends before any model is read."""
    path = r.model_path
    return isinstance(path, str) and path.lower() in ("none", "dummy")


MIXED_CHUNK_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK"})
"""Speculation whose workers resume from a mixed step (speculative/spec_info.py:155)."""

ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
"""Draft lengths of the built-in adaptive table (speculative/adaptive_spec_params.py:27)."""


def max_prefill_buffer_tokens(r: Resolution) -> int:
    """Tokens that prefill buffers hold; dynamic chunking under PP may outgrow the chunk."""
    chunk = max(0, whole(r.chunked_prefill_size))
    if r.enable_dynamic_chunking and whole(r.pp_size) > 1 and chunk:
        return max(chunk, whole(r.max_prefill_tokens), -(-chunk * 5 // 4))
    return chunk


def max_draft_tokens(r: Resolution) -> int | None:
    """The largest draft width that speculation may reach, None without speculation."""
    tokens = r.speculative_num_draft_tokens
    if r.speculative_algorithm is None or tokens is None:
        return None
    return max(ADAPTIVE_STEPS) + 1 if r.speculative_adaptive else int(tokens)


def gpus_needed(r: Resolution) -> int:
    """GPUs of the whole deployment: replicas times tensor times pipeline ranks."""
    return max(1, whole(r.dp_size, 1)) * max(1, whole(r.tp_size, 1)) * max(1, whole(r.pp_size, 1))
