"""Find options by name, alias, help text, or the name that another server has for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from kvtui.core.options import Option, catalogue


@dataclass(frozen=True, slots=True)
class Found:
    """An option that matches, and through what."""

    option: Option
    rank: int
    """0 exact name, 1 start of a name, 2 inside a name, 3 foreign name, 4 help text."""
    through: str = ""
    """The alias or foreign word, where the option's own name does not match."""


@cache
def _searchable() -> tuple[tuple[Option, str, tuple[str, ...], str], ...]:
    foreign = _foreign_words()
    return tuple(
        (
            option,
            option.name.replace("_", "-"),
            (*_other_flags(option), *foreign.get(option.name, ())),
            f"{option.help} {option.group}".lower(),
        )
        for option in catalogue().options.values()
        if option.flags
    )


def _other_flags(option: Option) -> tuple[str, ...]:
    own = "--" + option.name.replace("_", "-")
    return tuple(flag for flag in option.flags if flag != own)


@cache
def _foreign_words() -> dict[str, tuple[str, ...]]:
    from kvtui.core.translate import translations

    words: dict[str, tuple[str, ...]] = {}
    for old in translations().options.values():
        for name in old.to:
            label = f"{old.word} ({old.engine})" if old.engine else old.word
            words[name] = (*words.get(name, ()), label)
    return words


def find(text: str) -> list[Found]:
    """Options that match every word of `text`, best first; all of them for an empty text."""
    words = text.lower().lstrip("-").replace("_", "-").split()
    found = [hit for row in _searchable() if (hit := _match(row, words)) is not None]
    found.sort(key=lambda hit: (hit.rank, len(hit.option.name) if words else 0))
    return found


def _match(row: tuple[Option, str, tuple[str, ...], str], words: list[str]) -> Found | None:
    option, name, others, help_text = row
    if not words:
        return Found(option, 2)
    joined = "-".join(words)
    if name == joined:
        return Found(option, 0)
    if name.startswith(joined):
        return Found(option, 1)
    if all(word in name for word in words):
        return Found(option, 2)
    for other in others:
        if other.lstrip("-") == joined:
            return Found(option, 0, other)
        if all(word in other.lower() for word in words):
            return Found(option, 3, other)
    if all(word in name or word in help_text for word in words):
        return Found(option, 4)
    return None


def groups() -> Iterator[str]:
    """Groups of the catalogue in its order."""
    yield from dict.fromkeys(o.group for o in catalogue().options.values() if o.flags)
