"""The set-up screen: its keys and what they do."""

from __future__ import annotations

from textual import on
from textual.binding import Binding

from kvtui.core.findings import Change
from kvtui.tui.candidates import PICKED_ELSEWHERE, candidates
from kvtui.tui.screens.setup_editing import SetupEditing
from kvtui.tui.screens.setup_rows import DO, MORE, STEP
from kvtui.tui.screens.setup_view import NO_OPTION
from kvtui.tui.steps import STEPS
from kvtui.tui.widgets.lines import VerdictLine
from kvtui.tui.widgets.rows import RowList


class SetupScreen(SetupEditing):
    """Where a launch is put together; every edit is judged at once."""

    BINDINGS = [
        Binding("enter", "focused_pick", "change", show=False, id="setup.change"),
        Binding("f", "fix", "fix", id="fix.first", tooltip="apply the first fix of what is found"),
        Binding("F", "fixes", "fixes", id="fix.list", tooltip="all fixes with preview", show=False),
        Binding(
            "w", "why", "why", id="why", tooltip="why: the terms of the rule with their values"
        ),
        Binding("p", "app.pool", "pool check", id="pool.run", tooltip="build the pool for real"),
        Binding(
            "D", "app.save_difference", "save a report of a difference", id="difference", show=False
        ),
        Binding("P", "app.pool_result", "pool result", id="pool.result", show=False),
        Binding("g", "app.engine", "ask engine", id="engine.ask", tooltip="ask an SGLang"),
        Binding("e", "app.export", "export", id="export", tooltip="export: command, script, files"),
        Binding("m", "app.matrix", "matrix", id="matrix", tooltip="matrix: backend by KV dtype"),
        Binding("t", "app.fit", "fit a target", id="fit", tooltip="ways to a capacity"),
        Binding("slash", "app.search", "find", key_display="/", id="search"),
        Binding("u", "app.undo", "undo", id="undo"),
        Binding("U,ctrl+r", "app.redo", "redo", id="redo", show=False),
        Binding("s", "app.save", "save preset", id="preset.save", show=False),
        Binding("o", "app.open", "open preset", id="preset.open", show=False),
        Binding(
            "d", "app.compare", "compare", id="compare", show=False, tooltip="compare with a preset"
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
            Binding(str(n), f"step({n})", f"step {step.title}", show=False, id=f"step.{step.key}")
            for n, step in enumerate(STEPS, start=1)
        ),
    ]

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
            self.back_to_list()
        elif self.only:
            self.action_only(self.only)
        else:
            self.steps.select(STEP + self.opened)

    def action_step(self, number: int) -> None:
        """Open the step with that number."""
        self.leave_panes()
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
        self.leave_panes()
        self.show_rows()
        self.show_editor()
        self.steps.focus()

    def action_panel(self) -> None:
        """Open or close the verdict panel where it has no place of its own."""
        self.remove_class("-in-editor")
        if self.has_class("-narrow"):
            self.toggle_class("-in-live")
        (self.live.list if not self.live.list.has_focus else self.steps).focus()

    @on(VerdictLine.Opened)
    def _verdict_clicked(self) -> None:
        self.action_panel()

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
