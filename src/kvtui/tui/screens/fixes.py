"""All fixes with what each would change and lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content

from kvtui.core.findings import Finding, Fix
from kvtui.tui.fixing import Chain, fix_all
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.session import change_draft
from kvtui.tui.view import (
    candidate_size,
    finding_head,
    outcome_glyph,
    outcome_tone,
    sorted_findings,
)
from kvtui.tui.widgets.lines import Line
from kvtui.tui.widgets.row import Row, one_column
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone, change_text, plural

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

ALL = "all"


class FixSheet(Sheet[None]):
    """Enter applies the fix under the cursor; `a` applies one for every error."""

    title_text = "Fixes"

    BINDINGS = [
        Binding("a", "all", "fix all errors", id="fixes.all"),
        Binding("u", "app.undo", "undo", id="undo"),
    ]

    DEFAULT_CSS = """
    FixSheet RowList { height: 1fr; }
    FixSheet #fix-about { max-height: 12; padding: 1 0; border-top: solid $border-blurred; }
    """

    def compose_body(self) -> ComposeResult:
        """List and preview."""
        yield RowList(
            id="fix-rows",
            mark=self.kv.glyphs.cursor,
            empty="nothing left to fix",
            pick_label="apply",
        )
        yield Line(id="fix-about")

    def on_mount(self) -> None:
        """Follow the report, since each fix changes what is left."""
        self._fixes: dict[str, tuple[Finding, Fix]] = {}
        self._chain: Chain | None = None
        self.watch(self.app, "revision", self._fill, init=False)
        self._fill()
        self.query_one(RowList).focus()

    def _fill(self) -> None:
        kv = self.kv
        self._fixes.clear()
        rows: list[Row] = []
        self._chain = fix_all(kv.report, kv.session.judge) if kv.report.errors else None
        if self._chain and len(self._chain.fixes) > 1:
            count = plural(len(self._chain.fixes), "change")
            rows.append(
                Row(
                    ALL, (Content.assemble(("fix all errors", "bold"), (f"  {count}", Tone.QUIET)),)
                )
            )
        for finding in sorted_findings(kv.report):
            if not finding.fixes:
                continue
            sign, option = finding_head(finding, kv.glyphs)
            head = Content.assemble(sign, "  ", option)
            rows.append(Row(f"# {finding.rule}{len(rows)}", (head,), enabled=False,
                            below=Content(finding.message), indent=4))  # fmt: skip
            for fix in finding.fixes:
                key = f"{len(self._fixes)}"
                self._fixes[key] = (finding, fix)
                rows.append(Row(key, (Content.styled(f"    {fix.title}", Tone.KEY),),
                                layout=one_column))  # fmt: skip
        self.query_one("#fix-rows", RowList).show(rows)
        self._show_about()

    @on(RowList.Moved)
    def _moved(self) -> None:
        self._show_about()

    def _show_about(self) -> None:
        row = self.query_one("#fix-rows", RowList).current
        about = self.query_one("#fix-about", Line)
        if row is None:
            about.content = Content("")
        elif row.key == ALL and self._chain is not None:
            titles = [
                Content.assemble((f"{finding.rule} ", Tone.QUIET), fix.title)
                for finding, fix in self._chain.fixes
            ]
            about.content = Content("\n").join([*titles, self._leads_to(self._chain.report)])
        elif row.key in self._fixes:
            _, fix = self._fixes[row.key]
            after = self.kv.session.try_out(fix.changes)
            changes = Content(", ".join(change_text(change) for change in fix.changes))
            about.content = Content("\n").join([changes, self._leads_to(after)])

    def _leads_to(self, after: Report) -> Content:
        g = self.kv.glyphs
        words = {"starts": "starts", "unknown": "not known then"}
        left = plural(len(after.errors), "error") + " left" if after.errors else ""
        cell, tokens = candidate_size(after)
        size = ", ".join(
            f"{text} {unit}" for text, unit in ((cell, "per token"), (tokens, "tokens")) if text
        )
        word = left or words.get(after.outcome.value, "")
        tone = outcome_tone(after)
        return Content.assemble(
            (f"{g.arrow} {outcome_glyph(after, g)} {word}", f"bold {tone}"),
            (f"  {size}" if size else "", Tone.QUIET),
        )

    @on(RowList.Picked)
    def _picked(self, event: RowList.Picked) -> None:
        event.stop()
        if event.row.key == ALL:
            self.action_all()
        else:
            self._apply(event.row.key)

    def _apply(self, key: str) -> None:
        self.kv.apply_fix(self._fixes[key][1])
        self._close_when_done()

    def action_all(self) -> None:
        """Apply the chain as one edit, so that one undo takes it back."""
        if self._chain is None or not self._chain.fixes:
            self.kv.say("no error has a fix")
            return
        chain = self._chain
        draft = self.kv.session.draft
        for _, fix in chain.fixes:
            draft = change_draft(draft, fix.changes)
        self.kv.open_draft(draft)
        self.kv.say(f"{plural(len(chain.fixes), 'fix')[:-1]} applied; u takes them back"
                    if len(chain.fixes) == 1 else
                    f"{len(chain.fixes)} fixes applied; u takes them back")  # fmt: skip
        self._close_when_done()

    def _close_when_done(self) -> None:
        if not any(finding.fixes for finding in self.kv.report.findings):
            self.dismiss(None)
