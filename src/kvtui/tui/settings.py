"""The user's config file, and the draft that is kept in case of a crash."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kvtui.core.draft import Draft
from kvtui.errors import InputError

if TYPE_CHECKING:
    from textual.theme import Theme


def _no_keys() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RecentPreset:
    """A preset that was used lately."""

    path: str
    name: str
    note: str = ""


@dataclass(slots=True)
class Settings:
    """How the app looks and which keys it takes. Without folders nothing is read or kept."""

    theme: str = ""
    """A theme's name; empty for the one chosen last in the app."""
    glyphs: str = "auto"
    """auto | unicode | ascii."""
    keymap: Mapping[str, str] = field(default_factory=_no_keys)
    """Keys by binding id (`pool.run = "ctrl+t"`)."""
    model_folders: tuple[str, ...] = ()
    engine: str = "auto"
    """The SGLang to ask: a Python, an environment's folder, or a command that starts a Python."""
    pool_python: tuple[str, ...] = ()
    """The command of a Python whose torch builds pools; empty for this one."""
    pool_limit: int | None = None
    """Bytes that a pool check may take at most; None for a share of what is free."""
    state: Path | None = None
    """Folder for the kept draft and the list of recent presets."""

    @property
    def kept_path(self) -> Path | None:
        """Where the draft is kept."""
        return self.state / "last-draft.json" if self.state else None

    def keep_draft(self, draft: Draft) -> None:
        """Write the draft beside, then rename; failing costs nothing but the offer next time."""
        path = self.kept_path
        if path is None or not draft.options:
            return
        data = {
            "options": dict(draft.options),
            "env": dict(draft.env),
            "gpu": draft.gpu,
            "gpu_count": draft.gpu_count,
            "unknown": list(draft.unknown),
        }
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(data), encoding="utf-8")
            beside.replace(path)
        except (OSError, TypeError, ValueError):
            beside.unlink(missing_ok=True)

    def kept_draft(self) -> tuple[Draft, float] | None:
        """The draft of the last run with its age in seconds, or None."""
        path = self.kept_path
        if path is None:
            return None
        try:
            age = time.time() - path.stat().st_mtime
            data = json.loads(path.read_text(encoding="utf-8"))
            draft = Draft(
                options=dict(data["options"]),
                env={str(k): str(v) for k, v in data["env"].items()},
                gpu=data["gpu"] if isinstance(data["gpu"], str) else None,
                gpu_count=data["gpu_count"] if isinstance(data["gpu_count"], int) else None,
                unknown=tuple(map(str, data["unknown"])),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return draft, max(0.0, age)

    def last_theme(self) -> str:
        """The theme that was chosen last in the app, or empty."""
        if self.state is None:
            return ""
        try:
            return (self.state / "theme").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def keep_theme(self, theme: Theme) -> None:
        """Remember a theme that was chosen in the app."""
        if self.state is None or theme.name == self.last_theme():
            return
        with suppress(OSError):
            self.state.mkdir(parents=True, exist_ok=True)
            (self.state / "theme").write_text(theme.name, encoding="utf-8")

    @property
    def _recent_path(self) -> Path | None:
        return self.state / "recent.json" if self.state else None

    def recent(self) -> tuple[RecentPreset, ...]:
        """Presets opened or saved lately that are still there, newest first."""
        path = self._recent_path
        if path is None:
            return ()
        try:
            names = [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError, RecursionError):
            return ()
        return tuple(
            RecentPreset(name, Path(name).stem, str(Path(name).parent))
            for name in names[:RECENT]
            if Path(name).is_file()
        )

    def remember(self, preset: str) -> None:
        """Put a preset's file at the top of the recent ones."""
        path = self._recent_path
        if path is None:
            return
        names = [preset, *(r.path for r in self.recent() if r.path != preset)][:RECENT]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(names), encoding="utf-8")
        except OSError:
            return


KNOWN = ("theme", "glyphs", "keys", "models", "engine", "pool_python", "pool_limit")
"""Keys of the config file."""

RECENT = 5
"""Presets that the welcome lists."""


def read_settings(config: Path, state: Path) -> Settings:
    """The config file's settings; a missing file means the defaults.

    Raises InputError naming the file, the key and what was expected.
    """
    try:
        data = tomllib.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings(state=state)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{config}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{config}: {error}") from None
    unknown = set(data) - set(KNOWN)
    if unknown:
        raise InputError(f"{config}: unknown key {sorted(unknown)[0]}",
                         f"known are {', '.join(KNOWN)}")  # fmt: skip
    return Settings(
        theme=_text(config, data, "theme", ""),
        glyphs=_one_of(config, data, "glyphs", ("auto", "unicode", "ascii")),
        keymap=_keys(config, data.get("keys", {})),
        model_folders=_folders(config, data.get("models", [])),
        engine=_text(config, data, "engine", "auto"),
        pool_python=tuple(shlex.split(_text(config, data, "pool_python", ""))),
        pool_limit=_size(config, _text(config, data, "pool_limit", "")),
        state=state,
    )


def _text(config: Path, data: Mapping[str, Any], key: str, default: str) -> str:
    value = data.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{config}: {key}: text was expected")
    return value


def _size(config: Path, text: str) -> int | None:
    if not text:
        return None
    match = re.fullmatch(r"(\d+)\s*([MGT])(?:i?B)?", text.strip())
    if match is None:
        raise InputError(f'{config}: pool_limit: a size such as "512M" or "8G" was expected')
    return int(match[1]) << {"M": 20, "G": 30, "T": 40}[match[2]]


def _one_of(config: Path, data: Mapping[str, Any], key: str, words: tuple[str, ...]) -> str:
    value = data.get(key, words[0])
    if value not in words:
        raise InputError(f"{config}: {key}: one of {', '.join(words)} was expected")
    return str(value)


def _keys(config: Path, data: Any) -> Mapping[str, str]:
    if not isinstance(data, dict) or not all(isinstance(v, str) for v in data.values()):
        raise InputError(f'{config}: keys: lines like "pool.run" = "P" were expected')
    return MappingProxyType(dict(data))


def _folders(config: Path, data: Any) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(v, str) for v in data):
        raise InputError(f"{config}: models: a list of folders was expected")
    return tuple(data)


def standard_paths() -> tuple[Path, Path]:
    """(config file, state folder) of this user."""
    from platformdirs import user_config_path, user_state_path

    return user_config_path("kvtui") / "config.toml", user_state_path("kvtui")
