"""Changes that let a number of requests run at once, ranked, each applied by Enter."""

from __future__ import annotations

import asyncio

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from kvtui.core.fit import Fit, Goal, Option, fit
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.view import outcome_glyph, outcome_tone
from kvtui.tui.widgets.lines import Line
from kvtui.tui.widgets.row import Row, one_column
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone, change_text, plural

SETTLE = 0.3
"""Seconds after the last key before the search starts."""


class NumberField(Input):
    """A whole number; down leads to what was found."""

    BINDINGS = [
        Binding("down,enter", "leave", "to what was found", key_display="⏎", id="fit.found"),
    ]

    def action_leave(self) -> None:
        """To the list."""
        self.screen.query_one(RowList).focus()


class FitSheet(Sheet[None]):
    """Two numbers above, ways below."""

    title_text = "Reach a capacity"

    DEFAULT_CSS = """
    FitSheet #fit-goal { height: 1; margin: 0 0 1 0; }
    FitSheet #fit-goal Line { width: auto; padding: 0 1; }
    FitSheet NumberField { width: 14; }
    FitSheet RowList { height: 1fr; margin: 1 0 0 0; }
    """

    def compose_body(self) -> ComposeResult:
        """The goal, where it stands, the ways."""
        first, second = Line(), Line()
        first.content, second.content = Content("requests"), Content("of this many tokens each")
        with Horizontal(id="fit-goal"):
            yield NumberField(id="fit-requests", type="integer", value="64", max_length=9)
            yield first
            yield NumberField(id="fit-context", type="integer", value="32768", max_length=9)
            yield second
        yield Line(id="fit-now")
        yield RowList(id="fit-rows", mark=self.kv.glyphs.cursor, pick_label="apply")

    def on_mount(self) -> None:
        """Search for the proposed goal at once."""
        self.found: Fit | None = None
        self.query_one("#fit-requests").focus()
        self.look()

    @property
    def goal(self) -> Goal | None:
        """The goal as typed; None while it is none."""
        texts = [self.query_one(f"#fit-{name}", Input).value for name in ("requests", "context")]
        if not all(text.isdigit() and int(text) > 0 for text in texts):
            return None
        return Goal(int(texts[0]), int(texts[1]))

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.look()

    @work(exclusive=True, group="fit", exit_on_error=False)
    async def look(self) -> None:
        """Search once typing pauses."""
        await asyncio.sleep(SETTLE)
        goal, report = self.goal, self.kv.report
        now = self.query_one("#fit-now", Line)
        if goal is None or report.capacity is None:
            why = "two numbers above zero" if goal is None else "no capacity is known yet"
            now.content = Content.styled(why, Tone.QUIET)
            self.query_one("#fit-rows", RowList).show([])
            return
        self.found = await asyncio.to_thread(fit, report.draft, report.facts, goal)
        self._show(self.found)

    def _show(self, found: Fit) -> None:
        g = self.kv.glyphs
        enough = found.now >= found.goal.requests
        text = f"{plural(found.now, 'request')} of {found.goal.context:,} tokens fit as it is"
        if not enough and not found.reached:
            text += "; nothing that was tried reaches the goal, these come nearest"
        sign, tone = (g.ok, Tone.GOOD) if enough else (g.arrow, Tone.PLAIN)
        self.query_one("#fit-now", Line).content = Content.styled(f"{sign} {text}", tone)
        rows = [] if enough else [self._row(i, o) for i, o in enumerate(found.options)]
        self.query_one("#fit-rows", RowList).show(rows, keep=False)

    def _row(self, index: int, option: Option) -> Row:
        g, report = self.kv.glyphs, option.report
        tone = outcome_tone(report) if option.reaches else Tone.QUIET
        sign = outcome_glyph(report, g) if option.reaches else g.none
        head = Content.assemble(
            (f"{sign} ", tone), (", ".join(move.title for move in option.moves), "bold"),
            (f"  {option.requests:,} requests, {option.tokens:,} tokens", Tone.QUIET),
        )  # fmt: skip
        prices = ", ".join(move.price for move in option.moves)
        changes = ", ".join(change_text(change) for change in option.changes)
        below = Content.assemble(("price: ", Tone.QUIET), prices, "\n", (changes, Tone.QUIET))
        return Row(str(index), (head,), below=below, indent=4, layout=one_column)

    @on(RowList.Picked, "#fit-rows")
    def _picked(self, event: RowList.Picked) -> None:
        event.stop()
        if self.found is None:
            return
        option = self.found.options[int(event.row.key)]
        self.dismiss(None)
        self.kv.edit(option.changes)
        self.kv.say(f"{', '.join(move.title for move in option.moves)}; u takes it back")
