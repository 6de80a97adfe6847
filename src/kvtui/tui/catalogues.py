"""The offline catalogues as the pickers show them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be judged without having it."""

    name: str
    note: str


@cache
def known_models() -> tuple[KnownModel, ...]:
    """All models of the catalogue, in its order."""
    try:
        from kvtui.core.model.catalogue import models
    except ImportError:
        return ()
    return tuple(KnownModel(model.name, " · ".join(model.tags)) for model in models())
