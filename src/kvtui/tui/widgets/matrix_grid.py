"""A grid of verdicts with a cell cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.style import Style

from kvtui.core.findings import Outcome
from kvtui.core.matrix import Cell
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.widgets.row import Row
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import OUTCOME_TONE, Tone, count_text

LABEL = 24
MIN_CELL, MAX_CELL = 8, 15


class MatrixGrid(RowList):
    """Rows are backends, columns KV dtypes; arrows move by cells."""

    BINDINGS = [
        Binding("left,h", "column(-1)", "left", show=False),
        Binding("right,l", "column(1)", "right", show=False),
    ]

    column: reactive[int] = reactive(0, init=False)

    class CellMoved(Message):
        """The cursor came to another cell."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(layout=self._widths, mark=glyphs.cursor, id=id)
        self.g = glyphs
        self.backends: tuple[str, ...] = ()
        self.dtypes: tuple[str, ...] = ()
        self.cells: Mapping[tuple[str, str], Cell] = {}

    @property
    def cell(self) -> tuple[str, str] | None:
        """(backend, dtype) under the cursor."""
        row = self.current
        if row is None or not self.dtypes:
            return None
        return row.key, self.dtypes[min(self.column, len(self.dtypes) - 1)]

    def fill(
        self,
        backends: Sequence[str],
        dtypes: Sequence[str],
        cells: Mapping[tuple[str, str], Cell],
        select: tuple[str, str] | None = None,
    ) -> None:
        """Take the cells in that are known so far."""
        self.backends, self.dtypes, self.cells = tuple(backends), tuple(dtypes), cells
        if select is not None and select[1] in self.dtypes:
            self.set_reactive(MatrixGrid.column, self.dtypes.index(select[1]))
        self.show(self._grid_rows(), select=select[0] if select else None)

    def _grid_rows(self) -> list[Row]:
        head = [Content("")]
        head += [
            Content.styled(name, "bold underline" if i == self.column else Tone.QUIET)
            for i, name in enumerate(self.dtypes)
        ]
        rows = [Row("# head", tuple(head), enabled=False)]
        for backend in self.backends:
            cells = [Content.styled(backend, "bold" if backend == "auto" else "")]
            cells += [self._cell(backend, i) for i in range(len(self.dtypes))]
            rows.append(Row(backend, tuple(cells)))
        return rows

    def _cell(self, backend: str, column: int) -> Content:
        cell = self.cells.get((backend, self.dtypes[column]))
        at = self.current is not None and self.current.key == backend and column == self.column
        text = cell_text(cell, self.g)
        tone = Tone.QUIET if cell is None else OUTCOME_TONE[cell.outcome]
        if cell is not None and cell.rewritten and cell.outcome is Outcome.STARTS:
            tone = Tone.WARN
        content = Content.styled(text, f"{tone} reverse bold" if at else tone)
        return content.stylize(Style.from_meta({"column": column}))

    def _widths(self, width: int) -> Sequence[int]:
        count = max(1, len(self.dtypes))
        label = min(LABEL, max(12, width - count * MIN_CELL))
        cell = min(MAX_CELL, max(MIN_CELL, (width - label) // count))
        return (label, *([cell] * count))

    def _redraw(self) -> None:
        self.set_reactive(RowList.rows, tuple(self._grid_rows()))
        self._measure()
        self.refresh()
        self.post_message(self.CellMoved())

    def watch_column(self) -> None:
        """Another column."""
        self._redraw()

    def watch_cursor(self, before: int, now: int) -> None:
        """Another row: the marked cell moves with it."""
        super().watch_cursor(before, now)
        self._redraw()

    def action_column(self, by: int) -> None:
        """Move by columns."""
        self.column = min(max(self.column + by, 0), max(0, len(self.dtypes) - 1))

    def on_click(self, event: events.Click) -> None:
        """A click goes to the cell; a second one takes it."""
        column = event.style.meta.get("column")
        row = event.style.meta.get("row", -1)
        same = row == self.cursor and column == self.column
        event.stop()
        if isinstance(column, int):
            self.column = column
        if 0 <= row < len(self.rows) and self.rows[row].enabled:
            self.cursor = row
        if same:
            self.action_pick()


def cell_text(cell: Cell | None, g: Glyphs) -> str:
    """A cell in at most 8 characters: verdict, then tokens or the rule that decides."""
    if cell is None:
        return g.stale
    sign = {Outcome.STARTS: g.ok, Outcome.FAILS: g.bad, Outcome.UNKNOWN: g.unknown}[cell.outcome]
    if cell.outcome is Outcome.STARTS:
        if cell.rewritten:
            sign = g.warn
        return f"{sign} {count_text(cell.tokens)}" if cell.tokens else f"{sign} starts"
    return f"{sign} {cell.rule or ''}".rstrip()
