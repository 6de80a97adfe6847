"""Paste an error, a boot log or a command: what it means, and the option to change."""

from __future__ import annotations

import asyncio

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import TextArea

from kvtui.core.explain import Explanation, explain
from kvtui.core.imports import Found, find_launches
from kvtui.errors import InputError
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.widgets.row import Row, one_column
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone, flag_of

SETTLE = 0.15
"""Seconds after the last key before the text is looked at."""
LAUNCH = "launch:"


def launches_in(text: str) -> tuple[Found, ...]:
    """Launches in a pasted command, script or file; none where it is something else."""
    if "sglang" not in text and "--model" not in text and "model_path" not in text:
        return ()
    try:
        return tuple(found for found in find_launches(text) if found.draft.model_path)
    except InputError:
        return ()


class PasteArea(TextArea):
    """The pasted text; Tab and Escape lead out."""

    BINDINGS = [
        Binding("tab", "leave", "to what was found", id="explain.found"),
        Binding("escape", "leave", "back", id="explain.leave"),
    ]

    def action_leave(self) -> None:
        """To the findings, or out where there are none."""
        rows = self.screen.query_one(RowList)
        if rows.rows:
            rows.focus()
        else:
            self.screen.dismiss(None)


class ExplainSheet(Sheet[str | None]):
    """Answers with the option to go to."""

    title_text = "Explain"

    DEFAULT_CSS = """
    ExplainSheet PasteArea {
        height: 35%; min-height: 4; border: round $border-blurred; background: $background;
    }
    ExplainSheet PasteArea:focus { border: round $border; }
    ExplainSheet RowList { height: 1fr; margin: 1 0 0 0; }
    """

    def compose_body(self) -> ComposeResult:
        """Text above, what it means below."""
        area = PasteArea(id="explain-text", soft_wrap=True, show_line_numbers=False)
        area.border_title = "paste an error, a boot log or a launch command"
        yield area
        yield RowList(id="explain-rows", mark=self.kv.glyphs.cursor, pick_label="go to the option")

    def on_mount(self) -> None:
        """Wait for text."""
        self.found: tuple[Explanation, ...] = ()
        self.launches: tuple[Found, ...] = ()
        self.query_one(PasteArea).focus()

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self.look(event.text_area.text)

    @work(exclusive=True, group="explain", exit_on_error=False)
    async def look(self, text: str) -> None:
        """Look the text up once typing pauses."""
        await asyncio.sleep(SETTLE)
        self.launches = await asyncio.to_thread(launches_in, text)
        self.found = () if self.launches else await asyncio.to_thread(explain, text)
        rows = [self._launch_row(index, item) for index, item in enumerate(self.launches)]
        rows += [self._row(index, item) for index, item in enumerate(self.found)]
        listed = self.query_one("#explain-rows", RowList)
        listed.empty = "" if not text.strip() else "nothing in it is known"
        listed.show(rows, keep=False)

    def _launch_row(self, index: int, found: Found) -> Row:
        title = Content.assemble(("set up this launch", f"bold {Tone.KEY}"),
                                 (f"  {found.title}", Tone.QUIET))  # fmt: skip
        about = [found.draft.model_path or "no model named"]
        about += [f"left blank: {blank.option} ({blank.text})" for blank in found.blanks]
        return Row(f"{LAUNCH}{index}", (title,), below=Content("\n".join(about)), indent=2)

    def _row(self, index: int, item: Explanation) -> Row:
        sign = item.rule or ("known" if item.is_recognised else "by its words")
        option = flag_of(item.option) if item.option else ""
        head = Content.assemble((sign, f"bold {Tone.KEY}"), "  ", (option, Tone.QUIET))
        parts = [Content(item.meaning)]
        if item.why:
            parts.append(Content.styled(item.why, Tone.QUIET))
        if item.change:
            parts.append(Content.assemble(("change: ", Tone.KEY), item.change))
        parts.append(Content.styled(f"line {item.line_number}: {item.line}", Tone.QUIET))
        return Row(str(index), (head,), below=Content("\n").join(parts), indent=2,
                   layout=one_column)  # fmt: skip

    @on(RowList.Picked, "#explain-rows")
    def _picked(self, event: RowList.Picked) -> None:
        event.stop()
        if event.row.key.startswith(LAUNCH):
            launch = self.launches[int(event.row.key.removeprefix(LAUNCH))]
            self.dismiss(None)
            self.kv.start_with(launch.draft)
            for blank in launch.blanks:
                self.kv.say(f"{blank.option}: {blank.text} was left blank in the source", bad=True)
            return
        option = self.found[int(event.row.key)].option
        if option is None:
            self.kv.say("no single option is meant")
        else:
            self.dismiss(option)
