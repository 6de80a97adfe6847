"""From config.json to the configuration object that the engine ends up with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtui.core.facts import Checkpoint, MissingFact
from kvtui.core.model import archs
from kvtui.core.model.classes import config_classes, instantiate
from kvtui.core.model.hf import SUB_CONFIGS, HfConfig
from kvtui.core.model.request import ModelRequest

LONGCAT = frozenset({"LongcatCausalLM", "LongcatFlashForCausalLM", "LongcatFlashNgramForCausalLM"})
GEMMA4_TYPES = frozenset(
    {
        "gemma4",
        "gemma4_assistant",
        "gemma4_unified",
        "gemma4_unified_assistant",
        "diffusion_gemma",
        "embedding_gemma2",
    }
)
GEMMA4_PER_LAYER = frozenset(
    {
        "head_dim",
        "num_key_value_heads",
        "v_head_dim",
        "swa_head_dim",
        "swa_v_head_dim",
        "swa_num_key_value_heads",
        "global_head_dim",
        "num_global_key_value_heads",
    }
)
"""Shapes that differ by layer in a Gemma 4, which therefore has none on top."""
SHARED_KEYS = ("pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings")
TEXT_KEYS = ("llm_config", "language_config", "text_config")


def hf_config_of(checkpoint: Checkpoint, overrides: Mapping[str, Any]) -> HfConfig:
    """The configuration with the launch's overrides applied; raises MissingFact."""
    values = checkpoint.config
    if not isinstance(values, Mapping):
        raise MissingFact("model", f"{checkpoint.name}: config.json should hold one JSON object")
    kind = _model_type(values)
    config = instantiate(values, kind)
    names = config.get("architectures")
    if (
        not isinstance(names, (list, tuple))
        or not names
        or not all(isinstance(name, str) for name in names)
    ):
        raise MissingFact(
            "model",
            f"{checkpoint.name}: config.json: architectures should name one model class",
        )
    config.put("architectures", list(names))
    if kind == "longcat_flash":
        config.put("architectures", ["LongcatFlashForCausalLM"])
        config.put("model_type", kind)
    _lift_text_keys(config, kind)
    for key, value in overrides.items():
        _override(config, key, value)
    return config


def _model_type(values: Mapping[str, Any]) -> str | None:
    names = values.get("architectures")
    if isinstance(names, (list, tuple)) and any(name in LONGCAT for name in names):
        return "longcat_flash"
    kind = values.get("model_type")
    return kind if isinstance(kind, str) else None


def _lift_text_keys(config: HfConfig, kind: str | None) -> None:
    """Repeat the language part's keys on top, as the engine does for classes not its own."""
    known = config_classes().get(kind or "")
    own = known is not None and known.own
    text = config.get("llm_config") if kind == "internvl_chat" else None
    if text is None and not own:
        text = text_config_of(config)
    if not isinstance(text, HfConfig) or text is config:
        return
    per_layer = GEMMA4_PER_LAYER if kind in GEMMA4_TYPES else frozenset()
    for key, value in text.values.items():
        if value is not None and key not in SUB_CONFIGS and key not in per_layer:
            config.fill(key, value)


def _override(config: HfConfig, key: str, value: Any) -> None:
    """Merge one override as the engine does: into a nested configuration or a rope table."""
    current = config.get(key)
    if isinstance(value, Mapping) and isinstance(current, HfConfig):
        for name, inner in value.items():
            current.put(name, inner)
    elif key in ("rope_scaling", "rope_parameters") and isinstance(value, Mapping):
        merged = {**current, **value} if isinstance(current, Mapping) else dict(value)
        config.put("rope_scaling", merged)
        config.put("rope_parameters", merged)
    else:
        config.put(key, value)


def text_config_of(config: HfConfig) -> HfConfig:
    """The language part: thinker, llm, language or text configuration, in that order."""
    name = config.architectures[0]
    if name.startswith("Llava") and name.endswith("ForCausalLM"):
        config.put("dtype", "float16")
        return config
    text = _language_part(config)
    for key in SHARED_KEYS if text is not config else ():
        if key in config:
            text.fill(key, config.get(key))
        elif key in text:
            config.put(key, text.get(key))
    return text


def _language_part(config: HfConfig) -> HfConfig:
    own = config.get("dtype")
    thinker = config.get("thinker_config")
    if isinstance(thinker, HfConfig):
        nested = thinker.get("text_config")
        text = nested if isinstance(nested, HfConfig) else thinker
        inner = thinker.get("dtype")
        text.put("dtype", own if inner is None else inner)
        return text
    for key in TEXT_KEYS:
        nested = config.get(key)
        if isinstance(nested, HfConfig):
            if nested.get("dtype") is None and own is not None:
                nested.put("dtype", own)
            return nested
    return config


def apply_draft(
    config: HfConfig, text: HfConfig, request: ModelRequest
) -> tuple[HfConfig, HfConfig]:
    """The configuration of a checkpoint's draft head (`ModelConfig._config_draft_model`)."""
    arch = config.architectures[0]
    head = archs.DRAFT_HEADS.get(arch)
    if arch == "DeepseekV4ForCausalLM":
        bundled = config.get("dspark_block_size") is not None or "dspark_config" in config
        dspark = bundled and request.speculative_algorithm in (None, "DSPARK")
        head = "DeepseekV4ForCausalLMDSpark" if dspark else "DeepseekV4ForCausalLMNextN"
    if head is None:
        return config, text
    if arch in ("Step3p7ForConditionalGeneration", "NemotronH_Omni_Reasoning_V3"):
        config = text
    config.put("architectures", [head])
    if arch == "LongcatFlashForCausalLM":
        config.put("num_hidden_layers", config.get("num_nextn_predict_layers"))
    if head in archs.ONE_DRAFT_LAYER:
        config.put("num_nextn_predict_layers", 1)
        text.put("num_nextn_predict_layers", 1)
    if arch == "Glm5NextForConditionalGeneration":
        text.put("architectures", [head])
        text.put("linear_attn_config", None)
    if arch == "Qwen4ExpForConditionalGeneration":
        text.put("num_hidden_layers", 1)
        text.put("layer_types", ["full_attention"])
        text.put("full_attention_interval", 1)
    return config, text
