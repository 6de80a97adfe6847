"""A question with yes or no."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from kvtui.tui.widgets.lines import KeyBar, Line


class ConfirmSheet(ModalScreen[bool]):
    """Answers True for yes."""

    BINDINGS = [
        Binding("y,enter", "answer(True)", "yes", key_display="y"),
        Binding("n,escape", "answer(False)", "no", key_display="n"),
    ]

    DEFAULT_CSS = """
    ConfirmSheet { align: center middle; background: $background 60%; }
    ConfirmSheet > Vertical {
        width: 70; max-width: 100%; height: auto; padding: 1 2 0 2; background: $surface;
        border: round $warning;
    }
    ConfirmSheet KeyBar { margin: 1 0 0 0; }
    """

    def __init__(self, question: str, detail: str = "") -> None:
        super().__init__()
        self.question = question
        self.detail = detail

    def compose(self) -> ComposeResult:
        """Question, detail, keys."""
        with Vertical():
            line = Line()
            line.content = Content.assemble((self.question, "bold"), f"\n{self.detail}".rstrip())
            yield line
            yield KeyBar()

    def action_answer(self, yes: bool) -> None:
        """Answer."""
        self.dismiss(yes)
