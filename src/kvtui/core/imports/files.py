"""Launches in Dockerfiles, systemd units, Python programs and our own JSON."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.imports.blanks import Blank, Found, blank, found_of
from kvtui.core.imports.keywords import calls_in, draft_of
from kvtui.core.imports.shell import launches_in_shell, program_end
from kvtui.core.imports.yaml_files import in_words
from kvtui.core.options import catalogue
from kvtui.errors import InputError


def launches_in_dockerfile(text: str) -> Iterator[Found]:
    """The launch of ENTRYPOINT and CMD, with ENV and the defaults of ARG."""
    env: dict[str, str] = {}
    arguments: dict[str, str] = {}
    image, parts = "", {"ENTRYPOINT": "", "CMD": ""}
    for line in re.sub(r"\\\s*\n", " ", text).split("\n"):
        word, _, rest = line.strip().partition(" ")
        kind, rest = word.upper(), rest.strip()
        if kind == "FROM":
            image, parts = rest, {"ENTRYPOINT": "", "CMD": ""}
        elif kind in ("ENV", "ARG"):
            into = env if kind == "ENV" else arguments
            into.update(_pairs(rest, {**arguments, **env}))
        elif kind in parts:
            parts[kind] = rest
    words = [w for rest in parts.values() for w in _exec_form(rest)]
    if words:
        yield from in_words(words, env, "Dockerfile", image)
    for rest in parts.values():
        if rest and not rest.startswith("["):
            values = {**arguments, **env}
            for found in launches_in_shell(rest, values):
                kept = {k: v for k, v in found.draft.env.items() if k not in arguments}
                draft = Draft(found.draft.options, kept, unknown=found.draft.unknown)
                yield Found(draft, "Dockerfile", found.blanks)


def _pairs(rest: str, known: Mapping[str, str]) -> dict[str, str]:
    try:
        words = shlex.split(rest)
    except ValueError:
        return {}
    if words and "=" not in words[0]:
        words = [f"{words[0]}={' '.join(words[1:])}"] if len(words) > 1 else []
    pairs = (word.partition("=") for word in words)
    return {name: _from_known(value, known) for name, _, value in pairs}


def _from_known(text: str, known: Mapping[str, str]) -> str:
    return re.sub(
        r"\$\{?([A-Za-z_]\w*)\}?",
        lambda m: known.get(m.group(1), blank("${" + m.group(1) + "}")),
        text,
    )


def _exec_form(rest: str) -> list[str]:
    if not rest.startswith("["):
        return []
    try:
        words = json.loads(rest)
    except (ValueError, RecursionError):
        return []
    return [str(word) for word in words] if isinstance(words, list) else []


_UNIT_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "\\": "\\", '"': '"', "'": "'"}


def unit_words(text: str, percent: bool = True) -> list[str]:
    """Words of a line of a systemd unit, unquoted and unescaped."""
    words: list[str] = []
    at, word, quote = 0, None, ""
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            piece, at = _unit_escape(text, at)
            word = (word or "") + piece
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote, word = char, word or ""
        elif not quote and char in " \t\n":
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + char
    if word is not None:
        words.append(word)
    return [w.replace("%%", "%") for w in words] if percent else words


def _unit_escape(text: str, at: int) -> tuple[str, int]:
    char = text[at]
    if char == "x" and re.fullmatch(r"[0-9a-fA-F]{2}", text[at + 1 : at + 3]):
        return chr(int(text[at + 1 : at + 3], 16)), at + 3
    return _UNIT_ESCAPES.get(char, "\\" + char), at + 1


def launches_in_unit(text: str) -> Iterator[Found]:
    """The launch of ExecStart with the unit's environment."""
    text = re.sub(r"\\\n", " ", text)
    env: dict[str, str] = {}
    for line in text.split("\n"):
        key, _, value = line.strip().partition("=")
        if key == "Environment":
            for word in unit_words(value):
                name, equals, held = word.partition("=")
                if equals:
                    env[name] = held
        elif key == "ExecStart" and value:
            words = [_unit_variables(word, env) for word in unit_words(value)]
            at = program_end(words)
            if at is not None:
                yield found_of(words[at:], env, "ExecStart")
            else:
                yield from in_words(words, env, "ExecStart")


def _unit_variables(word: str, env: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        if match.group(1):
            return "$"
        name = match.group(2) or match.group(3)
        return env.get(name, blank("${" + name + "}"))

    return re.sub(r"\$(?:(\$)|\{(\w+)\}|([A-Za-z_]\w*))", fill, word)


def launches_in_python(text: str) -> Iterator[Found]:
    """Each `Engine(...)` or `ServerArgs(...)` call, with the environment set beside it."""
    env = _environ(text)
    for number, (source, keywords) in enumerate(calls_in(text), 1):
        draft, blanks = draft_of(keywords)
        if draft.options or blanks:
            name = source.partition("(")[0].rpartition(".")[2]
            pairs = (line.partition(": ") for line in blanks)
            named = tuple(Blank(option, value) for option, _, value in pairs)
            yield Found(
                Draft(draft.options, env, unknown=draft.unknown), f"{name} call {number}", named
            )


_ENVIRON = re.compile(r"^\s*os\.environ\[(.+?)\]\s*=\s*(.+)$", re.MULTILINE)


def _environ(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _ENVIRON.findall(text):
        try:
            pair = ast.literal_eval(name), ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(pair[0], str) and isinstance(pair[1], str):
            found[pair[0]] = pair[1]
    return found


def launches_in_json(data: Mapping[str, Any]) -> Iterator[Found]:
    """Our own JSON export, or any object with a command."""
    env = data.get("env")
    texts = {str(k): str(v) for k, v in env.items()} if isinstance(env, dict) else {}
    options = data.get("options")
    if isinstance(options, dict):
        known = catalogue().options
        wrong = next((name for name in options if name not in known), None)
        if wrong is not None:
            raise InputError(f"options: SGLang has no option {wrong!r}")
        hardware = data.get("hardware")
        place = hardware if isinstance(hardware, dict) else {}
        gpu, count = place.get("gpu"), place.get("count")
        unknown = data.get("unknown")
        draft = Draft(
            dict(options),
            texts,
            gpu if isinstance(gpu, str) else None,
            count if isinstance(count, int) else None,
            tuple(map(str, unknown)) if isinstance(unknown, list) else (),
        )
        yield Found(draft, "JSON")
        return
    command = data.get("command") or data.get("argv")
    if isinstance(command, list):
        words = [str(word) for word in command]
        at = program_end(words)
        yield found_of(words[at or 0 :], texts, "JSON")
