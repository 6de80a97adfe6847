"""Attention backend by KV dtype: every cell judged, the cursor's cell explained and taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen

from kvtui.core.findings import Finding, Outcome
from kvtui.core.matrix import (
    AUTO,
    COLUMN,
    ROW,
    Cell,
    Matrix,
    as_markdown,
    axes,
    cell_changes,
    cell_of,
)
from kvtui.tui.view import hardware_text, model_name
from kvtui.tui.widgets.lines import KeyBar, Line, TopLine
from kvtui.tui.widgets.matrix_grid import MatrixGrid
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import OUTCOME_TONE, Tone, cell_text, count_text

if TYPE_CHECKING:
    from kvtui.tui.app import KvtuiApp

PAGES = (None, 1, 16, 32, 64, 128)
SLICE = 0.02
"""Seconds of judging between two looks at the keyboard."""


class MatrixScreen(Screen[None]):
    """Rows that never start are named below; `a` shows them."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (96, "-medium"), (120, "-wide"), (170, "-huge")]

    BINDINGS = [
        Binding("enter", "take", "use this cell", key_display="⏎", id="matrix.take"),
        Binding("w", "why", "why", id="matrix.why"),
        Binding("z", "page", "page size", id="matrix.page"),
        Binding("a", "all", "all rows", id="matrix.all"),
        Binding("c", "copy", "copy as Markdown", id="matrix.copy"),
        Binding("escape,m,q", "close", "close", id="matrix.close", key_display="Esc"),
    ]

    DEFAULT_CSS = """
    MatrixScreen #matrix { padding: 1 1 0 1; height: 1fr; }
    MatrixScreen MatrixGrid { height: 1fr; }
    MatrixScreen #matrix-about {
        height: 7; padding: 0 1; border-top: solid $border-blurred;
    }
    """

    @property
    def kv(self) -> KvtuiApp:
        """The app, typed."""
        return cast("KvtuiApp", self.app)

    def compose(self) -> ComposeResult:
        """Top line, grid, the cell's text, keys."""
        yield TopLine()
        with Vertical(id="matrix"):
            yield MatrixGrid(self.kv.glyphs, id="matrix-grid")
        yield Line(id="matrix-about")
        yield KeyBar()

    def on_mount(self) -> None:
        """Judge all cells."""
        self.page: int | None = None
        self.all_rows = False
        self.cells: dict[tuple[str, str], Cell] = {}
        self.shared = ""
        self.grid.focus()
        self.judge()

    @property
    def grid(self) -> MatrixGrid:
        """The grid."""
        return self.query_one(MatrixGrid)

    @work(exclusive=True, group="matrix", exit_on_error=False)
    async def judge(self) -> None:
        """Judge cell by cell, the keyboard in between; rows settle when all are known."""
        self.cells = {}
        self.shared = ""
        errors: dict[tuple[str, str], tuple[Finding, ...]] = {}
        backends, dtypes = axes()
        report = self.kv.report
        options = report.draft.options
        here = (str(options.get(ROW) or AUTO), str(options.get(COLUMN) or AUTO))
        self._title()
        self.grid.fill(backends, dtypes, self.cells, here)
        until = time.perf_counter() + SLICE
        for backend in backends:
            for dtype in dtypes:
                changes = cell_changes(report.draft, backend, dtype, self.page)
                found = self.kv.session.try_out(changes)
                self.cells[backend, dtype] = cell_of(found, backend, dtype, self.page, changes)
                errors[backend, dtype] = found.errors
                if time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + SLICE
        self._leave_out_shared(errors)
        self._settle(here)

    def _leave_out_shared(self, errors: Mapping[tuple[str, str], tuple[Finding, ...]]) -> None:
        """What fails in every cell says nothing of backend and dtype: it is named once, below."""
        keys = [{(f.rule, f.option) for f in found} for found in errors.values()]
        shared = set.intersection(*keys) if keys else set()
        if not shared:
            return
        first = next(iter(errors.values()))
        self.shared = "; ".join(f.rule for f in first if (f.rule, f.option) in shared)
        for at, found in errors.items():
            left = [f for f in found if (f.rule, f.option) not in shared]
            outcome = Outcome.FAILS if left else Outcome.STARTS
            rule, why = (left[0].rule, left[0].message) if left else (None, "")
            self.cells[at] = replace(self.cells[at], outcome=outcome, rule=rule, why=why)

    def _settle(self, select: tuple[str, str] | None = None) -> None:
        _, dtypes = axes()
        self.grid.fill(self._rows(), dtypes, self.cells, select or self.grid.cell)
        self._about()

    def _rows(self) -> list[str]:
        backends, dtypes = axes()
        if self.all_rows or not self.cells:
            return list(backends)
        return [
            backend
            for backend in backends
            if backend == AUTO
            or any(self.cells[backend, d].outcome is not Outcome.FAILS for d in dtypes)
        ]

    def _title(self) -> None:
        report, g = self.kv.report, self.kv.glyphs
        top = self.query_one(TopLine)
        top.left = Content.assemble(
            ("matrix ", f"bold {Tone.KEY}"), (model_name(report), "bold"),
            f" {g.dot} {hardware_text(report, g)}",
        )  # fmt: skip
        top.right = Content.styled(f"page size {self.page or 'auto'} {g.dot} tokens", Tone.QUIET)

    @on(MatrixGrid.CellMoved)
    def _moved(self) -> None:
        self._about()

    def _about(self) -> None:
        at = self.grid.cell
        cell = self.cells.get(at) if at else None
        line = self.query_one("#matrix-about", Line)
        if cell is None:
            line.content = Content.styled("judging …", Tone.QUIET)
            return
        names = Content.assemble((f"{cell.backend} {self.kv.glyphs.times} {cell.dtype}  ", "bold"))
        tone = OUTCOME_TONE[cell.outcome]
        if cell.outcome is Outcome.STARTS:
            parts = [f"runs {_pair(cell)} with {cell.runs_dtype}, page {cell.runs_page}"]
            if cell.bytes_per_token:
                parts.append(f"{cell_text(cell.bytes_per_token)} per token")
            if cell.tokens:
                parts.append(f"{count_text(cell.tokens)} tokens")
            body = Content.styled(", ".join(parts), tone if not cell.rewritten else Tone.WARN)
        else:
            body = Content.assemble((f"{cell.rule or 'not known'} ", f"bold {tone}"), cell.why)
        hidden = self._hidden()
        never = f"never start here: {', '.join(hidden)}" if hidden else ""
        shared = f"in every cell, whatever is chosen here: {self.shared}" if self.shared else ""
        line.content = Content("\n").join(
            part
            for part in (
                Content.assemble(names, body),
                Content.styled(shared, Tone.BAD),
                Content.styled(never, Tone.QUIET),
            )
            if part.plain
        )

    def _hidden(self) -> list[str]:
        shown = set(self._rows())
        return [backend for backend in axes()[0] if backend not in shown]

    @on(RowList.Picked)
    def _picked(self, event: RowList.Picked) -> None:
        event.stop()
        self.action_take()

    def action_take(self) -> None:
        """Put the cell's choices into the launch and go back."""
        at = self.grid.cell
        cell = self.cells.get(at) if at else None
        if cell is None:
            return
        self.dismiss(None)
        self.kv.edit(cell.changes)
        self.kv.say(f"{cell.backend} with {cell.dtype}; u takes it back")

    def action_why(self) -> None:
        """The page of the rule that decides the cell."""
        from kvtui.tui.screens.why import WhySheet

        at = self.grid.cell
        cell = self.cells.get(at) if at else None
        report = self.kv.session.try_out(cell.changes) if cell else None
        if report is None or not report.findings:
            self.kv.say("this cell starts; nothing stands against it")
            return
        self.app.push_screen(WhySheet(report.findings[0], None, report))

    def action_page(self) -> None:
        """The next page size."""
        self.page = PAGES[(PAGES.index(self.page) + 1) % len(PAGES)]
        self.judge()

    def action_all(self) -> None:
        """Show or hide the rows that never start."""
        self.all_rows = not self.all_rows
        self._settle()

    def action_copy(self) -> None:
        """Copy as Markdown."""
        backends, dtypes = axes()
        if len(self.cells) < len(backends) * len(dtypes):
            return
        shown = self._rows()
        never = tuple((b, self.cells[b, AUTO].why) for b in self._hidden())
        matrix = Matrix(self.page, tuple(shown), dtypes, self.cells, never)
        self.kv.copy_text(as_markdown(matrix) + "\n", "matrix")

    def action_close(self) -> None:
        """Back to the set-up."""
        self.dismiss(None)


def _pair(cell: Cell) -> str:
    prefill, decode = cell.runs
    return str(prefill) if prefill == decode else f"{prefill} (prefill) + {decode} (decode)"
