"""Which architectures the release implements, and which run through Transformers instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

OWN = "own"
FALLBACK = "fallback"
REFUSED = "refused"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Architectures:
    """Class names of one release."""

    own: frozenset[str]
    """With an entry point in the release's `srt/models`."""
    fallback: frozenset[str]
    """Only in Transformers, usable as a stand-in."""
    refused: frozenset[str]
    """Only in Transformers, with attention of a kind that the engine can't replace."""


@cache
def architectures() -> Architectures:
    """The release's table."""
    path = resources.files("kvtui.core.tables") / "models-architectures.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    return Architectures(
        frozenset(data["architectures"]),
        frozenset(data["transformers"]),
        frozenset(data["transformers_refused"]),
    )


def support(names: Sequence[str]) -> str:
    """How the release serves a model of these architectures: own | fallback | refused | unknown.

    The engine takes its own class for any of the names first (model_loader/utils.py:198).
    """
    table = architectures()
    if not table.own.isdisjoint(names):
        return OWN
    first = names[0] if names else ""
    if first in table.fallback:
        return FALLBACK
    return REFUSED if first in table.refused else UNKNOWN


def is_known(names: Sequence[str]) -> bool:
    """Whether the engine has a class of its own for one of the names."""
    return support(names) == OWN
