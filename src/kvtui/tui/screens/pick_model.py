"""Choose a model: what lies on this machine, the catalogue, or a path or hub id that is typed."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from kvtui.tui.catalogues import known_models
from kvtui.tui.screens.sheet import PickSheet, heading, matches
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
        return model_rows(self.kv.local_models, text, typed=True)

    def models_changed(self) -> None:
        """The machine's models were found meanwhile."""
        row = self.list.current
        self.refill(select=row.key if row else None)

    def about(self, key: str) -> Content:
        """What is known of a model before it is chosen."""
        if key == self.text:
            return Content.styled("read as a folder, a config.json or a hub id", Tone.QUIET)
        known = next((m for m in known_models() if m.name == key), None)
        return Content.styled(known.note if known else "", Tone.QUIET)

    def picked(self, key: str) -> None:
        """Answer with the path."""
        self.dismiss(key)


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
