"""Open and save presets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input

from kvtui.core.preset import Meta, Preset, is_preset_name
from kvtui.errors import InputError
from kvtui.probe.presets import (
    StoredPreset,
    list_presets,
    read_stored,
    save_preset,
    user_folder,
)
from kvtui.tui.screens.confirm import ConfirmSheet
from kvtui.tui.screens.sheet import PickSheet, Sheet, heading, matches
from kvtui.tui.widgets.lines import Line
from kvtui.tui.widgets.row import Row
from kvtui.tui.words import Tone


def _fields(stored: StoredPreset) -> tuple[str, ...]:
    preset = stored.preset
    if preset is None:
        return (stored.name,)
    meta = preset.meta
    return (stored.name, meta.title, meta.goal, *meta.tags, preset.draft.model_path or "")


class OpenSheet(PickSheet[str | None]):
    """Answers with a preset's path."""

    placeholder = "type to filter, or a file"
    empty = "no presets yet: s saves one"

    def __init__(self, title: str = "Open a preset") -> None:
        super().__init__()
        self.title_text = title

    def on_mount(self) -> None:
        """Look once, then filter."""
        self.files = tuple(list_presets())
        super().on_mount()

    @staticmethod
    def columns(width: int) -> Sequence[int]:
        """Name and title."""
        name = max(26, width * 2 // 5)
        return (name, width - name)

    def rows(self, text: str) -> Sequence[Row]:
        """Presets by place."""
        found: list[Row] = []
        for place, shipped in (("yours", False), ("come with kvtui", True)):
            rows = [
                self._row(stored)
                for stored in self.files
                if stored.shipped is shipped and matches(text, *_fields(stored))
            ]
            found += [heading(place), *rows] if rows else []
        if text and Path(text).expanduser().is_file():
            found.insert(0, Row(text, (Content.assemble("open ", (text, "bold")), Content(""))))
        return found

    def _row(self, stored: StoredPreset) -> Row:
        preset = stored.preset
        note = Content.styled(stored.error, Tone.BAD)
        if preset is not None:
            note = Content.styled(preset.meta.title or preset.draft.model_path or "", Tone.QUIET)
        return Row(str(stored.path), (Content(stored.name), note))

    def about(self, key: str) -> Content:
        """Goal, model and proof of the preset under the cursor."""
        stored = next((s for s in self.files if str(s.path) == key), None)
        stored = stored or read_stored(Path(key).expanduser())
        preset = stored.preset
        if preset is None:
            return Content.styled(stored.error, Tone.BAD)
        parts = [preset.meta.goal or preset.meta.title, preset.draft.model_path or ""]
        proof = preset.proof
        if proof is not None:
            stale = ", edited since" if preset.is_stale else ""
            parts.append(f"checked {proof.time}: {proof.verdict}{stale}")
        parts.extend(f"{self.kv.glyphs.warn} {caution}" for caution in preset.cautions)
        return Content.styled("\n".join(part for part in parts if part), Tone.QUIET)

    def picked(self, key: str) -> None:
        """Answer with the file."""
        self.dismiss(key)


class SaveSheet(Sheet[None]):
    """Asks for a name and a title, and writes the preset."""

    title_text = "Save as a preset"

    DEFAULT_CSS = """
    SaveSheet > #sheet { height: 14; max-width: 84; }
    SaveSheet.-narrow > #sheet { height: 14; }
    SaveSheet Input { margin: 0 0 1 0; }
    """

    def compose_body(self) -> ComposeResult:
        """Two fields and what will happen."""
        name = Line(classes="quiet")
        name.content = Content("Name (it becomes the file's name)")
        yield name
        yield Input(id="save-name", placeholder="qwen3-8b-one-gpu")
        title = Line(classes="quiet")
        title.content = Content("What it is for (may be empty)")
        yield title
        yield Input(id="save-title")
        yield Line(id="save-about")

    def on_mount(self) -> None:
        """Propose a name made from the model's."""
        model = (self.kv.report.draft.model_path or "launch").rstrip("/").rpartition("/")[2]
        kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in model.lower())
        field = self.query_one("#save-name", Input)
        field.value = kept.strip("-.") or "launch"
        field.focus()
        self._show()

    @property
    def path(self) -> Path:
        """The file that would be written."""
        return user_folder() / f"{self.query_one('#save-name', Input).value.strip()}.toml"

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show()

    def _show(self) -> None:
        name = self.query_one("#save-name", Input).value.strip()
        about = self.query_one("#save-about", Line)
        if not is_preset_name(name):
            about.content = Content.styled(
                "letters, digits, dot, dash and underscore, beginning with a letter or digit",
                Tone.BAD,
            )
            return
        more = " (exists; you will be asked)" if self.path.exists() else ""
        about.content = Content.styled(f"Enter writes {self.path}{more}", Tone.QUIET)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not is_preset_name(self.query_one("#save-name", Input).value.strip()):
            return
        if self.path.exists():
            self.app.push_screen(
                ConfirmSheet(f"{self.path.name} exists. Overwrite it?"),
                lambda yes: self._write() if yes else None,
            )
        else:
            self._write()

    def _write(self) -> None:
        from kvtui.core.proof import proof_of

        report = self.kv.report
        meta = Meta(title=self.query_one("#save-title", Input).value.strip())
        preset = Preset(report.draft, meta, proof_of(report, self.kv.time_text()))
        try:
            save_preset(preset, self.path.stem, overwrite=True)
        except InputError as error:
            self.kv.say(str(error), bad=True)
            return
        self.kv.settings.remember(str(self.path))
        self.kv.say(f"saved as {self.path.name}")
        self.dismiss(None)
