"""Declared per-model values: one row per reason, applied together as the engine does.

The engine collects every declaration of an architecture before it applies the first
(`collect_model_override_declarations`, overrides.py:277), so a row never sees another's value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvtui.core.resolution import Resolution

Values = Mapping[str, Any]

NEMOTRON_H = "NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Omni_Reasoning_V3"
MINIMAX_M3 = "MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration"


def always(r: Resolution) -> bool:
    """The condition of a row that needs none."""
    return True


@dataclass(frozen=True, slots=True)
class Override:
    """What an architecture sets, when, and why."""

    archs: frozenset[str]
    why: str
    """Reads after "because"."""
    values: Values | Callable[[Resolution], Values]
    source: str
    when: Callable[[Resolution], bool] = always

    def declared(self, r: Resolution) -> Values:
        """The values that this row declares on `r`, empty where its condition fails."""
        if not self.when(r):
            return {}
        return self.values(r) if callable(self.values) else self.values


def row(
    archs: str | Iterable[str],
    why: str,
    values: Values | Callable[[Resolution], Values],
    source: str,
    when: Callable[[Resolution], bool] = always,
) -> Override:
    """A row for one architecture, or several separated by spaces."""
    names = archs.split() if isinstance(archs, str) else archs
    return Override(frozenset(names), why, values, f"arg_groups/model_overrides/{source}", when)


def by_architecture(*tables: Iterable[Override]) -> Mapping[str, tuple[Override, ...]]:
    """The rows of each architecture, in table order."""
    found: dict[str, list[Override]] = {}
    for table in tables:
        for one in table:
            for name in one.archs:
                found.setdefault(name, []).append(one)
    return {name: tuple(rows) for name, rows in found.items()}
