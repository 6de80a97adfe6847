"""Open and save presets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input

from kvtui.core.preset import Meta, Preset, dump_preset, is_preset_name
from kvtui.errors import InputError
from kvtui.tui.preset_files import PresetFile, preset_files, read_preset, user_folder, write_text
from kvtui.tui.screens.confirm import ConfirmSheet
from kvtui.tui.screens.sheet import PickSheet, Sheet, heading, matches
from kvtui.tui.widgets.lines import Line
from kvtui.tui.widgets.rows import Row
from kvtui.tui.words import Tone


class OpenSheet(PickSheet[str | None]):
    """Answers with a preset's path."""

    title_text = "Open a preset"
    placeholder = "type to filter, or a file"
    empty = "no presets yet: s saves one"

    def on_mount(self) -> None:
        """Look once, then filter."""
        self.files = tuple(preset_files())
        super().on_mount()

    @staticmethod
    def columns(width: int) -> Sequence[int]:
        """Name and title."""
        name = max(26, width * 2 // 5)
        return (name, width - name)

    def rows(self, text: str) -> Sequence[Row]:
        """Presets by place."""
        found: list[Row] = []
        place = ""
        for file in self.files:
            if not matches(text, file.name, file.title):
                continue
            if file.place != place:
                place = file.place
                found.append(heading(place))
            found.append(self._row(file))
        if text and Path(text).expanduser().is_file():
            found.insert(0, Row(text, (Content.assemble("open ", (text, "bold")), Content(""))))
        return found

    def _row(self, file: PresetFile) -> Row:
        note = Content.styled(file.problem or file.title, Tone.BAD if file.problem else Tone.QUIET)
        return Row(str(file.path), (Content(file.name), note))

    def about(self, key: str) -> Content:
        """Goal, model and proof of the preset under the cursor."""
        try:
            preset = read_preset(key)
        except InputError as error:
            return Content.styled(str(error), Tone.BAD)
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
        meta = Meta(title=self.query_one("#save-title", Input).value.strip())
        try:
            write_text(self.path, dump_preset(Preset(self.kv.report.draft, meta)))
        except InputError as error:
            self.kv.say(str(error), bad=True)
            return
        except OSError as error:
            self.kv.say(f"{self.path}: {(error.strerror or str(error)).lower()}", bad=True)
            return
        self.kv.settings.remember(str(self.path))
        self.kv.say(f"saved as {self.path.name}")
        self.dismiss(None)
