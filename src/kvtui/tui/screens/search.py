"""Find any option of the engine and go to it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from kvtui.tui.finder import Found, find
from kvtui.tui.screens.setup_rows import option_row
from kvtui.tui.screens.sheet import PickSheet
from kvtui.tui.steps import STEP_BY_KEY, step_of
from kvtui.tui.widgets.row import Row
from kvtui.tui.words import Tone, plural


class SearchSheet(PickSheet[str | None]):
    """Answers with the option's field name."""

    title_text = "Find an option"
    placeholder = "name, alias, words of the help, or vLLM's name"

    def __init__(self, step: str | None = None) -> None:
        super().__init__()
        self.step = step

    @staticmethod
    def columns(width: int) -> Sequence[int]:
        """Sign, name, value, origin, step or alias."""
        where = 26
        note = 16 if width >= 96 else 0
        name = min(44, (width - where - note) * 3 // 5)
        sign = 2
        return (sign, name, width - sign - name - note - where, note, where)

    def rows(self, text: str) -> Sequence[Row]:
        """Matches in the order of their rank, a step's own only until something is typed."""
        found = find(text)
        if self.step and not text:
            found = [hit for hit in found if step_of(hit.option.name) == self.step]
        frame = self.query_one("#sheet")
        frame.border_subtitle = plural(len(found), "option")
        return [self._row(hit) for hit in found]

    def _row(self, hit: Found) -> Row:
        row = option_row(hit.option.name, self.kv.report, self.kv.glyphs)
        where = hit.through or STEP_BY_KEY[step_of(hit.option.name)].title
        return Row(row.key, (*row.cells, Content.styled(where, Tone.QUIET)))

    def about(self, key: str) -> Content:
        """SGLang's help."""
        from kvtui.core.options import catalogue

        option = catalogue().options[key]
        return Content.assemble((f"{option.flag}  ", f"bold {Tone.KEY}"), option.help)

    def picked(self, key: str) -> None:
        """Answer with the option."""
        self.dismiss(key)
