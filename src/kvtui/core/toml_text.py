"""Writing our own small TOML: flat tables, and edits of existing text that keep its comments."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Data = Mapping[str, Any]
"""Top-level keys; a mapping as value is a table of plain values."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_-]+)\s*\]\s*(?:#.*)?")
_KEY = re.compile(r"""\s*(?:([A-Za-z0-9_-]+)|("(?:[^"\\]|\\.)*"))\s*=\s*""")


def key_text(key: str) -> str:
    """A key as TOML writes it."""
    return key if _BARE.fullmatch(key) else value_text(key)


def value_text(value: Any) -> str:
    """A value as one line of TOML; raises ValueError for what TOML can't hold."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError("text with half characters can't be written")
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{key_text(str(k))} = {value_text(v)}" for k, v in value.items())
        return "{ " + inner + " }" if inner else "{}"
    raise ValueError(f"{type(value).__name__} can't be written as TOML")


def write(data: Data) -> str:
    """Fresh TOML text: plain keys first, then a table for each mapping."""
    lines = [f"{key_text(k)} = {value_text(v)}" for k, v in data.items() if not _is_table(v)]
    for name, table in data.items():
        if _is_table(table) and table:
            lines += ["", f"[{key_text(name)}]", *_table_lines(table)]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _table_lines(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, str) and "\n" in value:
            yield f"{key_text(key)} = {_multiline(value)}"
        else:
            yield f"{key_text(key)} = {value_text(value)}"


def _multiline(value: str) -> str:
    lines = [value_text(line)[1:-1].replace('\\"', '"') for line in value.split("\n")]
    text = '"""\n' + "\n".join(lines).replace('"""', '""\\"') + '"""'
    if text.endswith('""""') or "\r" in value:
        return value_text(value)
    return text


def rewrite(text: str, data: Data) -> str:
    """`text` edited to hold `data`, its comments and order kept where they can be.

    Falls back to fresh text where the edit would not read back as `data`.
    """
    try:
        edited = "\n".join(_edit(text.split("\n"), data)).rstrip("\n") + "\n"
        if tomllib.loads(edited) == tomllib.loads(write(data)):
            return edited
    except tomllib.TOMLDecodeError:
        pass
    return write(data)


def _edit(lines: list[str], data: Data) -> list[str]:
    out: list[str] = []
    table = ""
    left = {"": {k: v for k, v in data.items() if not _is_table(v)}}
    left |= {k: dict(v) for k, v in data.items() if _is_table(v) and v}
    seen: set[str] = set()
    index = 0
    while index < len(lines):
        line = lines[index]
        header = _HEADER.fullmatch(line)
        if header:
            _append(out, left.get(table))
            table = header.group(1)
            seen.add(table)
        key = None if header else _KEY.match(line)
        if key is None:
            if table in left or table == "":
                out.append(line)
            index += 1
            continue
        end = _end_of_value(lines, index)
        name = key.group(1) or json.loads(key.group(2))
        wanted = left.get(table, {})
        if name in wanted:
            out.append(_with_value(lines[index:end], key.group(0), wanted.pop(name)))
        index = end
    _append(out, left.get(table))
    for name, rest in left.items():
        if name and name not in seen:
            out += ["", f"[{key_text(name)}]", *_table_lines(rest)]
    return out


def _append(out: list[str], rest: dict[str, Any] | None) -> None:
    """Put keys that the text does not have yet at the end of their table."""
    if not rest:
        return
    blank = 0
    while out and not out[-1].strip():
        out.pop()
        blank += 1
    out += [*_table_lines(rest), *[""] * blank]
    rest.clear()


def _end_of_value(lines: list[str], start: int) -> int:
    """Index behind the last line of the value that begins in `start`."""
    for end in range(start + 1, len(lines) + 1):
        try:
            tomllib.loads("\n".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
        return end
    return start + 1


def _with_value(lines: list[str], head: str, value: Any) -> str:
    """The lines of one key with a new value; unchanged where it says the same already."""
    old = "\n".join(lines)
    try:
        held = next(iter(tomllib.loads(old).values()))
    except tomllib.TOMLDecodeError:
        held = None
    if held == value and type(held) is type(value):
        return old
    comment = _comment(lines[0][len(head) :]) if len(lines) == 1 else ""
    return head + value_text(value) + (f"  {comment}" if comment else "")


def _comment(rest: str) -> str:
    """The comment behind a value on one line."""
    for match in re.finditer("#", rest):
        try:
            tomllib.loads(f"x = {rest[: match.start()]}")
        except tomllib.TOMLDecodeError:
            continue
        return rest[match.start() :]
    return ""
