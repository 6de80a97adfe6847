"""The keys of a screen, read from the very bindings that act."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen

from kvtui.tui.screens.pages import card
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.widgets.lines import Line
from kvtui.tui.words import Tone

MOVING = (
    ("↑ ↓  j k", "move"),
    ("⏎", "open, choose"),
    ("→ l / ← h Esc", "into the editor / back"),
    ("1 … 6", "open a step"),
    ("Tab", "next pane"),
    ("mouse", "click a row to select it, again to choose; click the keys below"),
)
LEGEND = (
    ("ok", "starts, or this value adds no error"),
    ("warn", "starts, but not as asked"),
    ("bad", "fails, or this value would"),
    ("unknown", "can't be known from here"),
    ("none", "not run, not used"),
    ("stale", "running, or the last answer was for other settings"),
    ("differ", "rules and engine disagree: the engine decides"),
)


class HelpSheet(Sheet[None]):
    """Keys, signs, and where things are kept."""

    title_text = "Help"
    BINDINGS = [
        Binding("question_mark,f1,q", "close", "close", show=False),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False),
    ]
    DEFAULT_CSS = "HelpSheet VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }"

    def __init__(self, about: Screen[object]) -> None:
        super().__init__()
        self.keys = keys_of(about)

    def compose_body(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll():
            yield Line(id="help-text")

    def on_mount(self) -> None:
        """Write the page."""
        g = self.kv.glyphs
        signs = [(getattr(g, name), text) for name, text in LEGEND]
        parts = [
            Content("Choose step by step; every edit is judged at once. The verdict is built from "
                    "three layers: rules, a pool that is really built, and SGLang's own answer."),
            _titled("Moving", MOVING),
            _titled("Keys here", self.keys),
            _titled("Signs", signs),
            _titled("Anywhere", (("ctrl+p", "all commands, themes"), ("?", "this help"),
                                 ("ctrl+n", "new launch"), ("q", "leave; work is kept"))),
        ]  # fmt: skip
        self.query_one("#help-text", Line).content = Content("\n\n").join(parts)
        self.query_one(VerticalScroll).focus()


def _titled(title: str, rows: Sequence[tuple[str, str]]) -> Content:
    return Content.assemble((title, f"bold {Tone.KEY}"), "\n", card(list(rows)))


def keys_of(screen: Screen[object]) -> list[tuple[str, str]]:
    """(key, what it does) of everything that acts on a screen, moving apart."""
    found: dict[str, tuple[str, str]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.id is None or binding.id.startswith(("list.", "step.", "help")):
            continue
        key = binding.key_display or screen.app.get_key_display(binding)
        found.setdefault(binding.action, (key, binding.tooltip or binding.description))
    return list(found.values())
