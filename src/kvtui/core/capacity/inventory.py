"""The weight tensors that a model's configuration implies: name, size, and how ranks share them.

Shapes follow the modelling files of srt/models (0.5.23). Biases and norms are left out, except
where they are large; together they are well below 0.1 % of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtui.core.capacity.parts import (
    Layer,
    LayerOf,
    Part,
    dense_mlp,
    expert_width,
    experts_of,
    feed_forward,
    gdn_layer,
    gqa,
    index_branch,
    kda_layer,
    mamba_layer,
    mla,
    moe,
    number,
    shared_width,
)
from kvtui.core.capacity.vision import vision_parts
from kvtui.core.model import archs

if TYPE_CHECKING:
    from kvtui.core.model.config import ModelConfig
    from kvtui.core.model.hf import HfConfig


@dataclass(frozen=True, slots=True)
class Inventory:
    """All weights of a model: per layer, and outside the layers."""

    layers: tuple[tuple[Part, ...], ...]
    outside: tuple[Part, ...]
    prefix: str
    """Path of the layers (`model.layers`)."""
    draft: tuple[Part, ...] = ()
    """Weights of one multi-token-prediction layer, loaded only when it drafts."""
    guessed: tuple[str, ...] = ()
    """What of the architecture is not known and was taken for the usual."""

    @property
    def params(self) -> int:
        """Parameters of the model without its draft layers."""
        inner = sum(part.params for layer in self.layers for part in layer)
        return inner + sum(part.params for part in self.outside)


def _usual_attention(text: HfConfig, model: ModelConfig, layer: int) -> Layer:
    if model.attention_arch == "MLA":
        parts = mla(text, model)
        return parts + index_branch(text, model) if model.is_dsa else parts
    heads, dims = int(model.total_num_kv_heads), (int(model.head_dim), int(model.v_head_dim))
    sliding = model.swa_attention_layer_ids
    if sliding is not None and layer in sliding and model.is_hybrid_swa_compress:
        heads = model.get_swa_num_kv_heads(1)
        dims = int(model.swa_head_dim), int(model.swa_v_head_dim)
    return gqa(text, model, heads, dims)


def _usual(text: HfConfig, model: ModelConfig, layer: int) -> Layer:
    mambaish, hidden = model.mambaish, int(model.hidden_size)
    if mambaish is not None and layer in mambaish.layer_ids:
        mixers: dict[str, Callable[[HfConfig, int], Layer]] = {
            "gdn": gdn_layer, "kda": kda_layer, "mamba2": mamba_layer,
        }  # fmt: skip
        build = mixers.get(mambaish.kind)
        mixer = build(text, hidden) if build is not None else _usual_attention(text, model, layer)
        if mambaish.kind == "mamba2" and layer in mambaish.full_attention_layer_ids:
            mixer += _usual_attention(text, model, layer)
    else:
        mixer = _usual_attention(text, model, layer)
    return mixer + feed_forward(text, model, layer)


def _nemotron_h(text: HfConfig, model: ModelConfig, layer: int) -> Layer:
    hidden, pattern = int(model.hidden_size), text.get("hybrid_override_pattern") or ""
    kind = pattern[layer] if layer < len(pattern) else "-"
    if kind == "M":
        return mamba_layer(text, hidden)
    if kind == "*":
        dims = (int(model.head_dim), int(model.head_dim))
        return gqa(text, model, int(model.total_num_kv_heads), dims, name="mixer")
    if kind == "E":
        latent = number(text, "moe_latent_size")
        return moe(hidden, experts_of(text), expert_width(text), shared_width(text), "mixer",
                   latent, gated=False)  # fmt: skip
    inner = number(text, "intermediate_size")
    return dense_mlp(hidden, inner, "mixer", gated=False)


def _gemma4(text: HfConfig, model: ModelConfig, layer: int) -> Layer:
    hidden = int(model.hidden_size)
    parts = _usual_attention(text, model, layer)
    inner = number(text, "intermediate_size")
    shared = number(text, "num_kv_shared_layers")
    if text.get("use_double_wide_mlp") and layer >= int(model.num_hidden_layers) - shared:
        inner *= 2
    parts += dense_mlp(hidden, inner)
    if text.get("enable_moe_block"):
        parts += moe(hidden, experts_of(text), expert_width(text), 0, name="moe")
    per_layer = number(text, "hidden_size_per_layer_input")
    if per_layer:
        parts += (Part("per_layer_input_gate", 2 * hidden * per_layer, "all"),)
    return parts


def _deepseek_v4(text: HfConfig, model: ModelConfig, layer: int) -> Layer:
    hidden, heads = int(model.hidden_size), int(model.num_attention_heads or 1)
    dim, q_rank = int(model.head_dim), number(text, "q_lora_rank")
    groups, o_rank = number(text, "o_groups", default=1), number(text, "o_lora_rank")
    parts: Layer = (
        Part("self_attn.wq_a", hidden * q_rank, "all"),
        Part("self_attn.wkv", hidden * dim, "all"),
        Part("self_attn.wq_b", q_rank * heads * dim, "attn"),
        Part("self_attn.wo_a", heads * dim // groups * groups * o_rank, "attn"),
        Part("self_attn.wo_b", groups * o_rank * hidden, "attn"),
    )
    ratios = model.compress_ratios or ()
    ratio = ratios[layer] if layer < len(ratios) else 0
    if ratio in (4, 128):
        coff = 2 if ratio == 4 else 1
        parts += (Part("self_attn.compressor", hidden * 2 * coff * dim, "all", linear=False),)
    if ratio == 4:
        index, count = int(model.index_head_dim or 128), number(text, "index_n_heads")
        parts += (
            Part("self_attn.indexer.wq_b", q_rank * count * index, "all"),
            Part("self_attn.indexer.compressor", hidden * (4 * index + count), "all", False),
        )
    inner = expert_width(text)
    return parts + moe(hidden, experts_of(text), inner, shared_width(text))


def _nas(text: HfConfig, model: ModelConfig, layer: int) -> Layer:
    """A layer of a searched architecture (Llama-Nemotron): blocks may be missing or narrow."""
    blocks, hidden = text.get("block_configs") or (), int(model.hidden_size)
    block = blocks[layer] if layer < len(blocks) else {}
    parts: Layer = ()
    attention = block.get("attention") or {}
    if not attention.get("no_op") and attention.get("n_heads_in_group"):
        kv = int(model.num_attention_heads or 1) // int(attention["n_heads_in_group"])
        parts += gqa(text, model, kv, (int(model.head_dim),) * 2)
    elif attention.get("replace_with_linear"):
        parts += (Part("self_attn.linear_attn", hidden * hidden, "tp"),)
    ffn = block.get("ffn") or {}
    if ffn.get("ffn_mult"):
        inner = int(2 * float(ffn["ffn_mult"]) * hidden / 3)
        parts += dense_mlp(hidden, -(-inner // 256) * 256)
    elif ffn.get("replace_with_linear"):
        parts += (Part("mlp.linear_mlp", hidden * hidden, "tp"),)
    return parts


SPECIAL: tuple[tuple[Callable[[ModelConfig], bool], LayerOf], ...] = (
    (lambda m: m.arch in archs.DEEPSEEK_V4, _deepseek_v4),
    (lambda m: bool(m.hf_text_config.get("hybrid_override_pattern")), _nemotron_h),
    (lambda m: "Gemma4" in m.arch or "DiffusionGemma" in m.arch, _gemma4),
    (lambda m: bool(m.hf_text_config.get("block_configs")), _nas),
)
"""Architectures whose layers need code of their own, first match wins."""


def layer_builder(model: ModelConfig) -> LayerOf:
    """The function that lists a layer of the model."""
    return next((build for fits, build in SPECIAL if fits(model)), _usual)


PREFIXES = {
    "KimiK25ForConditionalGeneration": "language_model.model.layers",
    "KimiK3ForConditionalGeneration": "language_model.model.layers",
    "MiniMaxM3SparseForConditionalGeneration": "language_model.model.layers",
    "NemotronHForCausalLM": "backbone.layers",
}
"""Where quantisation lists look for the layers, for models that differ from the usual."""


def layer_prefix(model: ModelConfig) -> str:
    """Path of the layers in the checkpoint."""
    if model.arch in PREFIXES:
        return PREFIXES[model.arch]
    nested = model.hf_text_config is not model.hf_config
    return "model.language_model.layers" if nested else "model.layers"


def _outside(text: HfConfig, model: ModelConfig) -> Layer:
    hidden, vocab = int(model.hidden_size), int(model.vocab_size)
    parts: Layer = (Part("embed_tokens", vocab * hidden, "vocab", linear=False),)
    tied = bool(text.get("tie_word_embeddings", model.hf_config.get("tie_word_embeddings")))
    if not tied and model.is_generation:
        parts += (Part("lm_head", vocab * hidden, "head"),)
    per_layer = number(text, "hidden_size_per_layer_input")
    if per_layer:
        width = per_layer * int(model.num_hidden_layers)
        stated = number(text, "vocab_size_per_layer_input", default=vocab)
        parts += (
            Part("embed_tokens_per_layer", stated * width, "vocab", linear=False),
            Part("per_layer_model_projection", hidden * width, "all"),
        )
    return parts


def _draft(text: HfConfig, model: ModelConfig, build: LayerOf) -> Layer:
    """One multi-token-prediction layer with its input projection."""
    hidden = int(model.hidden_size)
    if text.get("hybrid_override_pattern"):
        pattern = str(text.get("mtp_hybrid_override_pattern") or "*E")
        sample = str(text.get("hybrid_override_pattern"))
        layer = tuple(
            part for kind in pattern if kind in sample
            for part in build(text, model, sample.index(kind))
        )  # fmt: skip
    else:
        last = int(model.num_hidden_layers) - 1
        full = model.mambaish.full_attention_layer_ids if model.mambaish is not None else ()
        layer = build(text, model, full[-1] if full else last)
    return (*layer, Part("eh_proj", 2 * hidden * hidden, "all", linear=False))


def inventory(model: ModelConfig) -> Inventory:
    """List the model's weights; raises KeyError, TypeError or ValueError on odd configurations."""
    text, build = model.hf_text_config, layer_builder(model)
    layers = tuple(build(text, model, i) for i in range(int(model.num_hidden_layers)))
    vision, guessed = vision_parts(model)
    outside = _outside(text, model) + tuple(Part(name, params, "vision") for name, params in vision)
    return Inventory(layers, outside, layer_prefix(model), _draft(text, model, build), guessed)
