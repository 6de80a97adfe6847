"""What the set-up shows: steps, the editor of one option, the live panel, the command."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen

from kvtui.tui.candidates import (
    PICKED_ELSEWHERE,
    Judged,
    candidates,
    judge_all,
    kind_of,
    takes_text,
)
from kvtui.tui.screens.pages import option_head, option_help, step_page
from kvtui.tui.screens.setup_rows import DO, MORE, STEP, columns, rows_of
from kvtui.tui.steps import step_of
from kvtui.tui.view import hardware_text, model_name, verdict_line
from kvtui.tui.view_command import command_content
from kvtui.tui.widgets.editor import Editor
from kvtui.tui.widgets.lines import CommandLine, KeyBar, TopLine, VerdictLine
from kvtui.tui.widgets.live import LivePanel
from kvtui.tui.widgets.row import Row
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone

if TYPE_CHECKING:
    from kvtui.tui.app import KvtuiApp

JUDGE_AFTER = 0.04
"""Seconds that the cursor must rest before the values of an option are judged."""

AGES_EVERY = 20.0
"""Seconds between two looks at how old answers are."""

NO_OPTION = (STEP, MORE, DO)
"""Beginnings of row keys that name no option."""

COMMAND_LINES = {"-narrow": 2, "-huge": 5}
"""Lines that the command may take, by the class of the width; 3 for the others."""


class SetupView(Screen[None]):
    """Everything on it follows from the app's report and the row under the cursor."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (96, "-medium"), (120, "-wide"), (170, "-huge")]

    def __init__(self) -> None:
        super().__init__()
        self.opened = "model"
        self.only = ""
        self.visited: dict[str, None] = {}
        """Options that a search or a finding led to: they stay listed."""
        self._judged: dict[tuple[str, str], dict[str, Judged]] = {}

    @property
    def kv(self) -> KvtuiApp:
        """The app, typed."""
        return cast("KvtuiApp", self.app)

    def compose(self) -> ComposeResult:
        """Top line, verdict line, three panes, command, keys."""
        g = self.kv.glyphs
        yield TopLine(id="top")
        yield VerdictLine(id="verdict-line")
        with Horizontal(id="body"):
            with Vertical(id="steps-pane", classes="pane") as pane:
                pane.border_title = "Set-up"
                layout = partial(columns, sign=g.sign_width + 1)
                yield RowList(id="steps", layout=layout, mark=g.cursor, pick_label="change")
            with Vertical(id="editor-pane", classes="pane"):
                yield Editor(g, id="editor")
            with Vertical(id="live-pane", classes="pane") as pane:
                pane.border_title = "Verdict"
                yield LivePanel(g, id="live")
        yield CommandLine(id="command")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Follow the app's report and activity."""
        self.watch(self.app, "revision", self._report_changed, init=False)
        self.watch(self.app, "activity", self._activity_changed, init=False)
        self.set_interval(AGES_EVERY, self._activity_changed)
        self.steps.focus()
        self._show_all()

    def on_resize(self) -> None:
        """Lines depend on the width."""
        self.call_after_refresh(self._show_lines)

    @property
    def steps(self) -> RowList:
        """The list of steps and options."""
        return self.query_one("#steps", RowList)

    @property
    def editor(self) -> Editor:
        """The editor."""
        return self.query_one("#editor", Editor)

    @property
    def live(self) -> LivePanel:
        """The live panel."""
        return self.query_one("#live", LivePanel)

    def _report_changed(self) -> None:
        self._judged.clear()
        self._show_all()

    def _activity_changed(self) -> None:
        self._show_lines()
        self.live.show(self.kv.report, self.kv.activity, self.kv.now())

    def _show_all(self) -> None:
        self.show_rows()
        self.show_editor()
        self.live.show(self.kv.report, self.kv.activity, self.kv.now())
        self._show_lines()
        self.refresh_bindings()

    def _show_lines(self) -> None:
        kv, g, report = self.kv, self.kv.glyphs, self.kv.report
        width = max(20, self.size.width - 2)
        top = self.query_one(TopLine)
        top.left = Content.assemble(
            ("kvtui ", f"bold {Tone.KEY}"), (model_name(report), "bold"), f" {g.dot} ",
            hardware_text(report, g),
        )  # fmt: skip
        top.right = Content.styled(kv.judged_by(), Tone.QUIET)
        self.query_one(VerdictLine).content = verdict_line(report, kv.activity, kv.now(), g, width)
        self.query_one(CommandLine).content = command_content(
            report,
            kv.session.last_changed,
            width,
            COMMAND_LINES.get(self.breakpoint, 3),
        )

    @property
    def breakpoint(self) -> str:
        """The class of the present width."""
        return next((name for _, name in self.HORIZONTAL_BREAKPOINTS if self.has_class(name)), "")

    def rows_now(self) -> list[Row]:
        """The list as it should be."""
        return rows_of(self.kv.report, self.opened, self.only, self.kv.glyphs, self.visited)

    def show_rows(self, select: str | None = None) -> None:
        """Draw the list; the cursor goes to `select` or stays on its row."""
        rows = self.rows_now()
        pane = self.query_one("#steps-pane")
        title = {"": "Set-up", "changed": "Set-up: only changed", "problems": "Set-up: problems"}
        if pane.border_title != title[self.only]:
            pane.border_title = title[self.only]
        self.steps.empty = {"changed": "nothing is set yet", "problems": "no problems"}.get(
            self.only, ""
        )
        self.steps.show(rows, select=select)

    def show_editor(self) -> None:
        """Show what belongs to the row under the cursor."""
        row = self.steps.current
        key = row.key if row else STEP + self.opened
        report, g = self.kv.report, self.kv.glyphs
        if key.startswith(NO_OPTION) or key in PICKED_ELSEWHERE:
            step = step_of(key) if key in PICKED_ELSEWHERE else key.split(":", 1)[1]
            step = "review" if key.startswith(DO) else step
            head, text = step_page(step, report, g)
            self.editor.show_text(key, head, text)
            return
        typed = takes_text(key) or key.startswith("env:")
        known = kind_of(key)
        self.editor.show(
            key,
            option_head(key, report, g),
            candidates(key, report),
            option_help(key, report, g),
            typed=typed,
            placeholder={"int": "a whole number", "float": "a number"}.get(known.type, "type here"),
        )
        kept = self._judged.get((key, report.key))
        if kept is not None:
            self.editor.mark(key, kept)
        else:
            self._judge(key)

    @work(exclusive=True, group="judge", exit_on_error=False)
    async def _judge(self, option: str) -> None:
        """Judge every value of an option, letting keys pass between two evaluations."""
        await asyncio.sleep(JUDGE_AFTER)
        report = self.kv.report
        rows = candidates(option, report)
        done: dict[str, Judged] = {}
        for part in judge_all(option, rows, self.kv.session.try_out, report):
            done = dict(part)
            await asyncio.sleep(0)
        if report is self.kv.report:
            self._judged[option, report.key] = done
            self.editor.mark(option, done)
