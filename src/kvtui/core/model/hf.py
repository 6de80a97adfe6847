"""A Hugging Face configuration as the engine reads it: attributes, with nested configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SUB_CONFIGS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "talker_config",
    "vision_config",
    "audio_config",
    "sound_config",
)
"""Keys whose object value is a configuration of its own, not a plain dictionary."""


class HfConfig:
    """One configuration. A missing attribute raises AttributeError, so that
    `getattr(config, name, default)` reads as it does on the engine's object.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        own: dict[str, Any] = {}
        for key, value in values.items():
            nested = key in SUB_CONFIGS and isinstance(value, Mapping)
            own[key] = HfConfig(value) if nested else value
        self._values = own

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"HfConfig({self.get('model_type')!r}, {len(self._values)} keys)"

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `name`, or `default` where the configuration has no such key."""
        return self._values.get(name, default)

    def put(self, name: str, value: Any) -> None:
        """Set a value; only while the configuration is being built."""
        self._values[name] = value

    def fill(self, name: str, value: Any) -> None:
        """Set a value where the configuration has none."""
        self._values.setdefault(name, value)

    def drop(self, name: str) -> None:
        """Take a key out; only while the configuration is being built."""
        self._values.pop(name, None)

    @property
    def values(self) -> Mapping[str, Any]:
        """All keys and values, nested configurations as `HfConfig`."""
        return self._values

    def get_text_config(self) -> HfConfig:
        """The language part of a multimodal configuration, or the configuration itself."""
        for name in ("text_config", "text_encoder", "decoder", "generator"):
            nested = self.get(name)
            if isinstance(nested, HfConfig):
                return nested
        return self
