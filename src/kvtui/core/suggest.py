"""The nearest right spelling of a word that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache

from kvtui.core.options import NEWEST, Option, catalogue

CUTOFF = 0.72
"""Likeness below which a suggestion would only puzzle."""


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "").replace(".", "")


def nearest(word: str, known: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """The known word that is most like `word`, or None; case, dashes and dots don't count."""
    names = {_plain(name): name for name in known}
    found = difflib.get_close_matches(_plain(word), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else None


@lru_cache(maxsize=1024)
def nearest_flag(word: str, version: str = NEWEST) -> str | None:
    """The engine's flag that is most like `word`."""
    return nearest(word.partition("=")[0], catalogue(version).by_flag)


@lru_cache(maxsize=1024)
def nearest_name(word: str, version: str = NEWEST) -> str | None:
    """The option's field name that is most like `word`."""
    options = catalogue(version).options.values()
    return nearest(word, (o.name for o in options if o.kind != "internal"))


def nearest_choice(option: Option, value: object) -> str | None:
    """The choice of an option that is most like a value."""
    choices = [str(choice) for choice in option.choices or ()]
    return nearest(str(value), choices, 0.5) if choices else None
