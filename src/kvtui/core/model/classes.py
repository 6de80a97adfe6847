"""What configuration classes of the release fill in by themselves, per model type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from kvtui.core.model.fixups import FIXUPS
from kvtui.core.model.hf import SUB_CONFIGS, HfConfig

LANGUAGE_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Nested configurations that the engine reads; towers are only looked for."""

TOP_ONLY = frozenset({"architectures", "model_type", "auto_map", "quantization_config"})
"""Keys that stay with the whole where a file states its language part's keys beside it."""

ROPE_WITH_ORIGIN = frozenset({"llama3", "yarn", "longrope"})
"""Rope types for which the class writes down the trained length (modeling_rope_utils.py:813)."""

LAYER_TYPE_NAMES = MappingProxyType(
    {
        "mamba": "linear_attention",
        "attention": "full_attention",
        "deepseek_sparse_attention": "indexed_attention",
        "qwen_sparse_attention": "indexed_attention",
    }
)
"""Old layer type names and what Transformers makes of them (configuration_utils.py:92)."""


@dataclass(frozen=True, slots=True)
class ConfigClass:
    """One configuration class: defaults, key aliases and the parts that it builds."""

    defaults: Mapping[str, Any]
    alias: Mapping[str, str]
    parts: Mapping[str, str]
    own: bool
    """True for a class of the engine's own registry, which keeps text keys out of the top."""
    flat: str | None = None
    """The part whose keys a file without it may state beside it."""
    rope: str | None = None
    """split: one rope table a layer type; raw: the file's table as it is; None: completed."""
    empty: tuple[str, ...] = ()
    """Parts that exist as None where the file has none."""
    inner: bool = False
    """True for the class of a part, which no file names as a whole model."""


@cache
def config_classes() -> Mapping[str, ConfigClass]:
    """Every model type that the release can read without code from the checkpoint."""
    path = resources.files("kvtui.core.tables") / "models-configs.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["types"]
    return {
        kind: ConfigClass(
            row.get("defaults", {}),
            row.get("alias", {}),
            row.get("parts", {}),
            "own" in row,
            row.get("flat"),
            row.get("rope"),
            tuple(row.get("empty", ())),
            "inner" in row,
        )
        for kind, row in rows.items()
    }


def _named(config: HfConfig, alias: Mapping[str, str]) -> None:
    """Give each value both of its names, the class's own and the common one."""
    for common, own in alias.items():
        if common in config:
            config.put(own, config.get(common))
        elif own in config:
            config.put(common, config.get(own))


def knows_type(model_type: object) -> bool:
    """Whether the release has a class for whole models of that type."""
    found = config_classes().get(model_type) if isinstance(model_type, str) else None
    return found is not None and not found.inner


def _rope(config: HfConfig, style: str | None = None) -> None:
    """Fold both spellings of the rope table into one, with the trained length filled in."""
    stated = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(stated, Mapping):
        return
    rope = dict(stated)
    nested = any(isinstance(value, Mapping) for value in rope.values())
    if style == "split" and not nested:
        rope = {"full_attention": rope}
    elif style != "raw" and not nested:
        rope.setdefault("rope_type", rope.get("type", "default"))
        if rope["rope_type"] == "mrope":
            rope["rope_type"] = "default"
        rope.setdefault("type", rope["rope_type"])
        if rope["rope_type"] in ROPE_WITH_ORIGIN:
            outside = config.get("original_max_position_embeddings")
            if outside is not None:
                rope["original_max_position_embeddings"] = outside
            elif config.get("max_position_embeddings") is not None:
                rope.setdefault(
                    "original_max_position_embeddings", config.get("max_position_embeddings")
                )
    config.put("rope_scaling", rope)
    config.put("rope_parameters", rope)


def _layer_types(config: HfConfig) -> None:
    types = config.get("layer_types")
    if isinstance(types, (list, tuple)):
        config.put("layer_types", [LAYER_TYPE_NAMES.get(kind, kind) for kind in types])


def instantiate(values: Mapping[str, Any], model_type: str | None) -> HfConfig:
    """The configuration that the class of `model_type` makes of a JSON object."""
    found = config_classes().get(model_type) if isinstance(model_type, str) else None
    plain = {key: value for key, value in values.items() if key not in SUB_CONFIGS}
    config = HfConfig(plain)
    dtype = values.get("dtype", values.get("torch_dtype"))
    if dtype is not None:
        config.put("dtype", dtype)
    for key in SUB_CONFIGS:
        if key in values:
            config.put(key, _part(key, values[key], found.parts.get(key) if found else None))
    if found is None:
        _rope(config)
        return config
    _named(config, found.alias)
    for key, value in found.defaults.items():
        config.fill(key, value)
    for key, kind in found.parts.items():
        if config.get(key) is None:
            beside = found.flat == key
            own = {k: v for k, v in plain.items() if k not in TOP_ONLY} if beside else {}
            config.put(key, _part(key, own, kind))
    for key in found.empty:
        config.fill(key, None)
    config.fill("model_type", model_type)
    for fixup in FIXUPS.get(model_type or "", ()):
        fixup(config)
    _rope(config, found.rope)
    if not found.own:
        _layer_types(config)
    return config


def _part(key: str, value: Any, default_type: str | None) -> Any:
    if not isinstance(value, Mapping):
        return value
    if key not in LANGUAGE_PARTS:
        return HfConfig(value)
    stated = value.get("model_type")
    known = isinstance(stated, str) and stated in config_classes()
    return instantiate(value, stated if known else default_type)
