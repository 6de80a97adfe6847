"""A command line as the engine reads it: argparse over the option table, and `--config`.

Bad input never raises. What the engine would refuse stays in the draft (illegal values as the
text they are, other words in `unknown`) and the rules of stage `parse` judge it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvtui.core.config_file import ConfigFileError, config_path, merge_config_file
from kvtui.core.draft import Draft
from kvtui.core.options import NEWEST, Catalogue, Option, catalogue
from kvtui.core.values import is_flag_like

ReadFile = Callable[[str], str]
"""Reads a text file by the path in the command line; raises OSError or ValueError."""

HELP = ("-h", "--help")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


@dataclass(frozen=True, slots=True)
class Word:
    """One word as argparse classifies it: an option, or a value where `flag` is None."""

    text: str
    flag: str | None = None
    """The full spelling, or the word itself for one that no option takes."""
    option: Option | None = None
    explicit: str | None = None
    """The value behind `=`."""
    candidates: tuple[str, ...] = ()
    """Spellings that an ambiguous abbreviation could stand for."""

    @property
    def is_value(self) -> bool:
        """True where the word is a value for the option before it."""
        return self.flag is None


@lru_cache(maxsize=4096)
def classify(text: str, version: str = NEWEST) -> Word:
    """Tell option, abbreviation, unknown option and value apart, as argparse does."""
    known = catalogue(version)
    if not text.startswith("-") or text == "-":
        return Word(text)
    if text in known.by_flag:
        return Word(text, text, known.by_flag[text])
    if text == "--" or text in HELP:
        return Word(text, text)
    head, equals, tail = text.partition("=")
    explicit = tail if equals else None
    if head in known.by_flag:
        return Word(text, head, known.by_flag[head], explicit)
    matches = known.starting_with(head) if head.startswith("--") else ()
    if len(matches) == 1:
        return Word(text, matches[0], known.by_flag[matches[0]], explicit)
    if matches:
        return Word(text, text, None, explicit, matches)
    return Word(text, text) if is_flag_like(text) else Word(text)


def split_program(words: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Environment assignments and the engine's own words of a whole command.

    Takes `sglang serve …`, `python -m sglang.launch_server …` and the words alone.
    """
    rest = list(words)
    env: dict[str, str] = {}
    if rest and rest[0] == "env":
        del rest[0]
    while rest and _ASSIGNMENT.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        env[name] = value
    if rest[:1] and rest[0].rpartition("/")[2] == "sglang" and rest[1:2] == ["serve"]:
        del rest[:2]
    elif rest[:1] and _PYTHON.fullmatch(rest[0]) and "sglang.launch_server" in rest[1:4]:
        del rest[: rest.index("sglang.launch_server") + 1]
    return env, tuple(rest)


def parse(words: Sequence[str], version: str = NEWEST, read_file: ReadFile | None = None) -> Draft:
    """The draft that a command line stands for; `read_file` reads the file of `--config`."""
    known = catalogue(version)
    env, rest = split_program(words)
    rest = _without_model_type(rest)
    if rest and not rest[0].startswith("-"):
        rest = ("--model-path", *rest)
    misread: dict[str, str] = {}
    if "--config" in rest:
        try:
            if read_file is None:
                config_path(rest)
            else:
                rest = merge_config_file(rest, known, read_file)
        except ConfigFileError as error:
            misread["config"] = str(error)
    reader = _Reader(known)
    reader.take([classify(word, version) for word in rest])
    return Draft(
        options=reader.options,
        env=env,
        unknown=(*reader.strays, *reader.unknown),
        spelled=reader.spelled,
        misread=misread,
    )


def _without_model_type(words: tuple[str, ...]) -> tuple[str, ...]:
    """`sglang serve` takes its own back-end selector out before the engine parses."""
    for index, word in enumerate(words):
        if word == "--model-type" and words[index + 1 : index + 2] in (("llm",), ("auto",)):
            return (*words[:index], *words[index + 2 :])
        if word in ("--model-type=llm", "--model-type=auto"):
            return (*words[:index], *words[index + 1 :])
    return words


class _Reader:
    """Walks classified words and collects what argparse would store, or could not."""

    def __init__(self, known: Catalogue) -> None:
        self.known = known
        self.options: dict[str, Any] = {}
        self.spelled: dict[str, str] = {}
        self.unknown: list[str] = []
        self.strays: list[str] = []

    def take(self, words: Sequence[Word]) -> None:
        """Read all words in order; a later option wins over an earlier one."""
        index = 0
        while index < len(words):
            word = words[index]
            index += 1
            if word.text == "--":
                self.strays += [w.text for w in words[index - 1 :]]
                return
            if word.is_value:
                self.strays.append(word.text)
                continue
            values = [w.text for w in _values(words, index)]
            index += self._option(word, values)

    def _option(self, word: Word, values: Sequence[str]) -> int:
        """Read one option with the values at hand; how many of them it took."""
        option = word.option
        if option is None:
            self.unknown += [word.text, *values]
            return len(values)
        if not option.takes_value:
            if word.explicit is None:
                self._store(option, word, not (word.flag or "").startswith("--no-"))
            else:
                self.unknown.append(word.text)
            return 0
        taken = 0
        if word.explicit is not None:
            values = (word.explicit,)
        else:
            taken = len(values) if option.many else min(len(values), 1)
            values = values[:taken]
        if not values and option.nargs not in ("*", "?"):
            self.unknown.append(word.text)
        else:
            self._store(option, word, self._value(option, values))
        return taken

    def _value(self, option: Option, values: Sequence[str]) -> Any:
        if option.kind == "deprecated_const":
            return option.const if option.problem(values[0]) is None else values[0]
        if option.many:
            return [_read(option, value) for value in values]
        return _read(option, values[0]) if values else option.const

    def _store(self, option: Option, word: Word, value: Any) -> None:
        self.spelled.pop(option.name, None)
        self._keep_refused(option)
        if value is None:
            self.options.pop(option.name, None)
            return
        self.options[option.name] = value
        main = self.known.options[option.name].flag
        written = word.text.partition("=")[0]
        if written != main or (option.name == "config" and word.explicit is not None):
            self.spelled[option.name] = word.text if option.name == "config" else written

    def _keep_refused(self, option: Option) -> None:
        """argparse stops at an illegal value even where a later one replaces it."""
        earlier = self.options.get(option.name)
        if earlier is not None and self.known.options[option.name].problem(earlier) is not None:
            text = " ".join(map(str, earlier)) if isinstance(earlier, list) else str(earlier)
            self.unknown.append(f"{option.flag}={text}")


def _values(words: Sequence[Word], start: int) -> Iterator[Word]:
    for word in words[start:]:
        if not word.is_value:
            return
        yield word


def _read(option: Option, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError:
        return text
