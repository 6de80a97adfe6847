"""A checkpoint's configuration in the engine's terms (`srt/configs/model_config.py`, 0.5.23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

ModelConfig = Any


def model_of(r: Resolution) -> ModelConfig:
    """The target model's configuration under the launch's options; raises MissingFact."""
    raise NotImplementedError
