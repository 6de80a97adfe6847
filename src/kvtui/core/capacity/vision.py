"""Size of a multimodal model's vision and audio towers from their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvtui.core.model.config import ModelConfig
    from kvtui.core.model.hf import HfConfig

WIDTH = ("hidden_size", "vt_hidden_size", "embed_dim", "d_model", "width", "mm_hidden_size")
DEPTH = ("depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers", "layers")
INNER = ("intermediate_size", "vt_intermediate_size", "encoder_ffn_dim", "ffn_hidden_size")
GATED_TYPES = ("pixtral", "qwen2_5_vl", "gemma4_vision", "mistral3", "glm4v", "llama4_vision")
"""Towers whose feed-forward block has a gate, by a part of the model type."""


def _number(config: HfConfig, names: tuple[str, ...], default: int = 0) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def tower_params(config: HfConfig) -> int:
    """Parameters of a transformer encoder, its patch embedding left out; 0 where unknown."""
    width, depth = _number(config, WIDTH), _number(config, DEPTH)
    if not width or not depth:
        return 0
    inner = _number(config, INNER, 4 * width)
    kind = str(config.get("model_type") or "")
    blocks = 3 if any(one in kind for one in GATED_TYPES) else 2
    qkv = _number(config, ("qkv_hidden_size",), width)
    return depth * (4 * width * qkv + blocks * width * inner)


def merger_params(config: HfConfig, hidden: int) -> int:
    """Parameters of the projection into the language model, deep-stack mergers included."""
    width = _number(config, WIDTH)
    merge = _number(config, ("spatial_merge_size",), 1)
    if merge == 1 and isinstance(config.get("merge_kernel_size"), (list, tuple)):
        merge = int(config.merge_kernel_size[0])
    joined = width * merge * merge
    deep = config.get("deepstack_visual_indexes")
    mergers = 1 + (len(deep) if isinstance(deep, (list, tuple)) else 0)
    out = _number(config, ("out_hidden_size", "projection_dim"), hidden)
    per_merger = joined * joined + joined * out if merge > 1 else joined * out
    return mergers * per_merger


def vision_parts(model: ModelConfig) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """((name, parameters) of each tower, what was guessed)."""
    if not model.is_multimodal:
        return (), ()
    found, guessed, hidden = [], [], int(model.hidden_size)
    whole = model.hf_config
    thinker = whole.get("thinker_config")
    holder: HfConfig = thinker if thinker is not None and hasattr(thinker, "values") else whole
    for name in ("vision_config", "audio_config", "sound_config"):
        config = holder.get(name)
        if config is None or not hasattr(config, "values"):
            continue
        params = tower_params(config)
        if not params:
            guessed.append(f"the size of the {name.removesuffix('_config')} tower")
            continue
        found.append((name.removesuffix("_config"), params + merger_params(config, hidden)))
    return tuple(found), tuple(guessed)
