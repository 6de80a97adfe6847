"""What the rules say: findings with a place in the launch, a reason and an applicable fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Value = Any
"""An option's value: bool, int, float, str, list, dict or None (JSON types)."""


class Severity(StrEnum):
    """How much a finding weighs: only an error changes the verdict to `fails`."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Stage(StrEnum):
    """When the engine would stop, in the order in which it gets there."""

    PARSE = "parse"
    RESOLVE = "resolve"
    CHECK = "check"
    POOL = "pool"
    OFFLOAD = "offload"
    LOAD = "load"
    SERVE = "serve"

    @property
    def is_late(self) -> bool:
        """True where the engine's own argument checks say yes and the launch still dies."""
        return self in (Stage.LOAD, Stage.SERVE)


STAGE_ORDER = {stage: index for index, stage in enumerate(Stage)}


class Outcome(StrEnum):
    """The verdict in one word."""

    STARTS = "starts"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Change:
    """One edit of a draft: set `option` (SGLang's field name) to `value`; None takes it out.

    An option named `env:NAME` sets or unsets an environment variable.
    """

    option: str
    value: Value = None


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes that go together, with a title that is a verb and names the price."""

    title: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, where, and what would be right."""

    rule: str
    severity: Severity
    stage: Stage
    option: str | None
    """SGLang's field name (`kv_cache_dtype`), or None where no single option is meant."""
    message: str
    fixes: tuple[Fix, ...] = ()


def set_to(title: str, **values: Value) -> Fix:
    """A fix that sets each named option to its value (None takes the option out)."""
    return Fix(title, tuple(Change(name, value) for name, value in values.items()))


def drop(*options: str, title: str | None = None) -> Fix:
    """A fix that takes the named options out of the launch."""
    flags = ", ".join("--" + name.replace("_", "-") for name in options)
    return Fix(title or f"drop {flags}", tuple(Change(name) for name in options))


def unset(variable: str) -> Fix:
    """A fix that takes an environment variable out of the launch."""
    return Fix(f"unset {variable}", (Change(f"env:{variable}"),))
