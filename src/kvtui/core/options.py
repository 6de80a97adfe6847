"""Every option of the engine, from a table generated per release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

NEWEST = "0.5.23"
"""The release that the rules describe."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option as the engine's parser declares it."""

    name: str
    """Field name, `kv_cache_dtype`."""
    flags: tuple[str, ...]
    """Spellings, the main one first; empty for internal fields."""
    kind: str
    """value | flag | switch | deprecated_flag | deprecated_const | lora_paths | internal."""
    group: str
    help: str
    type: str = "str"
    nargs: str | None = None
    choices: tuple[Any, ...] | None = None
    default: Any = None
    const: Any = None
    required: bool = False
    new_flag: str | None = None

    @property
    def flag(self) -> str:
        """The main spelling."""
        return self.flags[0] if self.flags else "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All options of one release."""

    version: str
    options: Mapping[str, Option]
    by_flag: Mapping[str, Option]
    defaults: Mapping[str, Any]


@cache
def catalogue(version: str = NEWEST) -> Catalogue:
    """The options of a stored release; raises KeyError for one that is not stored."""
    path = resources.files("kvtui.core.tables") / f"options-{version}.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise KeyError(version) from None
    options: dict[str, Option] = {}
    by_flag: dict[str, Option] = {}
    for row in data["options"]:
        known = options.get(row["name"])
        fields = {key: tuple(v) if isinstance(v, list) and key in ("flags", "choices") else v
                  for key, v in row.items()}  # fmt: skip
        option = Option(**fields)
        if known is None:
            options[option.name] = option
        for flag in option.flags:
            by_flag[flag] = option
    defaults = {name: option.default for name, option in options.items()}
    return Catalogue(
        data["engine_version"],
        MappingProxyType(options),
        MappingProxyType(by_flag),
        MappingProxyType(defaults),
    )
