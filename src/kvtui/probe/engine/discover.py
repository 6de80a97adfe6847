"""Where an SGLang may be: this Python, the active environment, a path, or a command."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvtui.errors import InputError


@dataclass(frozen=True, slots=True)
class EnginePython:
    """A way to start a Python that has SGLang: the command's words, and its place for people."""

    command: tuple[str, ...]
    place: str


def find_engine(wanted: str = "auto") -> EnginePython | None:
    """The engine that `--engine WANTED` means; None where `auto` finds nothing.

    Raises InputError for a path or command that can't be one.
    """
    if wanted == "auto":
        return next(_nearby(), None)
    try:
        words = shlex.split(wanted)
    except ValueError as error:
        raise InputError(f"--engine {wanted}: {error}", "quote it as for a shell") from None
    whole = Path(wanted).expanduser()
    if whole.exists():
        words = [str(whole)]
    if not words:
        raise InputError("--engine: a Python or a command that starts one was expected")
    first = Path(words[0]).expanduser()
    if len(words) == 1 and first.is_dir():
        inside = first / "bin" / "python"
        if not inside.exists():
            raise InputError(f"--engine {wanted}: no bin/python in that folder")
        return EnginePython((str(inside),), str(first))
    found = str(first) if first.exists() else shutil.which(words[0])
    if found is None:
        raise InputError(f"--engine {words[0]}: no such program", "name a Python or a command")
    if len(words) == 1 and not os.access(found, os.X_OK):
        raise InputError(f"--engine {found}: not executable")
    return EnginePython((found, *words[1:]), shlex.join(words) if len(words) > 1 else found)


def _nearby() -> Iterator[EnginePython]:
    if importlib.util.find_spec("sglang") is not None:
        yield EnginePython((sys.executable,), "kvtui's own Python")
    environment = os.environ.get("VIRTUAL_ENV")
    if environment:
        python = Path(environment) / "bin" / "python"
        if python.exists() and has_sglang(Path(environment)):
            yield EnginePython((str(python),), environment)
    script = shutil.which("sglang")
    if script is not None:
        interpreter = _interpreter_of(Path(script))
        if interpreter is not None:
            yield EnginePython((str(interpreter),), str(interpreter.parent.parent))


def has_sglang(environment: Path) -> bool:
    """Whether a virtual environment holds SGLang, told from its folders alone."""
    return any(environment.glob("lib/python3*/site-packages/sglang/__init__.py"))


def _interpreter_of(script: Path) -> Path | None:
    try:
        with script.open("rb") as file:
            first = file.readline(512).decode("utf-8", "replace").strip()
    except OSError:
        return None
    if not first.startswith("#!"):
        return None
    python = Path(first.removeprefix("#!").split()[0])
    return python if python.exists() and "python" in python.name else None
