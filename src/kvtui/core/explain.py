"""A pasted error or a whole log: what it means, which option, what to change."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kvtui.core.explain_mentions import Mentions, meaning_of, mentions_in
from kvtui.core.resolution import Rule

TEXT_LIMIT = 4 << 20
"""Characters that are searched, from the end of the text."""

SHORT = 4000
"""Characters up to which a text is taken for a pasted error, not a log."""

MOST = 12
"""Explanations that are given at most."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One error in the text, with everything that can be said about it."""

    meaning: str
    change: str
    line: str
    """The line that it was found in, shortened."""
    line_number: int
    options: tuple[str, ...] = ()
    """SGLang's field names, the one to look at first in front; `env:NAME` for the environment."""
    classes: tuple[str, ...] = ()
    rule: str | None = None
    """Id of the rule that finds this before the launch."""
    why: str = ""
    source: str = ""
    """file:line of the engine where it is raised, where that is known."""

    @property
    def option(self) -> str | None:
        """The option to look at first."""
        return self.options[0] if self.options else None

    @property
    def is_recognised(self) -> bool:
        """True where the very error is known, not only the words in it."""
        return bool(self.rule or self.source)


@dataclass(frozen=True, slots=True)
class KnownError:
    """An error that no rule finds ahead, from the table."""

    fragments: tuple[str, ...]
    options: tuple[str, ...]
    meaning: str
    change: str
    source: str
    rule: str | None = None
    """Id of the rule that finds the cause ahead."""


@cache
def known_errors() -> tuple[KnownError, ...]:
    """The table of errors beside the rules."""
    path = resources.files("kvtui.core.tables") / "errors.toml"
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["error"]
    return tuple(
        KnownError(
            tuple(row["fragments"]),
            tuple(row.get("options", ())),
            row["meaning"],
            row["change"],
            row["source"],
            row.get("rule"),
        )
        for row in rows
    )


Entry = Rule | KnownError


@cache
def entries() -> tuple[tuple[str, Entry], ...]:
    """(fragment, rule or table row), the longest fragment first."""
    from kvtui.core.pipeline import PIPELINE

    rules = (part for part in PIPELINE if isinstance(part, Rule))
    pairs: list[tuple[str, Entry]] = [(text, part) for part in rules for text in part.fragments]
    pairs += [(text, row) for row in known_errors() for text in row.fragments]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


_ERROR_LINE = re.compile(
    r"\b(?:[A-Za-z_.]*(?:Error|Exception)|sglang serve: error|launch_server\.py: error)\b\s*:"
    r"|\berror:\s",
)
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^\s*(?:\[[^\]]{0,80}\]\s*|\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\s*|\S+\s+\|\s*)+")


def explain(text: str) -> tuple[Explanation, ...]:
    """Everything that can be said about the errors in a text, recognised ones first."""
    text = _ANSI.sub("", text[-TEXT_LIMIT:])
    lines = text.split("\n")
    hits = list(_hits(text))
    found = list(_recognised(hits, lines, text))
    if not found or len(text) > SHORT:
        found += _by_mention(lines, text, [fragment for _, (fragment, _) in hits])
    return tuple(_distinct(found))[:MOST]


Hit = tuple[int, tuple[str, Entry]]
"""Where a fragment was found, and whose it is."""


def _recognised(hits: list[Hit], lines: list[str], text: str) -> Iterator[Explanation]:
    """Explanations by fragment; where several fit one line, the longest fragment has the word."""
    taken: dict[int, int] = {}
    for at, (fragment, entry) in hits:
        number = text.count("\n", 0, at)
        if taken.get(number, 0) > (len(fragment) if isinstance(entry, Rule) else 0):
            continue
        taken.setdefault(number, len(fragment))
        yield _of_entry(entry, _shown(lines[number]), number + 1, text[at : at + 600])


def _hits(text: str) -> Iterator[Hit]:
    collapsed = " ".join(text.split()) if len(text) <= SHORT else ""
    for pair in entries():
        at = text.rfind(pair[0])
        if at >= 0:
            yield at, pair
        elif collapsed and pair[0] in collapsed:
            yield 0, pair


def _of_entry(entry: Entry, line: str, number: int, around: str) -> Explanation:
    mentions = mentions_in(line + "\n" + around.partition("\n")[0])
    if isinstance(entry, KnownError):
        options = entry.options or mentions.options
        return Explanation(
            entry.meaning, entry.change, line, number, options, mentions.classes,
            entry.rule, source=entry.source,
        )  # fmt: skip
    title, why, fix = doc_parts(entry.doc)
    first = (entry.option,) if entry.option else ()
    return Explanation(
        title, fix, line, number, tuple(dict.fromkeys((*first, *mentions.options))),
        mentions.classes, entry.id, why, entry.source,
    )  # fmt: skip


def doc_parts(doc: str) -> tuple[str, str, str]:
    """(title, why, fix) of a rule's docstring, each in one line."""
    title, _, rest = doc.partition("Why:")
    why, _, fix = rest.partition("Fix:")
    return " ".join(title.split()), " ".join(why.split()), " ".join(fix.split())


def _by_mention(lines: list[str], text: str, known: list[str]) -> Iterator[Explanation]:
    """Explanations of error lines that nothing knows, by what they mention; the last first."""
    numbers = [
        n
        for n in range(len(lines) - 1, -1, -1)
        if _ERROR_LINE.search(lines[n]) and not any(part in lines[n] for part in known)
    ]
    if not numbers and len(text) <= SHORT and text.strip():
        yield _of_words(" ".join(text.split()), 1)
        return
    for number in numbers[:MOST]:
        yield _of_words(_message(lines, number), number + 1)


def _message(lines: list[str], number: int) -> str:
    """An error's message with the lines that it goes on in."""
    parts = [lines[number]]
    for line in lines[number + 1 : number + 4]:
        if not line.strip() or _PREFIX.match(line) or _ERROR_LINE.search(line):
            break
        parts.append(line)
    return " ".join(" ".join(parts).split())


def _of_words(message: str, number: int) -> Explanation:
    mentions: Mentions = mentions_in(message)
    meaning, change = meaning_of(message, mentions)
    options = (*mentions.options, *(f"env:{name}" for name in mentions.env))
    return Explanation(meaning, change, _shown(message), number, options, mentions.classes)


def _shown(line: str) -> str:
    text = _PREFIX.sub("", line).strip()
    return text if len(text) <= 300 else text[:297] + "..."


def _distinct(found: Iterable[Explanation]) -> Iterator[Explanation]:
    """Each error once: logs repeat it for every rank."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for item in found:
        key = (item.meaning, item.options[:1])
        if key not in seen:
            seen.add(key)
            yield item
