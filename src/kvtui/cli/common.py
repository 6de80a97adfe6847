"""What several words share: reading a launch from arguments or a preset, and its facts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from kvtui.core.draft import ENV_NAME, MODEL_OPTIONS, Draft
from kvtui.core.facts import Checkpoint, Facts, GpuFacts, HostFacts
from kvtui.core.gpus import find_gpu, nearest_gpus
from kvtui.errors import InputError


class Parser(argparse.ArgumentParser):
    """argparse, but with one line for an error and never an abbreviation of our own options."""

    def __init__(self, word: str, usage: str, description: str, examples: Sequence[str] = ()):
        epilog = "\n".join(["examples:", *(f"  {line}" for line in examples)]) if examples else None
        super().__init__(
            prog=f"kvtui {word}",
            usage=f"kvtui {word} {usage}",
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage block."""
        raise InputError(message, f"see {self.prog} --help")


def split_words(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Our own words, and what stands behind `--` (None where there is no `--`)."""
    if "--" not in words:
        return list(words), None
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of every word that takes one launch."""
    parser.add_argument("preset", nargs="?", help="a preset's name or file")
    parser.add_argument("--gpu", help="catalogue key (kvtui gpus) or 'local'")
    parser.add_argument("--gpu-count", type=int, metavar="N", help="GPUs on the machine")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE",
        help="an environment variable of the launch (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--download", action="store_true",
        help="fetch a model's JSON files from the hub when it is not here",
    )  # fmt: skip


def read_launch(args: argparse.Namespace, engine_words: list[str] | None) -> Draft:
    """The draft that a command line names: a preset, or SGLang's arguments behind `--`."""
    if args.preset is not None and engine_words is not None:
        raise InputError("both a preset and arguments behind -- were given", "give one of them")
    if args.preset is not None:
        draft = read_preset(args.preset)
    elif engine_words is not None:
        draft = parse_words(engine_words)
    else:
        raise InputError(
            "no launch was given", "name a preset, or put SGLang's arguments behind --"
        )
    env = {**draft.env, **parse_env(args.env)}
    count = getattr(args, "gpu_count", None)
    if count is not None and not 1 <= count <= 4096:
        raise InputError(f"--gpu-count {count}: a number from 1 to 4096 was expected")
    return replace(draft, env=env, gpu=args.gpu or draft.gpu, gpu_count=count or draft.gpu_count)


def parse_words(words: Sequence[str]) -> Draft:
    """A draft from SGLang's own arguments, read as its parser reads them."""
    from kvtui.core.argv import parse

    return parse(words, read_file=read_text)


def read_text(path: str, limit: int = 16 << 20) -> str:
    """The text of a user's file; raises InputError with one line."""
    try:
        where = Path(path).expanduser()
        if where.is_file() and where.stat().st_size > limit:
            raise InputError(f"{path}: larger than {limit >> 20} MiB")
        return where.read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not readable as UTF-8 text"
        raise InputError(f"{path}: {reason.lower()}") from None


def read_input(name: str) -> str:
    """A file's text, or standard input for `-`."""
    if name != "-":
        return read_text(name)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8 text") from None


def read_preset(name: str) -> Draft:
    """The draft of a preset, found by name or file."""
    from kvtui.probe.presets import find_preset

    return find_preset(name).draft


def parse_env(items: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` items as a mapping; raises InputError for another form."""
    env: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals and name in os.environ:
            value, equals = os.environ[name], "="
        if not equals or not ENV_NAME.fullmatch(name) or "\0" in value:
            raise InputError(f"--env {item}: NAME=VALUE was expected")
        env[name] = value
    return env


def gpu_facts(name: str | None) -> tuple[GpuFacts | None, int, str]:
    """(GPU, how many, reason where there is none) for a catalogue name, `local` or nothing."""
    if name is not None and name != "local":
        gpu = find_gpu(name)
        if gpu is None:
            near = nearest_gpus(name)
            hint = f"nearest: {', '.join(near)}" if near else "kvtui gpus lists them"
            raise InputError(f"--gpu {name}: not in the catalogue", hint)
        return gpu, 8, ""
    from kvtui.probe.gpu import read_gpus

    found = read_gpus()
    return found.first, found.count, found.reason


class FactSource:
    """Facts for one launch after another; checkpoints and GPUs are read once."""

    def __init__(self, *, download: bool = False) -> None:
        self.download = download
        self._checkpoints: dict[str, Checkpoint | str] = {}
        self._gpus: dict[str | None, tuple[GpuFacts | None, int, str]] = {}
        self._host: HostFacts | None = None
        self._host_read = False

    def checkpoint(self, path: str) -> Checkpoint | str:
        """The checkpoint, or the reason why there is none."""
        from kvtui.probe.model import load_checkpoint

        if path not in self._checkpoints:
            try:
                self._checkpoints[path] = load_checkpoint(path, download=self.download)
            except InputError as error:
                self._checkpoints[path] = str(error)
        return self._checkpoints[path]

    def facts(self, draft: Draft, *, with_host: bool = True) -> Facts:
        """Everything that can be known about a draft without asking an engine or building."""
        from kvtui.probe.host import read_host

        missing: dict[str, str] = {}
        if draft.gpu not in self._gpus:
            self._gpus[draft.gpu] = gpu_facts(draft.gpu)
        gpu, count, reason = self._gpus[draft.gpu]
        if gpu is None:
            missing["gpu"] = f"{reason}; name one with --gpu"
        checkpoints: dict[str, Checkpoint] = {}
        for option in MODEL_OPTIONS:
            path = draft.options.get(option)
            if not isinstance(path, str) or path in checkpoints:
                continue
            found = self.checkpoint(path)
            if isinstance(found, str):
                missing[f"model:{path}"] = found
            else:
                checkpoints[path] = found
        if with_host and not self._host_read:
            self._host, self._host_read = read_host(), True
        # A claimed GPU is in another machine: this host's memory says nothing about that one.
        host = self._host if with_host and gpu is not None and gpu.local else None
        return Facts(
            checkpoints=checkpoints,
            gpu=gpu,
            gpu_count=draft.gpu_count or count or 1,
            host=host,
            missing=missing,
        )
