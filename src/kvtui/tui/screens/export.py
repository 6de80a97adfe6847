"""Export: formats on the left, the text on the right; copy it or write it."""

from __future__ import annotations

from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from kvtui import __version__
from kvtui.core.export import EXPORTERS, Exporter, ExportJob, evidence_of
from kvtui.core.findings import Outcome
from kvtui.errors import InputError
from kvtui.probe.presets import write_whole
from kvtui.tui.layers import verdict_text
from kvtui.tui.screens.confirm import ConfirmSheet
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.view import outcome_glyph, outcome_tone
from kvtui.tui.widgets.lines import Line
from kvtui.tui.widgets.row import Row
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone


class PathField(Input):
    """Where to write; Escape goes back to the formats."""

    BINDINGS = [Binding("escape", "leave", "back", show=True)]

    def action_leave(self) -> None:
        """Hide the field again."""
        self.value = ""
        self.display = False
        self.screen.query_one(RowList).focus()


class ExportSheet(Sheet[None]):
    """Every format is previewed as the cursor moves."""

    title_text = "Export"

    BINDINGS = [
        Binding("c,y", "copy", "copy", id="export.copy", key_display="c"),
        Binding("w", "write", "write to a file", id="export.write"),
        Binding("enter", "copy", "copy", show=False),
        Binding("pagedown,J", "scroll(10)", "scroll", show=False),
        Binding("pageup,K", "scroll(-10)", "scroll", show=False),
    ]

    DEFAULT_CSS = """
    ExportSheet Horizontal { height: 1fr; }
    ExportSheet #export-verdict { padding: 0 0 1 0; }
    ExportSheet RowList { width: 14; }
    ExportSheet VerticalScroll {
        width: 1fr; border-left: solid $border-blurred; padding: 0 1;
        scrollbar-size-vertical: 1;
    }
    ExportSheet PathField { display: none; margin: 1 0 0 0; }
    """

    def compose_body(self) -> ComposeResult:
        """Verdict, formats, text, path."""
        yield Line(id="export-verdict")
        with Horizontal():
            yield RowList(
                [Row(e.format, (Content(e.format),)) for e in EXPORTERS.values()],
                id="export-formats",
                mark=self.kv.glyphs.cursor,
            )
            with VerticalScroll(can_focus=False):
                yield Line(id="export-text")
        yield PathField(placeholder="file to write")

    def on_mount(self) -> None:
        """Say what the launch is worth, then show the first format."""
        kv, report = self.kv, self.kv.report
        said = verdict_text(report, kv.activity)
        note = "  it is exported as it stands" if report.outcome is not Outcome.STARTS else ""
        self.query_one("#export-verdict", Line).content = Content.assemble(
            (f"{outcome_glyph(report, kv.glyphs)} {said.word}", f"bold {outcome_tone(report)}"),
            (f"  {said.detail}{note}", Tone.QUIET),
        )
        self.query_one(RowList).focus()
        self._show()

    @property
    def exporter(self) -> Exporter:
        """The format under the cursor."""
        row = self.query_one("#export-formats", RowList).current
        return EXPORTERS[row.key if row else "command"]

    def _job(self) -> ExportJob:
        report = self.kv.report
        gpu = report.facts.gpu
        name = (report.draft.model_path or "sglang").rstrip("/").rpartition("/")[2]
        return ExportJob(
            draft=report.draft,
            evidence=evidence_of(report, __version__, self.kv.time_text()),
            name=name,
            vendor=gpu.vendor if gpu else "nvidia",
        )

    def _text(self) -> str:
        return self.exporter.write(self._job())

    @on(RowList.Moved, "#export-formats")
    def _moved(self) -> None:
        self._show()

    @on(RowList.Picked, "#export-formats")
    def _picked(self) -> None:
        self.action_copy()

    def _show(self) -> None:
        try:
            content = Content(self._text())
        except InputError as error:
            content = Content.styled(str(error), Tone.BAD)
        self.query_one("#sheet").border_subtitle = self.exporter.title
        self.query_one("#export-text", Line).content = content
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_copy(self) -> None:
        """Copy the text through the terminal."""
        try:
            self.kv.copy_text(self._text(), self.exporter.title)
        except InputError as error:
            self.kv.say(str(error), bad=True)

    def action_write(self) -> None:
        """Ask for a file."""
        field = self.query_one(PathField)
        field.display = True
        field.value = self.exporter.name_for(self._job())
        field.focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        path = Path(event.value.strip()).expanduser()
        if not event.value.strip():
            return
        if path.is_dir():
            path = path / self.exporter.name_for(self._job())
        if path.exists():
            self.app.push_screen(
                ConfirmSheet(f"{path.name} exists. Overwrite it?", str(path.resolve())),
                lambda yes: self._write(path) if yes else None,
            )
        else:
            self._write(path)

    def _write(self, path: Path) -> None:
        try:
            write_whole(path, self._text(), mode=0o755 if self.exporter.executable else 0o644)
        except InputError as error:
            self.kv.say(str(error), bad=True)
            return
        self.kv.say(f"written to {path}")
        self.query_one(PathField).action_leave()
