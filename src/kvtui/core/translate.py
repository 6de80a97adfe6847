"""Words of older releases and of other servers, and what the engine of today has for them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.findings import Change
from kvtui.core.options import NEWEST, Option, catalogue

NEVER = "never"
"""Stands for the release where no release ever had the word."""


@dataclass(frozen=True, slots=True)
class OldOption:
    """An option that the engine no longer has, or never had."""

    word: str
    to: Mapping[str, Any]
    """Today's options with their values; `=` and `=list` carry the word's values over, `@NAME`
    takes that option's value. Empty: the word is dropped."""
    source: str
    release: str = ""
    """The first release without it."""
    engine: str = ""
    """The other server that has it."""
    why: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    """How its values read today."""

    @property
    def origin(self) -> str:
        """Where the word comes from, as the end of a sentence that begins with the word."""
        if self.engine:
            return f"belongs to {self.engine}"
        if self.release == NEVER:
            return "was never in a release"
        return f"is gone since {self.release}"


@dataclass(frozen=True, slots=True)
class OldValue:
    """A value that an option no longer takes, or never took."""

    options: tuple[str, ...]
    word: str
    to: tuple[str, ...]
    """Today's values, the best guess first; empty where nothing took its place."""
    source: str
    release: str = ""
    engine: str = ""
    why: str = ""

    @property
    def origin(self) -> str:
        """Where the value comes from, as the end of a sentence that begins with it."""
        return f"is {self.engine}'s word" if self.engine else f"is gone since {self.release}"


@dataclass(frozen=True, slots=True)
class Translations:
    """All old and foreign words."""

    options: Mapping[str, OldOption]
    values: Mapping[tuple[str, str], OldValue]

    def option(self, word: str) -> OldOption | None:
        """The entry for a word (`--x` or `--x=y`), also for a plain abbreviation of it."""
        head = word.partition("=")[0]
        found = self.options.get(head)
        if found is not None or not head.startswith("--") or len(head) < 6:
            return found
        longer = [name for name in self.options if name.startswith(head)]
        return self.options[longer[0]] if len(longer) == 1 else None

    def value(self, option: str, value: object) -> OldValue | None:
        """The entry for a value of an option."""
        return self.values.get((option, value)) if isinstance(value, str) else None


def _rows(name: str) -> dict[str, Any]:
    path = resources.files("kvtui.core.tables") / name
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def translations() -> Translations:
    """The tables of old and foreign words."""
    options: dict[str, OldOption] = {}
    values: dict[tuple[str, str], OldValue] = {}
    for name in ("foreign.toml", "renamed.toml"):
        rows = _rows(name)
        for row in rows["option"]:
            options[row["word"]] = OldOption(**row)
        for row in rows["value"]:
            entry = OldValue(**{**row, "options": tuple(row["options"]), "to": tuple(row["to"])})
            for option in entry.options:
                values[option, entry.word] = entry
    return Translations(options, values)


def words_values(group: Sequence[str]) -> tuple[str, ...]:
    """The values that an unknown word was given, behind `=` or after it."""
    _, equals, tail = group[0].partition("=")
    return ((tail,) if equals else ()) + tuple(group[1:])


def changes_for(
    old: OldOption, group: Sequence[str], draft: Draft, version: str = NEWEST
) -> tuple[Change, ...]:
    """The edits that say today what `group` (the word with its values) meant; drops the word.

    A value that today's option would refuse is left out rather than carried over.
    """
    known = catalogue(version).options
    values = tuple(old.values.get(value, value) for value in words_values(group))
    changes = [Change(f"unknown:{group[0]}")]
    for name, meant in old.to.items():
        if name.startswith("env:"):
            changes.append(Change(name, meant))
            continue
        option = known[name]
        value = _meant(option, meant, values, draft, known)
        if value is not None and option.problem(value) is None:
            changes.append(Change(name, value))
    return tuple(changes)


def _meant(
    option: Option,
    meant: Any,
    values: tuple[str, ...],
    draft: Draft,
    known: Mapping[str, Option],
) -> Any:
    if meant == "=list":
        return read_values(option, values)
    if meant == "=":
        return read_values(option, values[:1])
    if isinstance(meant, str) and meant.startswith("@"):
        other = meant[1:]
        return draft.options.get(other, known[other].default)
    return meant


def read_values(option: Option, words: Sequence[str]) -> Any:
    """The value that words give an option, or None where it can't be read from them."""
    if option.is_bool:
        return True
    old = translations().value(option.name, words[0] if words else None)
    if old is not None and old.to:
        return old.to[0]
    try:
        if option.many:
            return [option.read(word) for word in words] or None
        return option.read(words[0]) if words else None
    except ValueError:
        return None
