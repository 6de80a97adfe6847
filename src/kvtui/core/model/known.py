"""Which architectures the release implements."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib import resources


@cache
def known_architectures() -> frozenset[str]:
    """Class names with an entry point in the release's `srt/models`."""
    path = resources.files("kvtui.core.tables") / "models-architectures.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    return frozenset(data["architectures"])


def is_known(architectures: Iterable[str]) -> bool:
    """Whether the engine has a class of its own for one of the names."""
    return not known_architectures().isdisjoint(architectures)
