"""A rule's page, apart from any launch."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content

from kvtui.core.resolution import Rule
from kvtui.core.rulebook import WHEN, page_of
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.widgets.lines import Line
from kvtui.tui.words import Tone


class RuleSheet(Sheet[str | None]):
    """Answers with the option that the rule is about."""

    title_text = "Rule"

    BINDINGS = [
        Binding("enter", "go", "go to the option", key_display="⏎", id="rule.go"),
        Binding("c", "copy", "copy the example", id="rule.copy"),
    ]
    DEFAULT_CSS = "RuleSheet VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }"

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule

    def compose_body(self) -> ComposeResult:
        """One page that scrolls."""
        page = page_of(self.rule)
        parts = [
            Content.assemble((f"{page.id}  ", f"bold {Tone.KEY}"), (page.title, "bold")),
            Content.styled(f"{page.severity}, {WHEN[page.stage]}, {page.option or ''}", Tone.QUIET),
            Content(page.why),
            Content.assemble(("Fix: ", Tone.KEY), page.fix) if page.fix else Content(""),
            Content.styled(f"source: srt/{page.source} of SGLang 0.5.23", Tone.QUIET),
        ]
        if page.example:
            parts.append(Content.assemble(("It fires on\n", Tone.QUIET), page.example))
        line = Line()
        line.content = Content("\n\n").join(part for part in parts if part.plain)
        with VerticalScroll():
            yield line

    def on_mount(self) -> None:
        """The page scrolls by keys."""
        self.query_one(VerticalScroll).focus()

    def action_go(self) -> None:
        """Go to the option."""
        self.dismiss(self.rule.option)

    def action_copy(self) -> None:
        """Copy the command that shows the rule."""
        example = page_of(self.rule).example
        if example:
            self.kv.copy_text(example, "example")
