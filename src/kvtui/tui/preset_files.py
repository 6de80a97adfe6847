"""Preset files on disk: where they lie, reading one, writing one beside and renaming."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvtui.core.preset import SIZE_LIMIT, Preset, PresetError, load_preset


@dataclass(frozen=True, slots=True)
class PresetFile:
    """A preset that was found, with the little that a list shows."""

    path: Path
    name: str
    title: str
    place: str
    problem: str = ""
    """Why it can't be read, or empty."""


def user_folder() -> Path:
    """Where this user's presets are saved."""
    from platformdirs import user_config_path

    return user_config_path("kvtui") / "presets"


def shipped_folder() -> Path | None:
    """The presets that come with kvtui, or None where they were not installed."""
    here = Path(__file__).resolve().parent.parent
    for folder in (here / "presets", here.parent.parent / "presets"):
        if folder.is_dir():
            return folder
    return None


def preset_files(folders: dict[str, Path | None] | None = None) -> Iterator[PresetFile]:
    """Presets of the user first, then those that come with kvtui."""
    where = folders or {"yours": user_folder(), "comes with kvtui": shipped_folder()}
    for place, folder in where.items():
        if folder is None or not folder.is_dir():
            continue
        for path in sorted(folder.rglob("*.toml")):
            yield _look(path, place)


def _look(path: Path, place: str) -> PresetFile:
    try:
        preset = read_preset(str(path))
    except PresetError as error:
        return PresetFile(path, path.stem, "", place, str(error))
    return PresetFile(path, path.stem, preset.meta.title or preset.draft.model_path or "", place)


def read_preset(path: str) -> Preset:
    """The preset in a file; raises PresetError with one line."""
    where = Path(path).expanduser()
    try:
        if where.stat().st_size > 4 * SIZE_LIMIT:
            raise PresetError(f"{path}: larger than a preset can be")
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise PresetError(f"{path}: {reason.lower()}") from None
    return load_preset(text, path)


def write_text(path: Path, text: str) -> None:
    """Write beside, then rename, so that no half-written file is ever seen; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
