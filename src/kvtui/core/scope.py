"""Which options the rules look at, found in the rules themselves; all others pass unjudged."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.options import catalogue
from kvtui.core.resolution import Rule, Step

JUDGING = ("steps", "pools", "late", "capacity", "model", "derived", "graphs", "evaluate")
"""Modules and packages of core whose code decides about a launch."""

TABLES = (tuple, list, frozenset, set, dict)
LARGEST_TABLE = 200
"""Entries of a table that can name options; larger ones hold models."""


@cache
def judged_options() -> frozenset[str]:
    """Field names that any rule or step reads or writes."""
    import kvtui.core.pipeline  # noqa: F401  (imports every module that judges)

    names: set[str] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(tuple(f"kvtui.core.{part}" for part in JUDGING)):
            names.update(_words_of_module(module))
    return frozenset(names & set(catalogue().options))


def unjudged(draft: Draft) -> tuple[str, ...]:
    """Chosen options that no rule looks at, in the order given."""
    if not draft.options:
        return ()
    judged = judged_options()
    return tuple(name for name in draft.options if name not in judged)


def _words_of_module(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if name.startswith("__"):
            continue
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield from _words_of_code(value.__code__)
        elif isinstance(value, Rule | Step):
            yield from _words_of_code(value.body.__code__)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for member in vars(value).values():
                function = getattr(member, "fget", None) or member
                if isinstance(function, FunctionType):
                    yield from _words_of_code(function.__code__)
        else:
            yield from _words_in(value, 3)


def _words_of_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words_of_code(constant)
        else:
            yield from _words_in(constant, 3)


def _words_in(value: Any, depth: int) -> Iterator[str]:
    """Words inside nested tuples, sets and mappings of a table."""
    if isinstance(value, str):
        yield value
    elif not isinstance(value, TABLES) or len(value) > LARGEST_TABLE:
        return
    elif depth and isinstance(value, tuple | list | frozenset | set):
        for item in value:
            yield from _words_in(item, depth - 1)
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            yield from _words_in(key, depth - 1)
            yield from _words_in(item, depth - 1)
