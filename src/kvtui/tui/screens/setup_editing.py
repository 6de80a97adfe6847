"""How the set-up is edited: rows are opened, values chosen or typed, each judged at once."""

from __future__ import annotations

from textual import on
from textual.content import Content

from kvtui.core.findings import Change
from kvtui.errors import InputError
from kvtui.tui.candidates import candidates, compare, read_value
from kvtui.tui.screens.setup_rows import DO, MORE, STEP
from kvtui.tui.screens.setup_view import SetupView
from kvtui.tui.session import GPU
from kvtui.tui.steps import step_of
from kvtui.tui.view import candidate_size
from kvtui.tui.widgets.editor import MARK_TONE, Editor, mark_sign
from kvtui.tui.widgets.lines import CommandLine
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone


class SetupEditing(SetupView):
    """Answers what its widgets send; every edit goes through the app."""

    @on(RowList.Moved, "#steps")
    def _moved(self) -> None:
        self.show_editor()

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
        rows = self.rows_now()
        if into and self.opened:
            index = next(i for i, row in enumerate(rows) if row.key == select)
            if index + 1 < len(rows) and not rows[index + 1].key.startswith(STEP):
                select = rows[index + 1].key
        self.show_rows(select)
        self.show_editor()

    def goto(self, option: str) -> None:
        """Open the step of an option and put the cursor on it."""
        self.only = ""
        self.opened = step_of(option)
        self.visited[option] = None
        self.leave_panes()
        self.show_rows(option)
        if not self.steps.select(option):
            self.steps.select(STEP + self.opened)
        self.show_editor()
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

    def leave_panes(self) -> None:
        """Where one pane takes another's place: back to the list."""
        self.remove_class("-in-editor", "-in-live")

    def back_to_list(self) -> None:
        """The list has the focus again."""
        self.leave_panes()
        self.steps.focus()

    @on(Editor.Chosen)
    def _chosen(self, event: Editor.Chosen) -> None:
        self.kv.edit((event.change,))
        if not self.has_class("-wide", "-huge"):
            self.back_to_list()

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
        self.back_to_list()

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
        head = f"{mark_sign(judged.mark, g)} {text.strip()} "
        tone = f"bold {MARK_TONE[judged.mark]}"
        self.editor.note(Content.assemble((head, tone), reason or size))

    @on(CommandLine.Clicked)
    def _command_clicked(self) -> None:
        self.kv.action_copy_command()
