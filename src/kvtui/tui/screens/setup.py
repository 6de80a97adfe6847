"""The set-up screen: steps and options, one editor, the live panel, the command."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen

from kvtui.core.findings import Change
from kvtui.errors import InputError
from kvtui.tui.candidates import (
    PICKED_ELSEWHERE,
    Judged,
    candidates,
    compare,
    judge_all,
    kind_of,
    read_value,
    takes_text,
)
from kvtui.tui.screens.pages import option_head, option_help, step_page
from kvtui.tui.screens.setup_rows import DO, MORE, STEP, columns, rows_of
from kvtui.tui.session import GPU
from kvtui.tui.steps import STEPS, step_of
from kvtui.tui.view import (
    candidate_size,
    command_content,
    hardware_text,
    model_name,
    verdict_line,
)
from kvtui.tui.widgets.editor import MARK_TONE, Editor, mark_sign
from kvtui.tui.widgets.lines import CommandLine, KeyBar, TopLine, VerdictLine
from kvtui.tui.widgets.live import LivePanel
from kvtui.tui.widgets.rows import Row, RowList
from kvtui.tui.words import Tone

if TYPE_CHECKING:
    from kvtui.tui.app import KvtuiApp

JUDGE_AFTER = 0.04
"""Seconds that the cursor must rest before the values of an option are judged."""


NO_OPTION = (STEP, MORE, DO)
"""Beginnings of row keys that name no option."""


class SetupScreen(Screen[None]):
    """Where a launch is put together; every edit is judged at once."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (96, "-medium"), (120, "-wide"), (170, "-huge")]

    BINDINGS = [
        Binding("enter", "focused_pick", "change", show=False, id="setup.change"),
        Binding("f", "fix", "fix", id="fix.first", tooltip="Apply the first fix of what is found"),
        Binding("F", "fixes", "fixes", id="fix.list", tooltip="All fixes with preview", show=False),
        Binding("w", "why", "why", id="why", tooltip="The terms of the rule with their values"),
        Binding("p", "app.pool", "pool check", id="pool.run", tooltip="Build the pool for real"),
        Binding(
            "D", "app.save_difference", "save a report of a difference", id="difference", show=False
        ),
        Binding("P", "app.pool_result", "pool result", id="pool.result", show=False),
        Binding("g", "app.engine", "ask engine", id="engine.ask", tooltip="Ask an SGLang"),
        Binding("e", "app.export", "export", id="export", tooltip="Command, script, files"),
        Binding("m", "app.matrix", "matrix", id="matrix", tooltip="Backend by KV dtype"),
        Binding("t", "app.fit", "fit a target", id="fit", tooltip="Ways to a capacity"),
        Binding("slash", "app.search", "find", key_display="/", id="search"),
        Binding("u", "app.undo", "undo", id="undo"),
        Binding("U,ctrl+r", "app.redo", "redo", id="redo", show=False),
        Binding("s", "app.save", "save preset", id="preset.save", show=False),
        Binding("o", "app.open", "open preset", id="preset.open", show=False),
        Binding(
            "d", "app.compare", "compare", id="compare", show=False, tooltip="Compare with a preset"
        ),
        Binding("x", "app.explain", "explain an error", id="explain", show=False),
        Binding("y", "app.copy_command", "copy the command", id="command.copy", show=False),
        Binding("c", "only('changed')", "only changed", id="filter.changed", show=False),
        Binding("b", "only('problems')", "only problems", id="filter.problems", show=False),
        Binding("v", "panel", "verdict panel", id="panel", show=False),
        Binding("n", "next", "next step", id="step.next", show=False),
        Binding("r,delete,backspace", "reset", "reset this option", id="reset.one", show=False),
        Binding("R", "app.reset_all", "reset everything", id="reset.all", show=False),
        Binding("space", "cycle", "next value", id="setup.cycle", show=False),
        Binding("right,l", "go_in", "into the editor", show=False, id="setup.in"),
        Binding("left,h,escape", "go_back", "back", show=False, id="setup.back"),
        *(
            Binding(str(n), f"step({n})", step.title, show=False, id=f"step.{step.key}")
            for n, step in enumerate(STEPS, start=1)
        ),
    ]

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
        self._show_rows()
        self._show_editor()
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
            {"-narrow": 2, "-huge": 5}.get(self.breakpoint, 3),
        )

    @property
    def breakpoint(self) -> str:
        """The class of the present width."""
        return next((name for _, name in self.HORIZONTAL_BREAKPOINTS if self.has_class(name)), "")

    def _rows(self) -> list[Row]:
        return rows_of(self.kv.report, self.opened, self.only, self.kv.glyphs, self.visited)

    def _show_rows(self, select: str | None = None) -> None:
        rows = self._rows()
        pane = self.query_one("#steps-pane")
        title = {"": "Set-up", "changed": "Set-up: only changed", "problems": "Set-up: problems"}
        if pane.border_title != title[self.only]:
            pane.border_title = title[self.only]
        self.steps.empty = {"changed": "nothing is set yet", "problems": "no problems"}.get(
            self.only, ""
        )
        self.steps.show(rows, select=select)

    def _show_editor(self) -> None:
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

    # What the user does in the list

    @on(RowList.Moved, "#steps")
    def _moved(self) -> None:
        self._show_editor()

    @on(RowList.Picked, "#steps")
    def _picked(self, event: RowList.Picked) -> None:
        key = event.row.key
        if key.startswith(STEP):
            self.open_step(key.removeprefix(STEP), into=True)
        elif key.startswith(MORE):
            self.kv.action_search(step=key.removeprefix(MORE))
        elif key.startswith(DO):
            self.call_later(self.run_action, key.removeprefix(DO))
        else:
            self.edit_option(key)

    @on(RowList.Picked, "#live-findings")
    def _finding_picked(self) -> None:
        finding = self.live.current
        if finding is not None and finding.option:
            self.goto(finding.option)

    def open_step(self, key: str, *, into: bool = False) -> None:
        """Open a step and close the others; `into` puts the cursor on its first option."""
        self.only = ""
        same = self.opened == key
        self.opened = "" if same and into else key
        select = STEP + key
        rows = self._rows()
        if into and self.opened:
            index = next(i for i, row in enumerate(rows) if row.key == select)
            if index + 1 < len(rows) and not rows[index + 1].key.startswith(STEP):
                select = rows[index + 1].key
        self._show_rows(select)
        self._show_editor()

    def goto(self, option: str) -> None:
        """Open the step of an option and put the cursor on it."""
        self.only = ""
        self.opened = step_of(option)
        self.visited[option] = None
        self._leave_panes()
        self._show_rows(option)
        if not self.steps.select(option):
            self.steps.select(STEP + self.opened)
        self._show_editor()
        self.steps.focus()

    def edit_option(self, option: str) -> None:
        """Open what edits an option: a picker, or the editor beside the list."""
        if option == "model_path":
            self.kv.action_pick_model()
        elif option == GPU:
            self.kv.action_pick_gpu()
        else:
            self.add_class("-in-editor")
            self._focus_editor()

    def _focus_editor(self) -> None:
        values = self.editor.values
        if values.display and values.rows:
            (self.editor.field if self.editor.only_typed else values).focus()

    def _leave_panes(self) -> None:
        self.remove_class("-in-editor", "-in-live")

    @on(Editor.Chosen)
    def _chosen(self, event: Editor.Chosen) -> None:
        self.kv.edit((event.change,))
        if not self.has_class("-wide", "-huge"):
            self.action_go_back()

    @on(Editor.Typed)
    def _typed(self, event: Editor.Typed) -> None:
        if event.done:
            self._take_typed(event)
        else:
            self._judge_typed(event.option, event.text)

    def _take_typed(self, event: Editor.Typed) -> None:
        try:
            value = self._read(event.option, event.text)
        except InputError as error:
            self.editor.note(Content.styled(str(error), Tone.BAD))
            return
        self.kv.edit((Change(event.option, value),))
        self.editor.note(None)
        self.action_go_back()

    @staticmethod
    def _read(option: str, text: str) -> object:
        if option.startswith("env:"):
            return text or None
        return read_value(option, text)

    def _judge_typed(self, option: str, text: str) -> None:
        if not text.strip():
            self.editor.note(None)
            return
        try:
            change = Change(option, self._read(option, text))
        except InputError as error:
            self.editor.note(Content.styled(str(error), Tone.BAD))
            return
        present = self.kv.report
        report = self.kv.session.try_out((change,))
        rows = [c for c in candidates(option, report) if c.is_current or c.is_default]
        plain = self.kv.session.try_out((Change(option),))
        reports = {row.label: report if row.is_current else plain for row in rows}
        label = next((row.label for row in rows if row.is_current), None)
        if label is None:
            self.editor.note(None)
            return
        judged = compare(option, rows, reports, present)[label]
        g = self.kv.glyphs
        reason = f"{judged.reason.rule} {judged.reason.message}" if judged.reason else ""
        sizes = zip(candidate_size(report), ("per token", "tokens"), strict=True)
        size = ", ".join(f"{text} {unit}" for text, unit in sizes if text)
        self.editor.note(
            Content.assemble(
                (f"{mark_sign(judged.mark, g)} {text.strip()} ", f"bold {MARK_TONE[judged.mark]}"),
                reason or size,
            )
        )

    @on(VerdictLine.Opened)
    def _verdict_clicked(self) -> None:
        self.action_panel()

    @on(CommandLine.Clicked)
    def _command_clicked(self) -> None:
        self.kv.action_copy_command()

    # Actions

    def action_focused_pick(self) -> None:
        """Enter where no list has the focus."""
        if isinstance(self.focused, RowList):
            self.focused.action_pick()
        else:
            self.steps.focus()

    def action_go_in(self) -> None:
        """From the list into the editor; from a closed step into its options."""
        row = self.steps.current
        if row is None or not self.steps.has_focus:
            return
        if row.key.startswith(STEP):
            if row.key.removeprefix(STEP) != self.opened:
                self.open_step(row.key.removeprefix(STEP), into=True)
        elif row.key.startswith((MORE, DO)):
            self.steps.action_pick()
        else:
            self.edit_option(row.key)

    def action_go_back(self) -> None:
        """One level out: editor or panel to list, list to the step's heading, filter off."""
        if not self.steps.has_focus:
            self._leave_panes()
            self.steps.focus()
        elif self.only:
            self.action_only(self.only)
        else:
            self.steps.select(STEP + self.opened)

    def action_step(self, number: int) -> None:
        """Open the step with that number."""
        self._leave_panes()
        self.open_step(STEPS[number - 1].key)
        self.steps.focus()

    def action_next(self) -> None:
        """Open the next step."""
        keys = [step.key for step in STEPS]
        at = keys.index(self.opened) if self.opened in keys else -1
        self.action_step((at + 1) % len(keys) + 1)

    def action_only(self, what: str) -> None:
        """Show only changed options or only problems; again shows all."""
        self.only = "" if self.only == what else what
        self._leave_panes()
        self._show_rows()
        self._show_editor()
        self.steps.focus()

    def action_panel(self) -> None:
        """Open or close the verdict panel where it has no place of its own."""
        self.remove_class("-in-editor")
        if self.has_class("-narrow"):
            self.toggle_class("-in-live")
        (self.live.list if not self.live.list.has_focus else self.steps).focus()

    def action_reset(self) -> None:
        """Take the option's choice out."""
        row = self.steps.current
        if row is not None and not row.key.startswith(NO_OPTION):
            self.kv.edit((Change(row.key),))

    def action_cycle(self) -> None:
        """Step to the option's next value."""
        row = self.steps.current
        if row is None or not self.steps.has_focus:
            return
        if row.key.startswith(NO_OPTION) or row.key in PICKED_ELSEWHERE:
            self.steps.action_pick()
            return
        rows = candidates(row.key, self.kv.report)
        if len(rows) < 2:
            self.edit_option(row.key)
            return
        at = next((i for i, c in enumerate(rows) if c.is_current), 0)
        self.kv.edit((rows[(at + 1) % len(rows)].change,))

    def action_fix(self) -> None:
        """Apply the first fix of the finding under the cursor, else of the first that has one."""
        self.kv.fix_first(self.live.current if self.live.list.has_focus else None)

    def action_fixes(self) -> None:
        """Show every fix."""
        self.kv.action_fixes()

    def action_why(self) -> None:
        """Why the finding under the cursor, or the first one, holds."""
        row = self.steps.current
        option = row.key if row and not row.key.startswith(NO_OPTION) else None
        finding = self.live.current if self.live.list.has_focus else None
        self.kv.show_why(finding, option)
