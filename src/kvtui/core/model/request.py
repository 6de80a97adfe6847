"""What of a launch shapes the model's configuration, as one hashable key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

OPTIONS = (
    "context_length",
    "is_embedding",
    "enable_multimodal",
    "dtype",
    "model_impl",
    "quantize_and_serve",
    "disable_hybrid_swa_memory",
    "language_model_only",
    "model_config_parser",
    "speculative_algorithm",
)
"""Options that the engine hands to its configuration unchanged (model_config.py:934)."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The part of a launch that a model configuration depends on."""

    context_length: int | None = None
    overrides: str = "{}"
    """`--json-model-override-args`, a JSON object as text."""
    is_embedding: bool = False
    enable_multimodal: bool | None = None
    dtype: str = "auto"
    quantization: str | None = None
    model_impl: str = "auto"
    quantize_and_serve: bool = False
    disable_hybrid_swa_memory: bool = False
    language_model_only: bool = False
    model_config_parser: str = "auto"
    speculative_algorithm: str | None = None
    is_draft_model: bool = False
    draft_quantization_chosen: bool = False
    longer_context_allowed: bool = False
    """SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN."""
    fp4_experts: bool | None = None
    """SGLANG_DSV4_FP4_EXPERTS where it is set."""
    sm: int = 90
    vendor: str = "nvidia"


def _text(value: object) -> str:
    """The override option as text; a preset may hold it as an object."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True) if value else "{}"


def request_of(r: Resolution, *, draft: bool = False) -> ModelRequest:
    """The request that the launch's present values make, for the target or the draft model."""
    values: dict[str, Any] = {name: r.values.get(name) for name in OPTIONS}
    gpu = r.facts.gpu
    chosen = r.speculative_draft_model_quantization if draft else r.quantization
    chosen = None if chosen == "unquant" else chosen
    return ModelRequest(
        **values,
        overrides=_text(r.json_model_override_args),
        quantization=chosen,
        is_draft_model=draft,
        draft_quantization_chosen=draft and r.chose("speculative_draft_model_quantization"),
        longer_context_allowed=r.env_flag("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
        fp4_experts=(
            r.env_flag("SGLANG_DSV4_FP4_EXPERTS") if "SGLANG_DSV4_FP4_EXPERTS" in r.env else None
        ),
        sm=gpu.sm if gpu else 90,
        vendor=gpu.vendor if gpu else "nvidia",
    )
