"""Building blocks of layers as parameter counts: attention, experts, recurrent mixers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvtui.core.model.archs import DENSE_TYPES

if TYPE_CHECKING:
    from kvtui.core.model.config import ModelConfig
    from kvtui.core.model.hf import HfConfig


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor, or several of a kind.

    `split` says how ranks share it: tp (all tensor-parallel ranks), attn (ranks of one attention
    group), kv (the same, down to one head), expert, shared (shared experts), vocab (input
    embedding), head (output projection), vision, all (every rank holds it).
    """

    name: str
    """Module path below the layer, or below the model, as quantisation lists name it."""
    params: int
    split: str
    linear: bool = True
    """Whether the checkpoint's quantisation applies to it."""
    units: int = 0
    """Heads that a `kv` part splits by."""


Layer = tuple[Part, ...]


def number(config: HfConfig | Mapping[str, Any], *names: str, default: int = 0) -> int:
    """The first of `names` that the configuration states as a number."""
    for name in names:
        value = config.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value)
    return default


def gqa(text: HfConfig, model: ModelConfig, kv_heads: int, dims: tuple[int, int],
        heads: int | None = None, name: str = "self_attn") -> Layer:  # fmt: skip
    """Separate Q, K and V projections and an output projection."""
    hidden, total = int(model.hidden_size), heads or int(model.num_attention_heads or 1)
    gate = 2 if text.get("attn_output_gate") else 1
    return (
        Part(f"{name}.q_proj", hidden * total * dims[0] * gate, "attn"),
        Part(f"{name}.k_proj", hidden * kv_heads * dims[0], "kv", units=kv_heads),
        Part(f"{name}.v_proj", hidden * kv_heads * dims[1], "kv", units=kv_heads),
        Part(f"{name}.o_proj", hidden * total * dims[1], "attn"),
    )


def mla(text: HfConfig, model: ModelConfig) -> Layer:
    """Latent attention; the decode path keeps a second copy of the up-projection."""
    hidden, heads = int(model.hidden_size), int(model.num_attention_heads or 1)
    rank, rope = int(model.kv_lora_rank or 0), int(model.qk_rope_head_dim or 0)
    nope, v_dim = int(model.qk_nope_head_dim or 0), number(text, "v_head_dim", default=128)
    q_rank = number(text, "q_lora_rank")
    up = rank * heads * (nope + v_dim)
    queries: Layer = (Part("self_attn.q_proj", hidden * heads * (nope + rope), "attn"),)
    if q_rank:
        queries = (
            Part("self_attn.q_a_proj", hidden * q_rank, "all"),
            Part("self_attn.q_b_proj", q_rank * heads * (nope + rope), "attn"),
        )
    parts = (
        *queries,
        Part("self_attn.kv_a_proj_with_mqa", hidden * (rank + rope), "all"),
        Part("self_attn.kv_b_proj", up, "attn"),
        Part("self_attn.absorbed", up, "attn", linear=False),
        Part("self_attn.o_proj", heads * v_dim * hidden, "attn"),
    )
    if text.get("mla_use_output_gate"):
        parts += (Part("self_attn.g_proj", hidden * heads * v_dim, "attn"),)
    return parts


def index_branch(text: HfConfig, model: ModelConfig) -> Layer:
    """DSA's index projections, held by every rank."""
    hidden, dim = int(model.hidden_size), number(text, "index_head_dim", default=128)
    heads, q_rank = number(text, "index_n_heads", default=64), number(text, "q_lora_rank")
    return (
        Part("self_attn.indexer.wq_b", (q_rank or hidden) * heads * dim, "all"),
        Part("self_attn.indexer.wk", hidden * (dim + heads), "all", linear=False),
    )


def dense_mlp(hidden: int, inner: int, name: str = "mlp", gated: bool = True) -> Layer:
    """A feed-forward block."""
    parts = (
        Part(f"{name}.up_proj", hidden * inner, "tp"),
        Part(f"{name}.down_proj", hidden * inner, "tp"),
    )
    return (Part(f"{name}.gate_proj", hidden * inner, "tp"), *parts) if gated else parts


def moe(hidden: int, experts: int, inner: int, shared: int, name: str = "mlp",
        expert_hidden: int = 0, gated: bool = True) -> Layer:  # fmt: skip
    """Routed experts, their router and shared experts; `shared` is their joint width."""
    width, count = expert_hidden or hidden, 3 if gated else 2
    parts: Layer = (
        Part(f"{name}.gate", hidden * experts, "all", linear=False),
        Part(f"{name}.experts", experts * count * width * inner, "expert"),
    )
    if shared:
        parts += (Part(f"{name}.shared_experts", count * hidden * shared, "shared"),)
    if expert_hidden:
        parts += (Part(f"{name}.latent_proj", 2 * hidden * expert_hidden, "all"),)
    return parts


def experts_of(text: HfConfig) -> int:
    """Routed experts of an expert layer, 0 for a dense model."""
    if text.get("model_type") in DENSE_TYPES:
        return 0
    return number(
        text, "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts",
        "num_routed_experts",
    )  # fmt: skip


def expert_width(text: HfConfig) -> int:
    """Inner width of one routed expert."""
    return number(
        text, "moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size",
        "intermediate_size", "ffn_hidden_size",
    )  # fmt: skip


def shared_width(text: HfConfig) -> int:
    """Joint inner width of the shared experts."""
    stated = number(
        text, "shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim",
        "moe_shared_expert_intermediate_size",
    )  # fmt: skip
    if stated:
        return stated
    count = number(text, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    return count * expert_width(text)


def is_expert_layer(text: HfConfig, layer: int) -> bool:
    """Whether a layer's feed-forward block is made of experts."""
    if not experts_of(text):
        return False
    marks = text.get("moe_layer_freq")
    if isinstance(marks, (list, tuple)):
        return layer < len(marks) and bool(marks[layer])
    kinds = text.get("mlp_layer_types")
    if isinstance(kinds, (list, tuple)) and layer < len(kinds):
        return kinds[layer] in ("sparse", "moe")
    listed = text.get("moe_layers_enum")
    if isinstance(listed, str) and listed:
        return layer in {int(one) for one in listed.split(",")}
    if layer in (text.get("mlp_only_layers") or ()):
        return False
    if layer < number(text, "first_k_dense_replace", "num_dense_layers", "first_dense_layers"):
        return False
    step = number(text, "interleave_moe_layer_step", "decoder_sparse_step", default=1) or 1
    if text.get("interleave_moe_layer_step") or text.get("decoder_sparse_step"):
        return (layer + 1) % step == 0
    every = number(text, "moe_layer_freq", default=1) or 1
    return layer % every == 0


def feed_forward(text: HfConfig, model: ModelConfig, layer: int) -> Layer:
    """The feed-forward block of one layer of the usual kind."""
    hidden = int(model.hidden_size)
    if is_expert_layer(text, layer):
        inner = expert_width(text)
        shared = shared_width(text)
        if "Llama4ForConditionalGeneration" in model.architectures:
            shared = inner
        latent = number(text, "routed_expert_hidden_size", "moe_latent_size")
        return moe(hidden, experts_of(text), inner, shared, expert_hidden=latent)
    inner = number(
        text, "dense_intermediate_size", "intermediate_size_mlp", "intermediate_size",
        "ffn_hidden_size", default=4 * hidden,
    )  # fmt: skip
    return dense_mlp(hidden, inner)


def gdn_layer(text: HfConfig, hidden: int) -> Layer:
    """A gated delta-net mixer (Qwen3-Next and later)."""
    keys = number(text, "linear_num_key_heads") * number(text, "linear_key_head_dim")
    heads = number(text, "linear_num_value_heads")
    values = heads * number(text, "linear_value_head_dim")
    return (
        Part("linear_attn.in_proj_qkv", hidden * (2 * keys + values), "attn"),
        Part("linear_attn.in_proj_z", hidden * values, "attn"),
        Part("linear_attn.in_proj_ba", hidden * 2 * heads, "attn", linear=False),
        Part("linear_attn.out_proj", values * hidden, "attn"),
    )


def kda_layer(text: HfConfig, hidden: int) -> Layer:
    """A Kimi delta-attention mixer."""
    config = text.get("linear_attn_config") or {}
    heads = number(config, "num_heads", default=number(text, "num_attention_heads"))
    dim = number(config, "head_dim", default=number(text, "head_dim", default=128))
    inner = heads * dim
    gate = hidden * inner if config.get("use_full_rank_gate") else hidden * dim + dim * inner
    return (
        Part("self_attn.qkv_proj", 3 * hidden * inner, "attn"),
        Part("self_attn.g_proj", gate, "attn"),
        Part("self_attn.f_proj", hidden * dim + dim * inner + hidden * heads, "attn"),
        Part("self_attn.o_proj", inner * hidden, "attn"),
    )


def mamba_layer(text: HfConfig, hidden: int, name: str = "mixer") -> Layer:
    """A Mamba-2 mixer."""
    heads = number(text, "mamba_num_heads", "mamba_n_heads")
    head_dim = number(text, "mamba_head_dim", "mamba_d_head") or 64
    inner = heads * head_dim
    groups = number(text, "n_groups", "mamba_n_groups", default=1)
    state = number(text, "ssm_state_size", "mamba_d_state", default=128)
    return (
        Part(f"{name}.in_proj", hidden * (2 * inner + 2 * groups * state + heads), "attn"),
        Part(f"{name}.out_proj", inner * hidden, "attn"),
    )


LayerOf = Callable[["HfConfig", "ModelConfig", int], Layer]
