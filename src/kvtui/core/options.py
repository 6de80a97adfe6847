"""Every option of the engine, from a table generated per release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from kvtui.core.values import JSON_TYPES, READERS, shown, word_problem

NEWEST = "0.5.23"
"""The release that the rules describe."""

FLAG_KINDS = frozenset(("flag", "deprecated_flag"))
"""Kinds that are written without a value and mean true."""


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

    @property
    def takes_value(self) -> bool:
        """True where a word follows the flag."""
        return self.kind not in FLAG_KINDS and self.kind != "switch"

    @property
    def is_bool(self) -> bool:
        """True where the value is true or false."""
        return self.kind in FLAG_KINDS or self.kind == "switch"

    @property
    def many(self) -> bool:
        """True where the value is a list of words."""
        return self.nargs in ("+", "*")

    @property
    def is_json(self) -> bool:
        """True where the value is a JSON object or list."""
        return self.type in JSON_TYPES

    @property
    def deprecated(self) -> bool:
        """True where the engine itself announces the option's end."""
        return self.kind.startswith("deprecated") or self.help.lower().startswith(
            ("deprecated", "(deprecated", "[deprecated")
        )

    @property
    def reader(self) -> str:
        """Name of the converter of one word."""
        return "lora" if self.kind == "lora_paths" else self.type

    def read(self, word: str) -> Any:
        """The value of one word of the command line; raises ValueError saying what was expected.

        A value that is not among the choices is returned: `problem` tells.
        """
        return READERS[self.reader](word)

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value for this option, or None: the single validation."""
        if self.kind == "internal":
            return None
        if self.is_bool:
            return None if isinstance(value, bool) else f"{shown(value)} is not true or false"
        if not self.many:
            return self._word_problem(value)
        if not isinstance(value, list | tuple):
            return f"{shown(value)} is not a list"
        if self.nargs == "+" and not value:
            return "the list is empty"
        return next(filter(None, map(self._word_problem, value)), None)

    def _word_problem(self, value: Any) -> str | None:
        found = word_problem(self.reader, value)
        if found is None and self.choices is not None and value not in self.choices:
            return f"{shown(value)} is not among {', '.join(map(str, self.choices))}"
        return found

    @property
    def expected(self) -> str:
        """What the option takes, in a few words."""
        if self.is_bool:
            return "true or false"
        if self.choices is not None:
            kind = "one of " + ", ".join(map(str, self.choices))
        else:
            kind = _EXPECTED.get(self.reader, "text")
        return f"a list of: {kind}" if self.many else kind


_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "human_readable_int": "a whole number, also as 64k or 1Mi",
    "loads": "a JSON object",
    "json_list_type": "a JSON list",
    "parse_cuda_graph_config_arg": "a JSON object with decode and prefill",
    "lora": "path, NAME=PATH or JSON",
}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All options of one release."""

    version: str
    options: Mapping[str, Option]
    by_flag: Mapping[str, Option]
    defaults: Mapping[str, Any]

    def starting_with(self, prefix: str) -> tuple[str, ...]:
        """The spellings that an abbreviation may stand for."""
        return tuple(flag for flag in self.by_flag if flag.startswith(prefix))


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
        fields: dict[str, Any] = {
            key: tuple(value) if key in ("flags", "choices") else value
            for key, value in row.items()
        }
        option = Option(**fields)
        options.setdefault(option.name, option)
        for flag in option.flags:
            by_flag[flag] = option
    defaults = {name: option.default for name, option in options.items()}
    return Catalogue(
        data["engine_version"],
        MappingProxyType(options),
        MappingProxyType(by_flag),
        MappingProxyType(defaults),
    )


@cache
def stored_versions() -> tuple[str, ...]:
    """Releases whose options are stored, oldest first."""
    names = (item.name for item in resources.files("kvtui.core.tables").iterdir())
    found = [n.removeprefix("options-").removesuffix(".json") for n in names
             if n.startswith("options-") and n.endswith(".json")]  # fmt: skip
    return tuple(sorted(found, key=lambda version: [int(p) for p in version.split(".")]))
