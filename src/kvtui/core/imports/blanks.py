"""Values that could not be known: they ride along inside words and end as named blanks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvtui.core.argv import parse
from kvtui.core.draft import Draft, unknown_groups

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Characters that no text may contain by the standard: they mark a blank inside a word."""

_BLANK = re.compile(f"{_OPEN}(.*?){_CLOSE}", re.DOTALL)
_MARKS = re.compile(f"[{_OPEN}{_CLOSE}]")


@dataclass(frozen=True, slots=True)
class Blank:
    """A choice whose value the source does not tell."""

    option: str
    """SGLang's field name, `env:NAME`, or the word itself."""
    text: str
    """As the source has it: `${MODEL_PATH}`."""


def blank(name: str) -> str:
    """A word's part that stands for an unknown value; `name` is how the source writes it."""
    return f"{_OPEN}{name}{_CLOSE}"


def without_marks(text: str) -> str:
    """Text from outside, which must not bring marks of its own."""
    return _MARKS.sub("", text)


def has_blank(value: Any) -> bool:
    """True where a value or anything inside it is unknown."""
    if isinstance(value, str):
        return _OPEN in value
    if isinstance(value, dict):
        return any(map(has_blank, value.values()))
    return isinstance(value, list | tuple) and any(map(has_blank, value))


def shown(value: Any) -> str:
    """A value with its blanks as the source writes them."""
    if isinstance(value, list | tuple):
        return " ".join(map(shown, value))
    return _BLANK.sub(r"\1", str(value))


@dataclass(frozen=True, slots=True)
class Found:
    """One launch in a source."""

    draft: Draft
    title: str
    """Where it was found: `service server`, `line 12`."""
    blanks: tuple[Blank, ...] = ()


def found_of(
    words: list[str], env: Mapping[str, str], title: str, dropped: frozenset[str] = frozenset()
) -> Found:
    """The launch of words that may hold blanks; blanks for `dropped` options are not asked."""
    draft = parse(words)
    env = {**env, **draft.env}
    blanks = [Blank(n, shown(v)) for n, v in draft.options.items() if has_blank(v)]
    blanks += [Blank(f"env:{n}", shown(v)) for n, v in env.items() if has_blank(v)]
    unknown: list[str] = []
    for group in unknown_groups(draft.unknown):
        if has_blank(list(group)):
            blanks.append(Blank(shown(group[0]), shown(list(group))))
        else:
            unknown += group
    gone = {b.option for b in blanks}
    kept = replace(
        draft,
        options={n: v for n, v in draft.options.items() if n not in gone},
        env={n: v for n, v in env.items() if f"env:{n}" not in gone},
        unknown=tuple(unknown),
        spelled={n: v for n, v in draft.spelled.items() if n not in gone},
    )
    return Found(kept, title, tuple(b for b in blanks if b.option not in dropped))
