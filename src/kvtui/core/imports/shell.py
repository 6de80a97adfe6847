"""Launches in shell text: variables, arrays, `docker run`, nested `bash -c`; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kvtui.core.imports.blanks import Found, blank, found_of, has_blank
from kvtui.core.imports.lexer import Command, Lexer, Piece, Token

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_LAUNCHER = re.compile(
    r"(?:.*/)?(?:sglang[./])(?:srt[./])?launch_server(?:\.py)?|.*launch_server\.py"
)
_SHELLS = re.compile(r"(?:.*/)?(?:ba|da|z|k)?sh")
DEPTH = 4
"""Shells within shells that are looked into."""


@dataclass(slots=True)
class Scope:
    """What the text has set so far."""

    values: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    exported: dict[str, None] = field(default_factory=dict)

    def env(self) -> dict[str, str]:
        """Exported variables with their values."""
        return {name: self.values[name] for name in self.exported if name in self.values}


def launches_in_shell(text: str, env: Mapping[str, str] | None = None) -> Iterator[Found]:
    """Every launch in shell text."""
    scope = Scope(dict(env or {}), {}, dict.fromkeys(env or {}))
    yield from _launches(text, scope, 0)


def _launches(text: str, scope: Scope, depth: int) -> Iterator[Found]:
    commands = Lexer(text).commands()
    for index, command in enumerate(commands):
        words = words_of(command, scope, depth)
        while words and words[0] in ("$", ">", "%", "then", "do", "else", "{", "!", "time"):
            del words[0]
        assigned = _assign(command, words, scope)
        if not assigned and words:
            yield from _launch(words, scope, command.line, depth)
            if index == 0 and depth == 0 and words[0].startswith("--"):
                yield found_of(words, scope.env(), f"line {command.line}")


def words_of(command: Command, scope: Scope, depth: int = 0) -> list[str]:
    """A command's words with what is known filled in; array assignments are carried out."""
    out: list[str] = []
    for token in command.words:
        if token.array is not None:
            name, plus, _ = _ASSIGNMENT.match(token.literal or _head(token)).groups()  # type: ignore[union-attr]
            items = [w for item in token.array for w in expand(item, scope, depth)]
            scope.arrays[name] = (scope.arrays.get(name, []) if plus else []) + items
            continue
        out += expand(token, scope, depth)
    return out


def _head(token: Token) -> str:
    return "".join(piece.text for piece in token.pieces)


def expand(token: Token, scope: Scope, depth: int = 0) -> list[str]:
    """The words that one word of the text becomes; unquoted values are split at spaces."""
    words: list[str] = [""]
    empty = not any(piece.quoted for piece in token.pieces)
    for piece in token.pieces:
        values = _values(piece, scope, depth)
        if piece.kind == "text":
            words[-1] += piece.text
        elif piece.text.endswith("[@]") or piece.text == "@":
            if values:
                words[-1] += values[0]
                words += values[1:]
                empty = False
            elif len(token.pieces) <= 2:
                return []
        elif piece.quoted or has_blank(values[0]):
            words[-1] += values[0]
        else:
            parts = values[0].split()
            if parts:
                words[-1] += parts[0]
                words += parts[1:]
    return [] if words == [""] and empty and token.pieces else words


def _values(piece: Piece, scope: Scope, depth: int) -> list[str]:
    """What one piece stands for: one value, or an array's elements."""
    if piece.kind == "unknown":
        return [blank(piece.text)]
    name = piece.text
    if name == "@":
        return []
    if name.endswith("[@]"):
        found = scope.arrays.get(name[:-3])
        return found if found is not None else [blank("${" + name + "}")]
    if name in scope.values:
        value = scope.values[name]
        if value or piece.fallback is None:
            return [value]
    elif name in scope.arrays:
        return scope.arrays[name][:1] or [""]
    if piece.fallback is not None and depth < DEPTH:
        commands = Lexer(f'"{piece.fallback}"' if piece.quoted else piece.fallback).commands()
        inner = [w for c in commands for w in words_of(c, scope, depth + 1)]
        return [" ".join(inner)]
    return [blank("${" + name + "}")]


def _assign(command: Command, words: list[str], scope: Scope) -> bool:
    """Carry out a command that only sets variables; True where it was one."""
    if not words:
        return True
    exports = words[0] in ("export", "declare", "local", "readonly", "typeset")
    items = words[1:] if exports else words
    if not exports and not all(_ASSIGNMENT.fullmatch(word) for word in items):
        return False
    for item in items:
        match = _ASSIGNMENT.fullmatch(item)
        if match:
            name, plus, value = match.groups()
            scope.values[name] = (scope.values.get(name, "") if plus else "") + value
        if words[0] == "export" and re.fullmatch(r"[A-Za-z_]\w*", item.partition("=")[0]):
            scope.exported[item.partition("=")[0]] = None
    return True


def _launch(words: list[str], scope: Scope, line: int, depth: int) -> Iterator[Found]:
    at = program_end(words)
    if at is not None:
        before = words[:at]
        env = {**scope.env(), **_prefix_env(before), **_container_env(before, scope)}
        yield found_of(words[at:], env, f"line {line}")
        return
    for index, word in enumerate(words):
        if _SHELLS.fullmatch(word) and depth < DEPTH:
            script = _script_behind(words[index + 1 :])
            if script is not None:
                before = words[:index]
                env = {**scope.env(), **_prefix_env(before), **_container_env(before, scope)}
                inner = Scope({**scope.values, **env}, dict(scope.arrays), dict.fromkeys(env))
                for found in _launches(script, inner, depth + 1):
                    yield replace(found, title=f"line {line}")
                return


def program_end(words: list[str]) -> int | None:
    """Index behind the engine's own program words, or None where they are not there."""
    for index, word in enumerate(words):
        if word.rpartition("/")[2] == "sglang" and words[index + 1 : index + 2] == ["serve"]:
            return index + 2
        if _LAUNCHER.fullmatch(word):
            return index + 1
    return None


def _script_behind(words: list[str]) -> str | None:
    """The text of `-c TEXT`, options like `-lc` included."""
    for index, word in enumerate(words):
        if re.fullmatch(r"-[a-z]*c", word):
            return words[index + 1] if index + 1 < len(words) else None
        if not word.startswith("-"):
            return None
    return None


def _prefix_env(words: list[str]) -> dict[str, str]:
    """Assignments in front of a command, `env` and its like included."""
    found: dict[str, str] = {}
    for word in words:
        match = _ASSIGNMENT.fullmatch(word)
        if match and not match.group(2):
            found[match.group(1)] = match.group(3)
        elif word not in ("env", "exec", "nohup", "sudo", "time"):
            break
    return found


_ENV_FLAGS = ("-e", "--env")


def _container_env(words: list[str], scope: Scope) -> dict[str, str]:
    """Variables of `docker run -e NAME=VALUE`; a name alone takes the value set before."""
    if not {"docker", "podman", "nerdctl"} & {word.rpartition("/")[2] for word in words[:4]}:
        return {}
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        flag, equals, given = word.partition("=")
        if word in _ENV_FLAGS and index + 1 < len(words):
            given = words[index + 1]
        elif not (flag == "--env" and equals):
            continue
        name, equals, value = given.partition("=")
        if equals:
            found[name] = value
        else:
            found[name] = scope.values.get(name, blank("${" + name + "}"))
    return found
