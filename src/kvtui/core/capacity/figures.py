"""A number with how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["exact", "computed", "estimated"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A value, how it came about, and its likely relative error for estimates.

    exact: read from a file, an option or the GPU. computed: follows from exact figures by the
    engine's own arithmetic. estimated: rests on a model of something not known beforehand.
    """

    value: float
    kind: Kind = "computed"
    error: float = 0.0
    """Likely relative error, 0.02 for plus or minus 2 %; 0 unless estimated."""

    @property
    def whole(self) -> int:
        """The value as an integer, rounded down."""
        return int(self.value)

    @property
    def low(self) -> float:
        """The value less its likely error."""
        return self.value * (1 - self.error)

    @property
    def high(self) -> float:
        """The value plus its likely error."""
        return self.value * (1 + self.error)


def exact(value: float) -> Figure:
    """A figure that was read, not worked out."""
    return Figure(value, "exact")


def estimated(value: float, spread: float) -> Figure:
    """An estimate with a likely error of `spread` in the value's own unit."""
    return Figure(value, "estimated", abs(spread / value) if value else 0.0)
