"""Launches written as Python: `Engine(...)` keywords and the `ServerArgs(...)` line of a log."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.options import NEWEST, catalogue
from kvtui.core.translate import read_values, translations

CALL = re.compile(r"\b(?:(?:[A-Za-z_][\w.]*\.)?(?:Engine|ServerArgs))\s*\(")
"""Opens a call whose keywords are a launch."""

SIZE_LIMIT = 1 << 18
"""Characters of the longest call that is read."""


class Blank:
    """A value that could not be known; its text names it."""

    def __init__(self, text: str) -> None:
        self.text = text


def calls_in(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(text of the call, keywords) for each launch written as a Python call."""
    for match in CALL.finditer(text):
        end = _closing(text, match.end() - 1)
        if end is None:
            continue
        source = text[match.start() : end]
        keywords = keywords_of(source)
        if keywords is not None:
            yield source, keywords


def _closing(text: str, start: int) -> int | None:
    """Index behind the parenthesis that closes the one at `start`; strings are skipped."""
    depth, quote, index = 0, "", start
    limit = min(len(text), start + SIZE_LIMIT)
    while index < limit:
        char = text[index]
        if quote:
            if char == "\\":
                index += 1
            elif text.startswith(quote, index):
                index += len(quote) - 1
                quote = ""
        elif char in "'\"":
            quote = char * 3 if text.startswith(char * 3, index) else char
            index += len(quote) - 1
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return index + 1
        index += 1
    return None


def keywords_of(source: str) -> dict[str, Any] | None:
    """Keywords of a call, values that are no plain data as `Blank`; None where it is no call."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _loose_keywords(source)
    if not isinstance(tree, ast.Call):
        return None
    found: dict[str, Any] = {}
    for keyword in tree.keywords:
        if keyword.arg is not None:
            found[keyword.arg] = _plain(keyword.value)
        elif isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found[key.value] = _plain(value)
    if tree.args and "model_path" not in found:
        found["model_path"] = _plain(tree.args[0])
    return found


def _plain(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return Blank(ast.unparse(node)[:80])


_ITEM = re.compile(
    r"(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|None|True|False|-?[\d.]+(?:e-?\d+)?)(?=[,)])"
)


def _loose_keywords(source: str) -> dict[str, Any] | None:
    """Keywords with plain values, where a printed object in between is no Python."""
    found = {name: ast.literal_eval(value) for name, value in _ITEM.findall(source)}
    return found or None


def draft_of(keywords: Mapping[str, Any], version: str = NEWEST) -> tuple[Draft, tuple[str, ...]]:
    """The draft of keyword values that differ from the defaults, and the blanks left open."""
    known = catalogue(version)
    options: dict[str, Any] = {}
    unknown: list[str] = []
    blanks: list[str] = []
    for name, value in keywords.items():
        option = known.options.get(name)
        if isinstance(value, Blank):
            if option is None or option.flags:
                blanks.append(f"{name}: {value.text}")
        elif option is not None:
            if option.flags and value is not None and value != known.defaults[name]:
                options[name] = list(value) if isinstance(value, tuple) else value
        elif value is not None and value is not False and not name.startswith("_"):
            _old_keyword(name, value, options, unknown)
    return Draft(options=options, unknown=tuple(unknown)), tuple(blanks)


def _old_keyword(name: str, value: Any, options: dict[str, Any], unknown: list[str]) -> None:
    """A keyword of another release: today's option where the table has one, else a word."""
    word = "--" + name.replace("_", "-")
    old = translations().options.get(word)
    if old is not None and old.release and value is not True:
        for target, meant in old.to.items():
            if meant == "=" and not target.startswith("env:"):
                read = read_values(catalogue().options[target], (str(value),))
                if read is not None:
                    options.setdefault(target, read)
                    return
    if old is None and not isinstance(value, bool):
        return
    unknown += [word] if value is True else [word, str(value)]
