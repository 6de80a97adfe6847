"""A draft as a command: words in a steady order, and as quoted text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvtui.core.argv import classify
from kvtui.core.draft import Draft, unknown_groups
from kvtui.core.options import NEWEST, Option, catalogue
from kvtui.core.values import is_flag_like

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

SERVE = ("sglang", "serve")
"""The engine's own entry point."""

LAUNCH_SERVER = ("python3", "-m", "sglang.launch_server")
"""The entry point of engines without `sglang serve`."""

GROUP_ORDER = (
    "model", "parallel", "device", "exec.kernel", "memory", "schedule", "exec.graph",
    "exec.mamba", "exec.moe", "exec.comm", "exec.overlap", "exec.features",
    "exec.deterministic", "exec.dllm", "spec", "disagg", "exec.offload", "lora", "mm",
    "serving", "observability", "",
)  # fmt: skip
"""Groups of options in the order in which a command names them."""

FIRST = ("model_path", "served_model_name", "trust_remote_code", "tp_size", "pp_size", "dp_size")
"""Options that open a command, whatever their group."""


def argv_of(
    launch: Draft | Report, version: str = NEWEST, program: Sequence[str] = SERVE
) -> tuple[str, ...]:
    """The command's words: only what was chosen, main spellings, in canonical order."""
    return tuple(word for part in command_parts(launch, version, program) for word in part)


def command_parts(
    launch: Draft | Report, version: str = NEWEST, program: Sequence[str] = SERVE
) -> tuple[tuple[str, ...], ...]:
    """The command in parts: the program, then one part for each option with its values."""
    draft = launch if isinstance(launch, Draft) else launch.draft
    parts = list(option_parts(draft.options, version))
    strays = tuple(g for g in unknown_groups(draft.unknown) if not is_flag_like(g[0]))
    odd = tuple(g for g in unknown_groups(draft.unknown) if is_flag_like(g[0]))
    return (tuple(program), *parts[:1], *strays, *parts[1:], *odd)


def option_parts(options: Mapping[str, Any], version: str = NEWEST) -> Iterator[tuple[str, ...]]:
    """Each chosen option as words, in canonical order."""
    known = catalogue(version).options
    for name in ordered_names(options, version):
        option = known.get(name)
        if option is not None and option.flags:
            yield from filter(None, (option_words(option, options[name]),))


def ordered_names(options: Iterable[str], version: str = NEWEST) -> list[str]:
    """Option names in the order in which a command gives them."""
    ranks = _ranks(version)
    return sorted(options, key=lambda name: ranks.get(name, len(ranks)))


def option_words(option: Option, value: Any) -> tuple[str, ...]:
    """One option with its value as words; empty where the value is the absence of a flag."""
    if value is None:
        return ()
    if option.is_bool and isinstance(value, bool):
        if value:
            return (option.flag,)
        negative = next((flag for flag in option.flags if flag.startswith("--no-")), None)
        return (negative,) if negative else ()
    if isinstance(value, list | tuple) and not option.is_json:
        words = [word_of(item) for item in value]
    elif option.nargs == "?" and value == option.const:
        words = []
    else:
        words = [word_of(value)]
    if len(words) == 1 and needs_equals(words[0]):
        return (f"{option.flag}={words[0]}",)
    return (option.flag, *words)


def word_of(value: Any) -> str:
    """A value as the one word that the engine reads it back from."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not isinstance(value, bool):
        return repr(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ": "))


def needs_equals(word: str) -> bool:
    """True where argparse would take the value for an option of its own."""
    return not classify(word).is_value


def quote(words: Sequence[str]) -> str:
    """Words as one line for a POSIX shell."""
    return shlex.join(words)


def command_text(
    launch: Draft | Report, version: str = NEWEST, program: Sequence[str] = SERVE
) -> str:
    """The command for a POSIX shell, environment first, one option a line."""
    draft = launch if isinstance(launch, Draft) else launch.draft
    lines = [f"{name}={shlex.quote(value)}" for name, value in sorted(draft.env.items())]
    lines += [quote(part) for part in command_parts(draft, version, program)]
    return " \\\n".join((lines[0], *(f"  {line}" for line in lines[1:])))


_RANKS: dict[str, dict[str, int]] = {}


def _ranks(version: str) -> dict[str, int]:
    """Rank of each option in a command, worked out once per release."""
    found = _RANKS.get(version)
    if found is None:
        options = catalogue(version).options.values()
        groups = {group: rank for rank, group in enumerate(GROUP_ORDER)}
        ordered = sorted(options, key=lambda o: groups.get(o.group, len(groups)))
        names = [*FIRST, *(o.name for o in ordered if o.name not in FIRST)]
        found = _RANKS[version] = {name: rank for rank, name in enumerate(names)}
    return found
