"""Why: a rule's page with its terms on this launch, or what is known of an option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content

from kvtui.core.findings import Finding
from kvtui.core.option_pages import rules_about
from kvtui.core.rulebook import find_rule, page_of
from kvtui.tui.layers import STOPS_AT
from kvtui.tui.reasons import Term, source_of, terms_of
from kvtui.tui.screens.pages import card, option_head, option_help
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.view import finding_head
from kvtui.tui.widgets.lines import Line
from kvtui.tui.words import Tone, change_text, flag_of, value_text

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


class WhySheet(Sheet[str | None]):
    """Answers with the option to go to, or with nothing."""

    title_text = "Why"

    BINDINGS = [
        Binding("enter", "go", "go to the option", key_display="⏎", id="why.go"),
        Binding("f", "fix", "apply the fix", id="why.fix"),
        Binding("right,l,n", "turn(1)", "next finding", key_display="→", id="why.next"),
        Binding("left,h", "turn(-1)", "previous", key_display="←", id="why.previous"),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False),
    ]

    DEFAULT_CSS = "WhySheet VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }"

    def __init__(
        self, finding: Finding | None, option: str | None, about: Report | None = None
    ) -> None:
        super().__init__()
        self.finding = finding
        self.option = option
        self.about = about
        """The report that the finding belongs to, where it is not the present one."""

    @property
    def report(self) -> Report:
        """The report that is explained."""
        return self.about or self.kv.report

    def compose_body(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll():
            yield Line(id="why-text")

    def on_mount(self) -> None:
        """Show the page."""
        self._show()
        self.query_one(VerticalScroll).focus()

    def _show(self) -> None:
        parts = list(self._finding_parts(self.finding) if self.finding else self._option_parts())
        self.query_one("#why-text", Line).content = Content("\n\n").join(
            p for p in parts if p.plain
        )
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def _finding_parts(self, finding: Finding) -> Iterator[Content]:
        g = self.kv.glyphs
        sign, option = finding_head(finding, g)
        yield Content.assemble(sign, "  ", option, "\n", (finding.message, "bold"))
        stops = {"error": "stops", "warning": "warns", "note": "notes"}[finding.severity.value]
        yield Content.styled(f"{stops} {STOPS_AT[finding.stage.value]}", Tone.QUIET)
        rule = find_rule(finding.rule)
        page = page_of(rule) if rule else None
        if page is not None:
            yield Content.assemble((page.title, f"bold {Tone.KEY}"), "\n", page.why)
        terms = terms_of(finding.rule, self.report.draft, self.report.facts)
        if terms:
            yield Content.assemble(
                ("What it looked at", f"bold {Tone.KEY}"), "\n", term_lines(terms)
            )
        for fix in finding.fixes:
            changes = ", ".join(change_text(change) for change in fix.changes)
            key = "f  " if fix is finding.fixes[0] else "or "
            detail = f"\n   {changes}" if changes != fix.title else ""
            yield Content.assemble((key, f"bold {Tone.KEY}"), fix.title, (detail, Tone.QUIET))
        if page is not None:
            if page.fix:
                yield Content.assemble(("In general: ", Tone.QUIET), page.fix)
            yield Content.styled(f"source: srt/{page.source} of SGLang 0.5.23", Tone.QUIET)

    def _option_parts(self) -> Iterator[Content]:
        option = self.option or ""
        report, g = self.report, self.kv.glyphs
        yield option_head(option, report, g)
        why = source_of(report, option)
        if why:
            yield Content.assemble(("Set by the engine: ", Tone.QUIET), why)
        yield Content.styled("Nothing was found against it.", Tone.QUIET)
        yield option_help(option, report, g)
        about = rules_about(option)
        if about:
            yield Content.assemble(("Rules about it", f"bold {Tone.KEY}"), "\n", card(about))

    def action_go(self) -> None:
        """Go to the option."""
        self.dismiss(self.finding.option if self.finding else self.option)

    def action_fix(self) -> None:
        """Apply the finding's first fix."""
        if self.finding is None or not self.finding.fixes:
            self.kv.say("no fix for this")
            return
        fix = self.finding.fixes[0]
        self.dismiss(None)
        self.kv.apply_fix(fix)

    def action_turn(self, by: int) -> None:
        """Turn to another finding."""
        findings = self.report.findings
        if not findings:
            return
        at = findings.index(self.finding) if self.finding in findings else -by
        self.finding = findings[(at + by) % len(findings)]
        self._show()


def term_lines(terms: tuple[Term, ...]) -> Content:
    """Terms in columns: name, value, origin."""
    rows = []
    for term in terms:
        name = flag_of(term.name) if term.name.isidentifier() else term.name
        origin = f"  ({term.origin})" if term.origin else ""
        rows.append((name, value_text(term.value) + origin))
    return card(rows)
