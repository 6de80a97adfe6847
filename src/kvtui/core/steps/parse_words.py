"""Words of a command line that the engine's parser does not take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvtui.core.argv import HELP, Word, classify
from kvtui.core.command import option_words
from kvtui.core.draft import Draft
from kvtui.core.findings import Change, Fix, Stage
from kvtui.core.options import catalogue
from kvtui.core.resolution import Example, Hit, Resolution, hit, rule
from kvtui.core.suggest import nearest_flag
from kvtui.core.translate import OldOption, changes_for, read_values, translations, words_values
from kvtui.core.values import is_flag_like, shown


@dataclass(frozen=True, slots=True)
class OddWord:
    """A word that the parser does not take, with the values behind it."""

    group: tuple[str, ...]
    word: Word
    old: OldOption | None

    @property
    def text(self) -> str:
        """The word without a value."""
        return self.group[0].partition("=")[0]

    @property
    def name(self) -> str:
        """The word in the form of a field name, to say which option is meant."""
        return self.text.lstrip("-").replace("-", "_")

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it was given."""
        return words_values(self.group)

    @property
    def kind(self) -> str:
        """help | stray | known | old | ambiguous | unknown."""
        if self.group[0] in HELP:
            return "help"
        if self.group[0] == "--" or not is_flag_like(self.group[0]):
            return "stray"
        if self.word.option is not None:
            return "known"
        if self.old is not None:
            return "old"
        return "ambiguous" if self.word.candidates else "unknown"


def odd_words(draft: Draft) -> tuple[OddWord, ...]:
    """Everything on the command line that no option takes."""
    return tuple(
        OddWord(group, classify(group[0]), translations().option(group[0]))
        for group in draft.unknown_groups
    )


def odd_of(r: Resolution, kind: str) -> Iterator[OddWord]:
    """The words of one kind."""
    if r.draft.unknown:
        yield from (odd for odd in odd_words(r.draft) if odd.kind == kind)


def drop_word(odd: OddWord) -> Fix:
    """Take a word and its values out."""
    return Fix(f"drop {odd.text}", (Change(f"unknown:{odd.group[0]}"),))


def _write_as(odd: OddWord, flag: str) -> Fix:
    """Say it with another flag, carrying the values over."""
    option = catalogue().by_flag[flag]
    value = read_values(option, odd.values)
    gone = Change(f"unknown:{odd.group[0]}")
    if value is None or option.problem(value) is not None:
        return Fix(f"drop {odd.text} and set {flag}", (gone,))
    return Fix(f"write {flag}", (gone, Change(option.name, value)))


@rule(
    "KV001",
    stage=Stage.PARSE,
    option=None,
    source="server_args.py:696",
    example=Example("--mem-fracton-static 0.8"),
    fragments=("unrecognized arguments",),
)
def unknown_option(r: Resolution) -> Iterator[Hit]:
    """An option that the engine does not have.

    Why: the command line is read by argparse, which stops at a word that no option takes.
    Fix: the nearest right spelling, or leave it out.
    """
    for odd in odd_of(r, "unknown"):
        dashed = "--" + odd.text.lstrip("-").replace("_", "-")
        near = dashed if dashed in catalogue().by_flag else nearest_flag(odd.text)
        if near is None:
            yield hit(f"SGLang has no option {odd.text}", drop_word(odd), option=odd.name)
        else:
            yield hit(
                f"SGLang has no option {odd.text}; the nearest is {near}",
                _write_as(odd, near),
                drop_word(odd),
                option=odd.name,
            )


@rule(
    "KV002",
    stage=Stage.PARSE,
    option=None,
    source="server_args.py:696",
    example=Example("--speculative-draft x"),
    fragments=("ambiguous option", "could match"),
)
def ambiguous_option(r: Resolution) -> Iterator[Hit]:
    """An abbreviation that fits several options.

    Why: argparse takes an abbreviation only where a single option begins with it, and each
    release adds options.
    Fix: write the option out.
    """
    for odd in odd_of(r, "ambiguous"):
        flags = odd.word.candidates
        named = ", ".join(flags[:6]) + (" and others" if len(flags) > 6 else "")
        yield hit(
            f"{odd.text} may stand for {named}",
            *(_write_as(odd, flag) for flag in _distinct(odd, flags)[:4]),
            drop_word(odd),
            option=odd.name,
        )


def _distinct(odd: OddWord, flags: tuple[str, ...]) -> tuple[str, ...]:
    """One spelling for each option that could take the values at hand."""
    by_flag = catalogue().by_flag
    fitting: dict[str, str] = {}
    for flag in flags:
        option = by_flag[flag]
        value = read_values(option, odd.values)
        if value is not None and option.problem(value) is None:
            fitting.setdefault(option.name, flag)
    return tuple(fitting.values())


def _old_message(odd: OddWord, old: OldOption) -> str:
    known = catalogue().options
    flags = [known[name].flag for name in old.to if name in known]
    flags += [name.removeprefix("env:") for name in old.to if name.startswith("env:")]
    today = f"today it is {' with '.join(flags)}" if flags else "nothing took its place"
    if old.engine:
        today = f"SGLang has {' with '.join(flags)}" if flags else "SGLang does without"
    return f"{odd.text} {old.origin}; {today}" + (f" ({old.why})" if old.why else "")


def _old_fixes(r: Resolution, odd: OddWord, old: OldOption) -> tuple[Fix, ...]:
    changes = changes_for(old, odd.group, r.draft)
    if len(changes) == 1:
        return (drop_word(odd),)
    known = catalogue().options
    words = [
        " ".join(option_words(known[c.option], c.value)) if c.option in known else c.option[4:]
        for c in changes[1:]
    ]
    return (Fix(f"write {' and '.join(words)}", changes), drop_word(odd))


def _is_foreign(odd: OddWord) -> bool:
    return odd.old is not None and bool(odd.old.engine)


@rule(
    "KV003",
    stage=Stage.PARSE,
    option=None,
    source="server_args.py:696",
    example=Example("--max-model-len 8192"),
)
def foreign_option(r: Resolution) -> Iterator[Hit]:
    """An option of another server (vLLM, TensorRT-LLM, TGI, llama.cpp).

    Why: commands are carried over from there; SGLang names these things differently, or does
    them without being asked.
    Fix: SGLang's own option with the same value, or leave it out.
    """
    for odd in odd_of(r, "old"):
        if odd.old is not None and _is_foreign(odd):
            yield hit(_old_message(odd, odd.old), *_old_fixes(r, odd, odd.old), option=odd.name)


@rule(
    "KV004",
    stage=Stage.PARSE,
    option=None,
    source="server_args.py:696",
    example=Example("--nsa-prefill-backend fa3"),
)
def old_option(r: Resolution) -> Iterator[Hit]:
    """An option of an earlier release that is gone, or one that was never released.

    Why: recipes outlive the options that they name.
    Fix: today's spelling with the same value, or leave it out.
    """
    for odd in odd_of(r, "old"):
        if odd.old is not None and not _is_foreign(odd):
            yield hit(_old_message(odd, odd.old), *_old_fixes(r, odd, odd.old), option=odd.name)


@rule(
    "KV007",
    stage=Stage.PARSE,
    option=None,
    source="server_args.py:696",
    example=Example("--disable-radix-cache=true"),
    fragments=("expected one argument", "expected at least one argument", "ignored explicit"),
)
def value_missing_or_needless(r: Resolution) -> Iterator[Hit]:
    """A value is missing, or stands behind a switch that takes none.

    Why: a switch is on by being named, and every other option needs its value next to it.
    Fix: name the switch alone, or give the value.
    """
    for odd in odd_of(r, "known"):
        option = odd.word.option
        if option is None or (option.takes_value and odd.values):
            continue
        gone = Change(f"unknown:{odd.group[0]}")
        if option.takes_value:
            yield hit(
                f"{odd.text} needs a value: {option.expected}",
                Fix(f"drop {odd.text}", (gone,)),
                option=option.name,
            )
            continue
        wants = odd.values[0].strip().lower() not in ("false", "0", "no", "off")
        change = Change(option.name, wants if wants or option.kind == "switch" else None)
        yield hit(
            f"{odd.text} takes no value, it is on by being named",
            Fix(f"write {odd.text} alone" if wants else f"drop {odd.text}", (gone, change)),
            option=option.name,
        )


@rule(
    "KV011",
    stage=Stage.PARSE,
    option=None,
    source="server_args.py:696",
    example=Example("--page-size 64 128"),
)
def stray_word(r: Resolution) -> Iterator[Hit]:
    """A word that belongs to no option.

    Why: only the model may be named without an option, as the first word of `sglang serve`.
    Fix: leave it out; a value with spaces needs quotes.
    """
    for odd in odd_of(r, "stray"):
        yield hit(f"{shown(odd.group[0])} belongs to no option", drop_word(odd))


@rule(
    "KV015",
    stage=Stage.PARSE,
    option=None,
    source="server_args.py:696",
    example=Example("--help"),
)
def help_asked(r: Resolution) -> Iterator[Hit]:
    """The command asks for help.

    Why: with `--help` the engine prints its options and ends; no server starts.
    Fix: leave it out.
    """
    for odd in odd_of(r, "help"):
        yield hit(f"{odd.text} prints the options and ends", drop_word(odd))
