"""Presets on disk: the shipped ones, the user's own, and any file by its path."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from kvtui.core.pair import Pair, is_pair, load_pair
from kvtui.core.preset import Meta, Preset, dump_preset, is_preset_name, load_preset
from kvtui.core.suggest import nearest
from kvtui.errors import InputError

READ_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredPreset:
    """A preset that was found: read, or with the reason why it can't be."""

    name: str
    path: Path
    preset: Preset | None
    error: str = ""
    shipped: bool = False
    pair: Pair | None = None
    """A prefill/decode pair, which is two launches that must agree."""

    @property
    def meta(self) -> Meta | None:
        """What it is for, where it could be read."""
        if self.pair is not None:
            return self.pair.meta
        return self.preset.meta if self.preset is not None else None


def user_folder() -> Path:
    """Where the user's own presets are kept."""
    import platformdirs

    return platformdirs.user_config_path("kvtui") / "presets"


def shipped_folder() -> Path:
    """Presets that come with kvtui: inside the package, or beside `src` in a checkout."""
    inside = Path(str(resources.files("kvtui"))) / "presets"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[3] / "presets"


def preset_folders() -> tuple[Path, ...]:
    """Folders that a name is looked for in, the user's own first."""
    return user_folder(), shipped_folder()


def list_presets() -> Iterator[StoredPreset]:
    """Every preset of every folder; a name in the user's folder hides a shipped one."""
    seen: set[str] = set()
    for folder in preset_folders():
        try:
            paths = sorted(folder.glob("*.toml")) + sorted(folder.glob("pairs/*.toml"))
        except OSError:
            continue
        for path in paths:
            if path.stem not in seen:
                seen.add(path.stem)
                yield read_stored(path)


def read_stored(path: Path) -> StoredPreset:
    """A preset file, or why it can't be read."""
    shipped = shipped_folder() in path.parents
    try:
        text = _text(path)
        if is_pair(text):
            pair = load_pair(text, str(path))
            return StoredPreset(path.stem, path, None, shipped=shipped, pair=pair)
        return StoredPreset(path.stem, path, load_preset(text, str(path)), shipped=shipped)
    except InputError as error:
        return StoredPreset(path.stem, path, None, str(error), shipped)


def find_stored(name: str) -> StoredPreset:
    """The preset of a name or path; raises InputError with the nearest names."""
    path = Path(name).expanduser()
    if path.suffix == ".toml" or "/" in name:
        if not path.is_file():
            raise InputError(f"{name}: no such preset file", "kvtui preset list shows names")
        return _usable(read_stored(path))
    for folder in preset_folders():
        for candidate in (folder / f"{name}.toml", folder / "pairs" / f"{name}.toml"):
            if is_preset_name(name) and candidate.is_file():
                return _usable(read_stored(candidate))
    known = [stored.name for stored in list_presets()]
    near = nearest(name, known)
    hint = f"nearest: {near}" if near else "kvtui preset list shows names"
    raise InputError(f"{name}: no such preset", hint)


def find_preset(name: str) -> Preset:
    """The preset itself; raises InputError."""
    preset = find_stored(name).preset
    assert preset is not None
    return preset


def _usable(stored: StoredPreset) -> StoredPreset:
    if stored.pair is not None:
        raise InputError(f"{stored.path}: a prefill/decode pair", "kvtui check and export take it")
    if stored.preset is None:
        raise InputError(stored.error)
    return stored


def save_preset(preset: Preset, name: str, *, overwrite: bool = False) -> Path:
    """Write a preset under a name into the user's folder, or to a path; comments are kept.

    Raises InputError for a bad name, or a file that is there and was not to be replaced.
    """
    if name.endswith(".toml") or "/" in name:
        path = Path(name).expanduser()
    elif is_preset_name(name):
        path = user_folder() / f"{name}.toml"
    else:
        raise InputError(
            f"{name!r} can't be a preset's name", "letters, digits, dots and dashes, up to 80"
        )
    previous = None
    if path.exists():
        if not overwrite:
            raise InputError(f"{path}: is there already", "say --force to replace it")
        previous = _text(path)
    write_whole(path, dump_preset(preset, previous))
    return path


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write beside and rename, so that no reader ever sees half a file; raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(beside, mode)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        reason = (error.strerror or "can't be written").lower()
        raise InputError(f"{path}: {reason}") from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > READ_LIMIT:
            raise InputError(f"{path}: larger than {READ_LIMIT >> 20} MiB")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or 'not readable').lower()}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
