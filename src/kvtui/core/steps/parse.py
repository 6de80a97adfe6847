"""What the engine's command-line parser refuses, before anything is resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvtui.core.argv import HELP, Word, classify
from kvtui.core.command import option_words
from kvtui.core.draft import Draft
from kvtui.core.findings import Change, Fix, Severity, Stage, drop, set_to
from kvtui.core.options import Option, catalogue
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.suggest import nearest_choice, nearest_flag
from kvtui.core.translate import OldOption, changes_for, read_values, translations, words_values
from kvtui.core.values import is_flag_like, shown

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
"""Levels worth naming; `logging` knows a few synonyms besides."""

_LEVEL_WORDS = frozenset((*LOG_LEVELS, "notset", "warn", "fatal"))


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


def _odd(r: Resolution, kind: str) -> Iterator[OddWord]:
    if r.draft.unknown:
        yield from (odd for odd in odd_words(r.draft) if odd.kind == kind)


def _drop_word(odd: OddWord) -> Fix:
    return Fix(f"drop {odd.text}", (Change(f"unknown:{odd.group[0]}"),))


def _write_as(odd: OddWord, flag: str) -> Fix:
    """Say it with another flag, carrying the values over."""
    option = catalogue().by_flag[flag]
    value = read_values(option, odd.values)
    gone = Change(f"unknown:{odd.group[0]}")
    if value is None or option.problem(value) is not None:
        return Fix(f"drop {odd.text} and set {flag}", (gone,))
    return Fix(f"write {flag}", (gone, Change(option.name, value)))


Illegal = tuple[tuple[Option, Any, str], ...]


def _chosen(r: Resolution) -> Illegal:
    """Chosen options with an illegal value, and what is wrong with it; worked out once."""
    found: Illegal | None = r.scratch.get("illegal")
    if found is None:
        known = catalogue().options
        found = r.scratch["illegal"] = tuple(
            (known[name], value, problem)
            for name, value in r.draft.options.items()
            if name in known and (problem := known[name].problem(value)) is not None
        )
    return found


def _is_choice(option: Option, value: Any) -> bool:
    """True where the value has the right type and is only not among the choices."""
    if option.choices is None or (option.many and not isinstance(value, list)):
        return False
    return isinstance(value, type(option.choices[0]))


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
    for odd in _odd(r, "unknown"):
        dashed = "--" + odd.text.lstrip("-").replace("_", "-")
        near = dashed if dashed in catalogue().by_flag else nearest_flag(odd.text)
        if near is None:
            yield hit(f"SGLang has no option {odd.text}", _drop_word(odd), option=odd.name)
        else:
            yield hit(
                f"SGLang has no option {odd.text}; the nearest is {near}",
                _write_as(odd, near),
                _drop_word(odd),
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
    for odd in _odd(r, "ambiguous"):
        flags = odd.word.candidates
        named = ", ".join(flags[:6]) + (" and others" if len(flags) > 6 else "")
        yield hit(
            f"{odd.text} may stand for {named}",
            *(_write_as(odd, flag) for flag in _distinct(odd, flags)[:4]),
            _drop_word(odd),
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
        return (_drop_word(odd),)
    known = catalogue().options
    words = [
        " ".join(option_words(known[c.option], c.value)) if c.option in known else c.option[4:]
        for c in changes[1:]
    ]
    return (Fix(f"write {' and '.join(words)}", changes), _drop_word(odd))


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
    for odd in _odd(r, "old"):
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
    for odd in _odd(r, "old"):
        if odd.old is not None and not _is_foreign(odd):
            yield hit(_old_message(odd, odd.old), *_old_fixes(r, odd, odd.old), option=odd.name)


@rule(
    "KV005",
    stage=Stage.PARSE,
    option=None,
    source="server_args.py:696",
    example=Example("--page-size abc"),
    fragments=("invalid int value", "invalid float value", "Invalid integer value"),
)
def wrong_type(r: Resolution) -> Iterator[Hit]:
    """A value of the wrong type.

    Why: the parser turns each value into a number, a list or JSON before it goes on.
    Fix: a value of the type that the option takes, or leave the option out.
    """
    for option, value, problem in _chosen(r):
        if not _is_choice(option, value) and not option.is_json:
            yield hit(
                f"{option.flag}: {problem}",
                *_read_fix(option, value),
                drop(option.name),
                option=option.name,
            )
    for odd in _odd(r, "known"):
        twice = odd.word.option
        if twice is not None and twice.takes_value and odd.values:
            yield hit(
                f"{odd.text} is given twice, and the parser stops at the first value "
                f"{shown(odd.values[0])}",
                _drop_word(odd),
                option=twice.name,
            )


def _read_fix(option: Option, value: Any) -> tuple[Fix, ...]:
    """A likely meaning of a number with a unit that the option does not read."""
    if not isinstance(value, str) or option.many:
        return ()
    for text in (value.replace("_", "").replace(",", ""), value[:-1] + value[-1:].lower()):
        try:
            read = option.read(text)
        except ValueError:
            continue
        if option.problem(read) is None:
            return (Fix(f"write {shown(read)}", (Change(option.name, read),)),)
    return ()


@rule(
    "KV006",
    stage=Stage.PARSE,
    option=None,
    source="arg_groups/choices.py:59",
    example=Example("--hicache-mem-layout page-first"),
    fragments=("invalid choice",),
)
def not_among_choices(r: Resolution) -> Iterator[Hit]:
    """A value that is not among an option's choices.

    Why: the parser compares letter by letter; other servers and earlier releases have other
    words for the same thing.
    Fix: the value of today, or the nearest choice.
    """
    for option, value, problem in _chosen(r):
        if not _is_choice(option, value):
            continue
        old = translations().value(option.name, value)
        if old is not None:
            today = " or ".join(old.to) if old.to else "nothing took its place"
            message = f"{option.flag} {value} {old.origin}: {today}"
            message += f" ({old.why})" if old.why else ""
            choices: tuple[Any, ...] = old.to
        else:
            near = nearest_choice(option, value)
            message = f"{option.flag}: {problem}"
            choices = tuple(c for c in option.choices or () if str(c) == near)
        fixes = (
            Fix(f"use {option.flag} {choice}", (Change(option.name, choice),)) for choice in choices
        )
        yield hit(message, *fixes, drop(option.name), option=option.name)


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
    for odd in _odd(r, "known"):
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
    "KV008",
    stage=Stage.PARSE,
    option="model_path",
    source="arg_groups/fields/model.py:51",
    example=Example("--model-path="),
    fragments=("the following arguments are required: --model-path",),
)
def model_path_missing(r: Resolution) -> Iterator[Hit]:
    """No model is named.

    Why: `--model-path` is the one option that the engine insists on.
    Fix: name a folder or a hub id.
    """
    if not r.draft.options.get("model_path"):
        yield hit("--model-path is missing: a folder with config.json, or a hub id")


@rule(
    "KV009",
    stage=Stage.PARSE,
    option=None,
    source="model_executor/cuda_graph_config.py:246",
    example=Example("--mm-process-config {image"),
    fragments=(
        "invalid loads value",
        "Please provide a valid JSON list",
        "--cuda-graph-config must be",
        "tc_piecewise was removed",
    ),
)
def invalid_json(r: Resolution) -> Iterator[Hit]:
    """A value that must be JSON and is not, or has keys that the option does not know.

    Why: the parser reads these options as JSON at once.
    Fix: repair the JSON (a shell needs single quotes around it), or leave the option out.
    """
    for option, _, problem in _chosen(r):
        if option.is_json:
            yield hit(f"{option.flag}: {problem}", drop(option.name), option=option.name)


@rule(
    "KV010",
    stage=Stage.PARSE,
    option="config",
    source="utils/server_args_config_parser.py:65",
    example=Example("--config serve.json"),
    fragments=(
        "Config file must be YAML",
        "Config file not found",
        "Multiple config files specified",
        "No config file specified",
        "Config file must contain a dictionary",
        "Unsupported config option",
    ),
)
def config_file_unusable(r: Resolution) -> Iterator[Hit]:
    """The file of `--config` can't be used.

    Why: it must be one YAML file with options and values at its top level, and only plain
    switches and options with values may stand in it.
    Fix: repair the file, or give its options in the command.
    """
    reason = r.draft.misread.get("config")
    if reason is not None:
        yield hit(reason, drop("config"))
    elif "config" in r.draft.options and "config" not in r.draft.spelled:
        r.doubt(f"the options in {shown(r.draft.options['config'])} were not read")


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
    for odd in _odd(r, "stray"):
        yield hit(f"{shown(odd.group[0])} belongs to no option", _drop_word(odd))


@rule(
    "KV012",
    stage=Stage.PARSE,
    option="config",
    severity=Severity.WARNING,
    source="server_args.py:683",
    example=Example("--config=serve.yaml"),
)
def config_file_ignored(r: Resolution) -> Iterator[Hit]:
    """A configuration file that the engine does not read.

    Why: the engine looks for the word `--config` as it stands; with `=` or abbreviated it is
    accepted, and the file is never opened.
    Fix: write `--config FILE` as two words.
    """
    written = r.draft.spelled.get("config")
    if written is not None:
        path = r.draft.options.get("config")
        yield hit(
            f"{shown(written)} is accepted, but the file is not read in this spelling",
            Fix("write --config and the file as two words", (Change("config", path),)),
            drop("config"),
        )


@rule(
    "KV013",
    stage=Stage.PARSE,
    option="log_level",
    source="server_args.py:704",
    example=Example("--log-level verbose"),
    fragments=("module 'logging' has no attribute",),
)
def unknown_log_level(r: Resolution) -> Iterator[Hit]:
    """A log level that Python's logging does not know.

    Why: the level is looked up by name right after parsing, and the launch ends there.
    Fix: debug, info, warning, error or critical.
    """
    level = r.raw.log_level
    if isinstance(level, str) and level.lower() not in _LEVEL_WORDS:
        yield hit(
            f"--log-level {shown(level)} is no level: {', '.join(LOG_LEVELS)}",
            set_to("use info", log_level="info"),
        )


@rule(
    "KV014",
    stage=Stage.PARSE,
    option=None,
    severity=Severity.NOTE,
    source="arg_groups/argparse_actions.py:70",
    example=Example("--disable-cuda-graph"),
    fragments=("is deprecated and will be removed in a future release",),
)
def deprecated_spelling(r: Resolution) -> Iterator[Hit]:
    """A spelling that the engine still takes and is about to drop.

    Why: the engine prints a warning for it and a later release will refuse it.
    Fix: the new spelling.
    """
    by_flag, options = catalogue().by_flag, catalogue().options
    for name, value in r.draft.options.items():
        option = options.get(name)
        if option is None or value is None or value is False:
            continue
        written = r.draft.spelled.get(name, option.flag)
        spelt = by_flag.get(written, option)
        if spelt.kind.startswith("deprecated") and spelt.new_flag:
            yield hit(
                f"{spelt.flag} still works and will go; {spelt.new_flag} takes its place",
                *_modern(r, name),
                option=name,
            )


def _modern(r: Resolution, name: str) -> tuple[Fix, ...]:
    """Today's way to say a deprecated option."""
    if name == "disable_cuda_graph":
        off = {"cuda_graph_backend_decode": "disabled", "cuda_graph_backend_prefill": "disabled"}
        return (
            set_to("disable decode and prefill graphs by name", disable_cuda_graph=None, **off),
        )
    if name == "enable_dp_attention":
        ranks = r.raw.dp_size
        values = {"enable_dp_attention": None, "dp_size": None, "attn_dp_size": ranks}
        return (set_to(f"use --attn-dp-size {shown(ranks)}", **values),)
    if name == "enable_amd_monokernel":
        return (set_to("write --enable-amd-monokernel", enable_amd_monokernel=True),)
    return ()


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
    for odd in _odd(r, "help"):
        yield hit(f"{odd.text} prints the options and ends", _drop_word(odd))


@step("server_args.py:710")
def forget_illegal_values(r: Resolution) -> None:
    """Judge the rest of the launch with the default where the parser refused a value."""
    defaults = catalogue().defaults
    for option, _, _ in _chosen(r):
        default = defaults[option.name]
        r.default("the parser refuses the value that was given", **{option.name: default})
        setattr(r.raw, option.name, default)


PARSE: tuple[Part, ...] = (
    unknown_option,
    ambiguous_option,
    foreign_option,
    old_option,
    wrong_type,
    not_among_choices,
    value_missing_or_needless,
    model_path_missing,
    invalid_json,
    config_file_unusable,
    stray_word,
    config_file_ignored,
    unknown_log_level,
    deprecated_spelling,
    help_asked,
    forget_illegal_values,
)
