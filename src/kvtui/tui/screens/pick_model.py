"""Choose a model: what lies on this machine, the catalogue, or a path or hub id that is typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual.content import Content

from kvtui.tui.catalogues import known_models
from kvtui.tui.screens.sheet import FilterField, PickSheet, heading, matches
from kvtui.tui.widgets.row import Row
from kvtui.tui.words import Tone


class ModelSheet(PickSheet[str | None]):
    """Answers with what `--model-path` should name."""

    title_text = "Model"
    placeholder = "type to filter, or a folder, a config.json, a hub id"

    @staticmethod
    def columns(width: int) -> Sequence[int]:
        """Name and note."""
        name = max(24, width * 11 // 20)
        return (name, width - name)

    def rows(self, text: str) -> Sequence[Row]:
        """Local models, then the catalogue, then the text itself."""
        if text.startswith(("/", "~", ".")):
            return folder_rows(text)
        return model_rows(self.kv.local_models, text, typed=True)

    def models_changed(self) -> None:
        """The machine's models were found meanwhile."""
        row = self.list.current
        self.refill(select=row.key if row else None)

    def about(self, key: str) -> Content:
        """What is known of a model before it is chosen."""
        if key.endswith("/"):
            return Content.styled("a folder: Enter looks into it", Tone.QUIET)
        if key == self.text:
            return Content.styled("read as a folder, a config.json or a hub id", Tone.QUIET)
        known = next((m for m in known_models() if m.name == key), None)
        return Content.styled(known.note if known else "", Tone.QUIET)

    def picked(self, key: str) -> None:
        """Answer with the path; a folder without a model is opened instead."""
        if key.endswith("/"):
            field = self.query_one(FilterField)
            field.value = key
            field.cursor_position = len(key)
        else:
            self.dismiss(key)


def folder_rows(text: str, limit: int = 200) -> list[Row]:
    """Folders that begin like `text`: those with a config.json are models, others open."""
    path = Path(text).expanduser()
    parent, start = (path, "") if text.endswith("/") else (path.parent, path.name)
    shown = text if text.endswith("/") else text[: len(text) - len(start)]
    found: list[Row] = []
    for entry in _folders(parent)[:limit]:
        if entry.name.startswith(start) and (start or not entry.name.startswith(".")):
            is_model = (entry / "config.json").is_file()
            key = f"{shown}{entry.name}" + ("" if is_model else "/")
            word = Content.styled("model" if is_model else "", Tone.QUIET)
            found.append(Row(key, (Content(key), word)))
    found.sort(key=lambda row: row.key.endswith("/"))
    if not any(row.key == text for row in found):
        use = Content.assemble("use ", (text, "bold"))
        note = Content.styled("folder or config.json", Tone.QUIET)
        exact = (path / "config.json").is_file() or path.is_file()
        found.insert(0 if exact else len(found), Row(text.rstrip("/") or "/", (use, note)))
    return found


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(entry for entry in parent.iterdir() if entry.is_dir())
    except OSError:
        return []


def model_rows(
    local: Sequence[object] | None, text: str, *, typed: bool, limit: int = 200
) -> list[Row]:
    """Rows of models that match `text`, in groups."""
    from kvtui.tui.prober import LocalModel

    found: list[Row] = []
    here = [m for m in local or () if isinstance(m, LocalModel)]
    shown = [m for m in here if matches(text, m.path, m.note, m.place)]
    names = {m.path for m in here}
    if shown:
        found.append(heading("on this machine"))
        found += [
            Row(m.path, (Content(m.path), Content.styled(_two(m.place, m.note), Tone.QUIET)))
            for m in shown
        ]
    elif local is None and not text:
        found.append(heading("looking for models on this machine …"))
    known = [m for m in known_models() if m.name not in names and matches(text, m.name, m.note)]
    if known:
        found.append(heading("catalogue (no download needed to judge)"))
        found += [
            Row(m.name, (Content(m.name), Content.styled(m.note, Tone.QUIET)))
            for m in known[:limit]
        ]
    if typed and text and not any(row.key == text for row in found):
        row = Row(text, (Content.assemble("use ", (text, "bold")),
                         Content.styled("folder, file or hub id", Tone.QUIET)))  # fmt: skip
        looks_like_path = text.startswith(("/", "~", ".")) or text.count("/") > 1
        found.insert(0, row) if looks_like_path else found.append(row)
    return found


def _two(first: str, second: str) -> str:
    return f"{first} · {second}" if second else first
