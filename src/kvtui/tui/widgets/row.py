"""One row of a list: cells that are laid out for a width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.content import Content, Span

from kvtui.tui.words import Tone

GAP = 1
"""Cells between two columns."""


Layout = Callable[[int], Sequence[int]]
"""Column widths for an available width; 0 leaves a column out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: cells on its first line, then `below`, wrapped. Without `enabled` the cursor
    passes over it (headings, notes)."""

    key: str
    cells: tuple[Content, ...]
    below: Content | None = None
    enabled: bool = True
    indent: int = 0
    """Cells by which `below` is set in."""
    layout: Layout | None = None
    """Column widths of this row alone, where it differs from the list's."""


def one_column(width: int) -> Sequence[int]:
    """All of the width for the first cell."""
    return (width,)


def lay_out(cells: Sequence[Content], widths: Sequence[int]) -> Content:
    """Cells side by side, each cut or padded to its column's width."""
    parts: list[Content] = []
    last = max((i for i, w in enumerate(widths) if w), default=-1)
    for index, (cell, width) in enumerate(zip(cells, widths, strict=False)):
        if not width:
            continue
        room = width if index == last else width - GAP
        cut = cell.truncate(room, ellipsis=True) if cell.cell_length > room else cell
        parts.append(cut.pad_right(width - cut.cell_length))
    return Content("").join(parts)


def brighten(line: Content) -> Content:
    """Quiet text made readable on the cursor's background."""
    spans = [
        Span(span.start, span.end, "$kv-cursor-quiet") if span.style == Tone.QUIET else span
        for span in line.spans
    ]
    return Content(line.plain, spans)
