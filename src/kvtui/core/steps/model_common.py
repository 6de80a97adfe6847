"""Readings and small helpers that the model steps share."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from kvtui.core.derived import from_instance
from kvtui.core.findings import Fix, Value, drop, set_to
from kvtui.core.resolution import Resolution
from kvtui.core.steps.attention_default import BACKEND_OPTIONS, no_attention_backend_set

DEEPSEEK_FAMILY = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "KimiK25ForConditionalGeneration",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "Glm5NextForConditionalGeneration",
        "HYV4ForCausalLM",
        "HYV4ForCausalLMNextN",
        "LongcatFlashForCausalLM",
        "LongcatFlashForCausalLMNextN",
        "Dots3NoteForCausalLM",
    }
)
"""Architectures that share DeepSeek's defaults (overrides.py:744)."""


def settle(r: Resolution, why: str, /, **values: Value) -> None:
    """Declare values: a chosen option counts as overruled, an unset one as filled in."""
    for name, value in values.items():
        (r.declare if r.chose(name) else r.default)(why, **{name: value})


def arch(r: Resolution) -> str:
    """The architecture by which the engine dispatches; "" for an instance connector."""
    return "" if from_instance(r) else r.model.arch


def backends_unset(r: Resolution) -> bool:
    """True while no attention backend is decided for either phase."""
    return no_attention_backend_set(r)


def quant_method(r: Resolution) -> str | None:
    """`quant_method` as the checkpoint's quantization_config states it."""
    found = quant_config(r).get("quant_method")
    return found if isinstance(found, str) else None


def quant_config(r: Resolution) -> Mapping[str, Any]:
    """The checkpoint's quantization_config, empty where there is none."""
    found = r.model.hf_config.get("quantization_config")
    return found if isinstance(found, Mapping) else {}


def stays_unquantized(r: Resolution) -> bool:
    """True where the user asked for no quantization, which no default may undo."""
    return bool(r.raw.quantization == "unquant")


def resolved_quantization(r: Resolution) -> str | None:
    """The quantization option, or the checkpoint's own method where it is free to choose."""
    if r.quantization is None and not stays_unquantized(r):
        return quant_method(r)
    return r.quantization  # type: ignore[no-any-return]


def use_backend(r: Resolution, *accepted: str, title: str | None = None) -> tuple[Fix, ...]:
    """Fixes for an attention backend that the model doesn't take: the engine's own, or one."""
    chosen = [name for name in BACKEND_OPTIONS if r.chose(name)]
    fixes = [drop(*chosen, title="let the engine choose the attention backend")] if chosen else []
    if accepted:
        values: dict[str, Value] = dict.fromkeys(chosen or BACKEND_OPTIONS[:1])
        values["attention_backend"] = accepted[0]
        fixes.append(set_to(title or f"use {accepted[0]} for both phases", **values))
    return tuple(fixes)


def backend_option(r: Resolution, refused: str | None) -> str:
    """The option that brought a refused backend in."""
    named = (name for name in BACKEND_OPTIONS if r.chose(name) and getattr(r, name) == refused)
    return next(named, "attention_backend")


def overriding(**values: Any) -> str:
    """The argument that overrides keys of config.json, for examples of rare architectures."""
    return f"--json-model-override-args {shlex.quote(json.dumps(values))}"


def listed(values: Any) -> str:
    """Values as words: "a, b or c"."""
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
