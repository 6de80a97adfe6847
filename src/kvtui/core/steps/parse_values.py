"""Values that the engine's parser refuses, and spellings that it is about to drop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvtui.core.findings import Change, Fix, Severity, Stage, drop, set_to
from kvtui.core.options import Option, catalogue
from kvtui.core.resolution import Example, Hit, Resolution, hit, rule, step
from kvtui.core.steps.parse_words import drop_word, odd_of
from kvtui.core.suggest import nearest_choice
from kvtui.core.translate import translations
from kvtui.core.values import shown

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
"""Levels worth naming; `logging` knows a few synonyms besides."""

_LEVEL_WORDS = frozenset((*LOG_LEVELS, "notset", "warn", "fatal"))


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
    for odd in odd_of(r, "known"):
        twice = odd.word.option
        if twice is not None and twice.takes_value and odd.values:
            yield hit(
                f"{odd.text} is given twice, and the parser stops at the first value "
                f"{shown(odd.values[0])}",
                drop_word(odd),
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


@step("server_args.py:710")
def forget_illegal_values(r: Resolution) -> None:
    """Judge the rest of the launch with the default where the parser refused a value."""
    defaults = catalogue().defaults
    for option, _, _ in _chosen(r):
        default = defaults[option.name]
        r.default("the parser refuses the value that was given", **{option.name: default})
        setattr(r.raw, option.name, default)
