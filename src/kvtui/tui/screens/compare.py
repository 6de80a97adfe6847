"""The present launch beside another one: what differs, and what that does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content

from kvtui.core.compare import compare
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.widgets.row import Row
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


class CompareSheet(Sheet[None]):
    """Rows that differ; `a` shows those that are the same, too."""

    title_text = "Compare"

    BINDINGS = [
        Binding("a", "all", "also what is the same", id="compare.all"),
        Binding("enter", "take", "use the other launch", key_display="⏎", id="compare.take"),
    ]

    DEFAULT_CSS = "CompareSheet RowList { height: 1fr; }"

    def __init__(self, other: Report, name: str) -> None:
        super().__init__()
        self.other = other
        self.name_of_other = name
        self.all_rows = False

    def compose_body(self) -> ComposeResult:
        """One table."""
        yield RowList(
            id="compare-rows",
            layout=_columns,
            mark=self.kv.glyphs.cursor,
            pick_label="use the other launch",
            empty="the two launches come to the same",
        )

    def on_mount(self) -> None:
        """Compare once: both reports are frozen."""
        self.pairs = compare(self.kv.report, self.other)
        self._show()
        self.query_one(RowList).focus()

    def _show(self) -> None:
        titles = ("", "this launch", self.name_of_other)
        head = tuple(Content.styled(title, f"bold {Tone.QUIET}") for title in titles)
        rows = [Row("# head", head, enabled=False)]
        for index, pair in enumerate(self.pairs):
            if pair.differs or self.all_rows:
                tone = Tone.PLAIN if pair.differs else Tone.QUIET
                style = "bold" if pair.differs else Tone.QUIET
                name = Content.styled(pair.name, Tone.KEY if pair.differs else Tone.QUIET)
                cells = (name, Content.styled(pair.left, tone), Content.styled(pair.right, style))
                rows.append(Row(str(index), cells))
        self.query_one(RowList).show(rows if len(rows) > 1 else [])

    def action_all(self) -> None:
        """Show or hide what is the same."""
        self.all_rows = not self.all_rows
        self._show()

    def on_row_list_picked(self) -> None:
        """A row was chosen: the other launch is."""
        self.action_take()

    def action_take(self) -> None:
        """Put the other launch in place of this one; undo brings this one back."""
        self.dismiss(None)
        self.kv.open_draft(self.other.draft)
        self.kv.say(f"{self.name_of_other} is set up; u goes back")


def _columns(width: int) -> Sequence[int]:
    name = min(44, max(20, width * 2 // 5))
    left = (width - name) // 2
    return (name, left, width - name - left)
