"""The live panel: verdict, layers, findings with their fixes, pool and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from kvtui.core.findings import Finding
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.layers import Activity
from kvtui.tui.view import (
    finding_body,
    finding_head,
    layer_lines,
    pool_details,
    pool_line,
    sorted_findings,
    verdict_block,
)
from kvtui.tui.view_memory import memory_block
from kvtui.tui.widgets.lines import Line
from kvtui.tui.widgets.row import Row, one_column
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

ROOMY = 44
"""Lines from which the pool's buffers are listed too."""


class LivePanel(Vertical):
    """All that is known about the launch, the most pressing first."""

    DEFAULT_CSS = """
    LivePanel { height: 1fr; }
    LivePanel #live-verdict { padding: 0 0 1 0; }
    LivePanel #live-layers { padding: 0 0 1 0; }
    LivePanel #live-findings { height: 1fr; min-height: 3; }
    LivePanel #live-memory { padding: 1 0 0 0; max-height: 60%; }
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.g = glyphs
        self.findings: tuple[Finding, ...] = ()
        self._state: tuple[Report, Activity, float] | None = None

    def compose(self) -> ComposeResult:
        """From the verdict down to the memory picture."""
        yield Line(id="live-verdict")
        yield Line(id="live-layers")
        yield RowList(
            id="live-findings",
            layout=_columns,
            mark=self.g.cursor,
            keep_cursor=False,
            empty="nothing found against it",
        )
        yield Line(id="live-memory")

    @property
    def list(self) -> RowList:
        """The findings."""
        return self.query_one("#live-findings", RowList)

    @property
    def current(self) -> Finding | None:
        """The finding under the cursor."""
        row = self.list.current
        if row is None or not row.key.isdigit():
            return None
        return self.findings[int(row.key)]

    def show(self, report: Report, activity: Activity, now: float) -> None:
        """Take a new report in."""
        self._state = (report, activity, now)
        self.findings = sorted_findings(report)
        rows = [self._row(index, finding) for index, finding in enumerate(self.findings)]
        rows += [self._unknown_row(index, reason) for index, reason in enumerate(report.unknowns)]
        self.list.show(rows)
        self._draw()

    def on_resize(self) -> None:
        """Fit the pictures to the new width."""
        self._draw()

    def _row(self, index: int, finding: Finding) -> Row:
        head = finding_head(finding, self.g)
        return Row(str(index), head, below=finding_body(finding, index == 0), indent=2)

    def _unknown_row(self, index: int, reason: str) -> Row:
        head = Content.styled(f"{self.g.unknown} not known", f"bold {Tone.ASK}")
        return Row(f"unknown{index}", (head,), below=Content(reason), indent=2, enabled=False,
                   layout=one_column)  # fmt: skip

    def _draw(self) -> None:
        if self._state is None:
            return
        report, activity, now = self._state
        width = max(20, self.content_size.width or self.size.width or 40)
        self.query_one("#live-verdict", Line).content = verdict_block(report, activity, self.g)
        self.query_one("#live-layers", Line).content = layer_lines(
            report, activity, now, self.g, width
        )
        parts = [pool_line(report, self.g), memory_block(report, self.g, width)]
        if self.size.height >= ROOMY:
            parts.insert(0, Content.assemble(pool_details(report, self.g, width), "\n"))
        memory = Content("\n").join(part for part in parts if part.plain.strip())
        self.query_one("#live-memory", Line).content = memory


def _columns(width: int) -> Sequence[int]:
    rule = min(12, width // 3)
    return (rule, width - rule)
