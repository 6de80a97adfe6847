"""One option's editor: its values with what each would do, a field to type in, and its help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from kvtui.core.findings import Change
from kvtui.tui.candidates import Candidate, Judged, Mark
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.view import candidate_size
from kvtui.tui.widgets.lines import Line
from kvtui.tui.widgets.row import Row
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone, value_text

MARK_TONE = {
    Mark.OK: Tone.GOOD,
    Mark.WARNS: Tone.WARN,
    Mark.FAILS: Tone.BAD,
    Mark.UNKNOWN: Tone.ASK,
}
TYPED = "typed"
"""Key of the row that stands for the text field."""


def mark_sign(mark: Mark, g: Glyphs) -> str:
    """The sign of what a value does."""
    return {Mark.OK: g.ok, Mark.WARNS: g.warn, Mark.FAILS: g.bad, Mark.UNKNOWN: g.unknown}[mark]


class ValueField(Input):
    """The field to type a value in; up, down and escape lead back to the list."""

    BINDINGS = [
        Binding("enter", "submit", "use this value", key_display="⏎"),
        Binding("escape", "leave", "back", key_display="Esc"),
        Binding("up", "leave", "back", show=False),
    ]

    class Left(Message):
        """The user goes back to the list of values."""

    def action_leave(self) -> None:
        """Give the focus back."""
        self.post_message(self.Left())


class Editor(Vertical):
    """Shows one option; sends what was chosen and what is being looked at."""

    DEFAULT_CSS = """
    Editor { height: 1fr; }
    Editor #editor-head { padding: 0 0 1 0; }
    Editor #editor-values { height: auto; max-height: 60%; }
    Editor #editor-field { margin: 0 0 0 2; }
    Editor #editor-field.-unused { display: none; }
    Editor #editor-about { height: 1fr; margin: 1 0 0 0; scrollbar-size-vertical: 1; }
    """

    class Chosen(Message):
        """A value was chosen."""

        def __init__(self, change: Change) -> None:
            super().__init__()
            self.change = change

    class Typed(Message):
        """Text for a value was typed; `done` when it was confirmed."""

        def __init__(self, option: str, text: str, done: bool) -> None:
            super().__init__()
            self.option = option
            self.text = text
            self.done = done

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.g = glyphs
        self.option = ""
        self._candidates: tuple[Candidate, ...] = ()
        self._judged: Mapping[str, Judged] = {}
        self._help = Content("")
        self._forced = ""
        self._note: Content | None = None
        self._typing = False

    def compose(self) -> ComposeResult:
        """Head, values, field, text."""
        yield Line(id="editor-head")
        yield RowList(id="editor-values", layout=self._columns, mark=self.g.cursor)
        field = ValueField(id="editor-field", classes="-unused", placeholder="type another value")
        field.can_focus = False
        yield field
        with VerticalScroll(id="editor-about", can_focus=False):
            yield Line(id="editor-text")

    @property
    def values(self) -> RowList:
        """The list of values."""
        return self.query_one("#editor-values", RowList)

    @property
    def field(self) -> ValueField:
        """The text field."""
        return self.query_one(ValueField)

    @property
    def only_typed(self) -> bool:
        """True where there is no value to choose but the absent one."""
        return self._typing and len(self._candidates) == 1

    def show(
        self,
        option: str,
        head: Content,
        rows: Sequence[Candidate],
        help_text: Content,
        *,
        typed: bool,
        placeholder: str = "",
    ) -> None:
        """Show an option; marks follow through `mark` when they are worked out."""
        fresh = option != self.option
        self.option = option
        self._candidates = tuple(rows)
        if fresh:
            self._judged = {}
            self._note = None
        self._help = help_text
        self.query_one("#editor-head", Line).content = head
        field = self.field
        self._typing = typed
        field.set_class(not typed, "-unused")
        field.can_focus = typed
        if fresh:
            with field.prevent(Input.Changed):
                field.value = ""
            field.placeholder = placeholder
        self._show_rows(select=self._current_key() if fresh else None)
        self._show_about()

    def show_text(self, key: str, head: Content, text: Content) -> None:
        """Show a page of text in place of an option."""
        self.show(key, head, (), text, typed=False)

    def mark(self, option: str, judged: Mapping[str, Judged]) -> None:
        """Take in what the values would do; an answer for another option is dropped."""
        if option != self.option:
            return
        self._judged = judged
        self._show_rows()
        self._show_about()

    def note(self, text: Content | None) -> None:
        """A line on the value that is being typed, in place of the text on a listed one."""
        self._note = text
        self._show_about()

    def _current_key(self) -> str | None:
        return next((c.label for c in self._candidates if c.is_current), None)

    def _show_rows(self, select: str | None = None) -> None:
        rows = [self._row(candidate) for candidate in self._candidates]
        if any(judged.report.pool for judged in self._judged.values()):
            rows.insert(0, self._titles())
        if self._typing:
            text = Content.styled("another value", Tone.QUIET)
            rows.append(Row(TYPED, (Content.styled(self.g.enter, Tone.KEY), Content(""), text)))
        self.values.show(rows, select=select)
        self.values.display = bool(rows)

    def _titles(self) -> Row:
        names = ("", "", "", "/token", "tokens")
        return Row("titles", tuple(Content.styled(n, Tone.QUIET) for n in names), enabled=False)

    def _row(self, candidate: Candidate) -> Row:
        g = self.g
        judged = self._judged.get(candidate.label)
        radio = Content.styled(g.on if candidate.is_current else g.off, Tone.KEY)
        label = Content.styled(self._label(candidate), "bold" if candidate.is_current else "")
        if judged is None:
            return Row(candidate.label, (radio, Content(""), label))
        sign = Content.styled(mark_sign(judged.mark, g), MARK_TONE[judged.mark])
        remark = self._remark(candidate, judged)
        if remark is not None:
            return Row(candidate.label, (radio, sign, label, remark), layout=self._remark_columns)
        cell, tokens = candidate_size(judged.report)
        sizes = (Content.styled(cell, Tone.QUIET), Content.styled(tokens, Tone.QUIET))
        return Row(candidate.label, (radio, sign, label, *sizes))

    def _label(self, candidate: Candidate) -> str:
        judged = self._judged.get(candidate.label)
        if not candidate.is_default or judged is None or judged.resolved == candidate.value:
            return candidate.label
        return f"{candidate.label} {self.g.arrow} {value_text(judged.resolved)}"

    def _remark(self, candidate: Candidate, judged: Judged) -> Content | None:
        """What matters more than a value's size: why it fails, what runs instead."""
        if judged.mark is Mark.FAILS and judged.reason is not None:
            return Content.styled(f"{judged.reason.rule} {judged.reason.message}", Tone.BAD)
        if not candidate.is_default and judged.resolved != candidate.value:
            return Content.styled(f"runs {value_text(judged.resolved)}", Tone.WARN)
        return None

    def _columns(self, width: int) -> Sequence[int]:
        radio, sign, label, rest = self._remark_columns(width)
        cell = min(11, rest // 2) if rest >= 15 else 0
        return (radio, sign, label, cell, rest - cell)

    def _remark_columns(self, width: int) -> Sequence[int]:
        g = self.g
        sign = g.sign_width + 1
        radio = len(g.on) + 1
        widest = max((len(self._label(c)) for c in self._candidates), default=8)
        room = width - radio - sign
        label = min(widest + 2, max(14, room * 3 // 5))
        return (radio, sign, label, max(0, room - label))

    @on(RowList.Moved, "#editor-values")
    def _moved(self, event: RowList.Moved) -> None:
        event.stop()
        self._note = None
        self._show_about()

    @on(RowList.Picked, "#editor-values")
    def _picked(self, event: RowList.Picked) -> None:
        event.stop()
        if event.row.key == TYPED:
            self.field.focus()
            return
        chosen = next((c for c in self._candidates if c.label == event.row.key), None)
        if chosen is not None:
            self.post_message(self.Chosen(chosen.change))

    @on(ValueField.Left)
    def _field_left(self, event: ValueField.Left) -> None:
        event.stop()
        self._note = None
        self.values.focus()
        self._show_about()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self.option, event.value, False))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Typed(self.option, event.value, True))

    def _show_about(self) -> None:
        parts: list[Content] = []
        if self._note is not None:
            parts.append(self._note)
        else:
            row = self.values.current
            judged = self._judged.get(row.key) if row else None
            if judged is not None:
                parts.extend(self._consequence(judged))
        if self._help.plain:
            parts.append(self._help)
        self.query_one("#editor-text", Line).content = Content("\n\n").join(parts)

    def _consequence(self, judged: Judged) -> list[Content]:
        parts: list[Content] = []
        if judged.reason is not None:
            tone = MARK_TONE[judged.mark]
            sign = mark_sign(judged.mark, self.g)
            parts.append(
                Content.assemble(
                    (f"{sign} {judged.reason.rule} ", f"bold {tone}"), judged.reason.message
                )
            )
        if judged.clears:
            names = ", ".join(f.rule for f in judged.clears)
            parts.append(Content.assemble((f"{self.g.ok} clears {names}", f"bold {Tone.GOOD}")))
        return parts
