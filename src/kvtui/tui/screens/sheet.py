"""Sheets: modal screens with a title, a body and the keys that work in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input

from kvtui.tui.widgets.lines import KeyBar, Line
from kvtui.tui.widgets.row import Layout, Row, one_column
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone

if TYPE_CHECKING:
    from kvtui.tui.app import KvtuiApp

T = TypeVar("T")


class Sheet(ModalScreen[T], Generic[T]):
    """A modal over the present screen; at 80x24 it takes all of it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (96, "-medium"), (120, "-wide"), (170, "-huge")]

    BINDINGS = [Binding("escape", "close", "close", id="sheet.close")]

    DEFAULT_CSS = """
    Sheet { align: center middle; background: $background 60%; }
    Sheet > #sheet {
        width: 92%; max-width: 120; height: 86%; background: $surface;
        border: round $border; border-title-color: $text-primary; border-title-style: bold;
        border-subtitle-color: $kv-quiet; padding: 0 1;
    }
    Sheet.-narrow > #sheet { width: 100%; height: 100%; border: none;
        border-top: solid $border; padding: 0; }
    Sheet KeyBar { dock: bottom; }
    """

    title_text = ""

    @property
    def kv(self) -> KvtuiApp:
        """The app, typed."""
        return cast("KvtuiApp", self.app)

    def compose(self) -> ComposeResult:
        """The frame around the body."""
        with Vertical(id="sheet") as frame:
            frame.border_title = self.title_text
            yield from self.compose_body()
            yield KeyBar()

    def compose_body(self) -> ComposeResult:
        """What a sheet shows; each kind of sheet has its own."""
        yield from ()

    def action_close(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)

    def action_scroll(self, by: int) -> None:
        """Scroll a sheet of text by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


class FilterField(Input):
    """A field over a list: typing filters, the arrows and Enter go to the list."""

    BINDINGS = [
        Binding("down", "to_list('cursor(1)')", show=False),
        Binding("up", "to_list('cursor(-1)')", show=False),
        Binding("pagedown", "to_list('page(1)')", show=False),
        Binding("pageup", "to_list('page(-1)')", show=False),
        Binding("enter", "to_list('pick')", "choose", key_display="⏎", show=True),
    ]

    async def action_to_list(self, action: str) -> None:
        """Let the list act, keeping the focus here."""
        await self.app.run_action(action, self.screen.query_one("#pick-rows", RowList))


class PickSheet(Sheet[T]):
    """A list with a filter over it and a line about the row under the cursor below it."""

    AUTO_FOCUS = "FilterField"
    placeholder = "type to filter"
    columns: Layout = staticmethod(one_column)
    empty = "nothing matches"

    DEFAULT_CSS = """
    PickSheet #pick-filter { height: 1; margin: 0 0 1 0; }
    PickSheet #pick-rows { height: 1fr; }
    PickSheet #pick-about { height: auto; max-height: 8; padding: 1 0 0 0; }
    """

    def compose_body(self) -> ComposeResult:
        """Filter, list, text."""
        yield FilterField(id="pick-filter", placeholder=self.placeholder)
        yield RowList(
            id="pick-rows",
            classes="-led",
            layout=self.columns,
            mark=self.kv.glyphs.cursor,
            empty=self.empty,
        )
        yield Line(id="pick-about")

    def on_mount(self) -> None:
        """Fill the list."""
        self.refill()

    @property
    def text(self) -> str:
        """What was typed."""
        return self.query_one(FilterField).value.strip()

    @property
    def list(self) -> RowList:
        """The list."""
        return self.query_one("#pick-rows", RowList)

    def refill(self, select: str | None = None) -> None:
        """Show the rows for the present text."""
        self.list.show(self.rows(self.text), keep=False, select=select)
        self._show_about()

    def rows(self, text: str) -> Sequence[Row]:
        """The rows that match `text`."""
        raise NotImplementedError

    def about(self, key: str) -> Content:
        """What to say of a row."""
        return Content("")

    def picked(self, key: str) -> None:
        """A row was chosen."""
        raise NotImplementedError

    @on(Input.Changed, "#pick-filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.refill()

    @on(RowList.Moved, "#pick-rows")
    def _moved(self, event: RowList.Moved) -> None:
        event.stop()
        self._show_about()

    def _show_about(self) -> None:
        row = self.list.current
        self.query_one("#pick-about", Line).content = self.about(row.key) if row else Content("")

    @on(RowList.Picked, "#pick-rows")
    def _picked(self, event: RowList.Picked) -> None:
        event.stop()
        self.picked(event.row.key)


def matches(text: str, *fields: str) -> bool:
    """True where every word of `text` occurs in one of the fields, case ignored."""
    where = " ".join(fields).lower().replace("_", "-")
    return all(word in where for word in text.lower().replace("_", "-").split())


def space() -> Row:
    """An empty row between groups."""
    return Row("# ", (), enabled=False)


def heading(text: str) -> Row:
    """A row that only titles those below it."""
    return Row(f"# {text}", (Content.styled(text, f"bold {Tone.QUIET}"),), enabled=False,
               layout=one_column)  # fmt: skip
