"""A model in a few short lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.model.archs import DENSE_TYPES
from kvtui.core.model.config import ModelConfig

LINEAR_NAMES = {
    "mamba2": "Mamba 2",
    "mamba1": "Mamba",
    "gdn": "GDN",
    "kda": "KDA",
    "lightning": "lightning",
    "shortconv": "short-convolution",
}
EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
ACTIVE_KEYS = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k", "moe_topk")


def _first(model: ModelConfig, keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = model.hf_text_config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _attention(model: ModelConfig) -> str:
    layers = f"{model.num_hidden_layers} layers"
    if model.attention_arch == "MLA":
        shape = f"latent {model.kv_lora_rank} + rope {model.qk_rope_head_dim}"
    elif model.compress_ratios is not None:
        shape = f"compressed KV of {model.head_dim}"
    elif model.attention_arch == "SSM":
        shape = "no KV cache"
    elif model.has_asymmetric_kv and model.head_dim != model.v_head_dim:
        shape = f"{model.total_num_kv_heads} KV heads x {model.head_dim} / {model.v_head_dim}"
    else:
        shape = f"{model.total_num_kv_heads} KV heads x {model.head_dim}"
    return f"{model.attention_arch} · {layers} · {shape}"


def _layer_kinds(model: ModelConfig) -> Iterator[str]:
    linear = model.mambaish
    if linear is not None:
        name = LINEAR_NAMES[linear.kind]
        full = len(linear.full_attention_layer_ids)
        yield f"hybrid: {len(linear.layer_ids)} {name} + {full} full attention"
    sliding, window = model.swa_attention_layer_ids, model.sliding_window_size
    local = f"chunks of {model.attention_chunk_size}" if model.attention_chunk_size else None
    if sliding and model.full_attention_layer_ids is not None:
        total = len(sliding) + len(model.full_attention_layer_ids)
        yield f"{local or f'sliding window {window}'} in {len(sliding)} of {total} layers"
    elif window and model.is_hybrid_swa:
        yield f"sliding window {window} beside compressed layers"
    if model.index_head_dim is not None:
        yield f"sparse attention with an index of {model.index_head_dim}"


def _experts(model: ModelConfig) -> Iterator[str]:
    if model.hf_text_config.get("model_type") in DENSE_TYPES:
        return
    total, active = _first(model, EXPERT_KEYS), _first(model, ACTIVE_KEYS)
    if total is not None and total > 1:
        yield f"{total} experts" + (f", {active} a token" if active else "")


def describe(model: ModelConfig) -> tuple[str, ...]:
    """Attention, layer kinds, experts, number format and context, a line each."""
    number = model.quantization or model.dtype
    if model.quantization is not None:
        number = f"{model.quantization} over {model.dtype}"
    kind = "embedding" if model.is_embedding else "multimodal" if model.is_multimodal else "text"
    return (
        _attention(model),
        *_layer_kinds(model),
        *_experts(model),
        f"{kind} · {number} · {model.context_len:,} tokens of context",
    )
