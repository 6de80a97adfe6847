"""Why a rule says what it says: its page, and the terms it looked at with their values now.

The rule is run once more on a resolution that notes every value that is read. Nothing of the
evaluation itself changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts, MissingFact
from kvtui.core.options import catalogue
from kvtui.core.pipeline import PIPELINE
from kvtui.core.resolution import Resolution, Rule

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


@dataclass(frozen=True, slots=True)
class Term:
    """One value that a rule looked at; `origin` says where it comes from."""

    name: str
    value: Any
    origin: str = ""


class _Notes:
    """Values in the order in which they were first read."""

    def __init__(self) -> None:
        self.terms: dict[str, Term] = {}

    def add(self, name: str, value: Any, origin: str = "") -> None:
        """Note a value once."""
        if name not in self.terms and not callable(value):
            self.terms[name] = Term(name, value, origin)


class _Watched:
    """Passes attribute reads on to `target` and notes them under `prefix`."""

    def __init__(self, target: Any, prefix: str, notes: _Notes) -> None:
        object.__setattr__(self, "_parts", (target, prefix, notes))

    def __getattr__(self, name: str) -> Any:
        target, prefix, notes = object.__getattribute__(self, "_parts")
        value = getattr(target, name)
        if isinstance(value, str | int | float | bool | None | tuple | list):
            notes.add(f"{prefix}{name}", value)
        return value


class _Noting(Resolution):
    """A resolution that notes what one rule reads."""

    notes: _Notes | None = None

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        inside = super().__getattribute__("__dict__")
        notes = inside.get("notes")
        if notes is not None and name in inside["values"]:
            notes.add(name, value, self.origin(name).kind)
        return value

    def chose(self, name: str) -> bool:
        """Notes that it was asked whether the user chose the option."""
        found = super().chose(name)
        if self.notes is not None:
            self.notes.add(name, self.values.get(name), "chosen" if found else "not chosen")
        return found

    @property
    def backends(self) -> tuple[str | None, str | None]:
        """Notes the pair."""
        pair = super().backends
        if self.notes is not None:
            self.notes.add("attention backends", pair)
        return pair

    @property
    def pool(self) -> Any:
        """The planned pool, its attributes noted."""
        found = self.__dict__.get("_pool")
        if found is None or self.notes is None:
            return found
        return _Watched(found, "pool.", self.notes)

    @pool.setter
    def pool(self, plan: Any) -> None:
        self.__dict__["_pool"] = plan

    def env_flag(self, name: str, default: bool = False) -> bool:
        """Notes the switch."""
        found = super().env_flag(name, default)
        if self.notes is not None:
            self.notes.add(f"env {name}", found, "set" if name in self.env else "not set")
        return found

    def env_int(self, name: str, default: int) -> int:
        """Notes the number."""
        found = super().env_int(name, default)
        if self.notes is not None:
            self.notes.add(f"env {name}", found, "set" if name in self.env else "not set")
        return found

    @property
    def model(self) -> Any:
        """The model, its attributes noted."""
        found = super().model
        return found if self.notes is None else _Watched(found, "model.", self.notes)

    @property
    def platform(self) -> Any:
        """The GPU, its predicates noted."""
        found = super().platform
        return found if self.notes is None else _Watched(found, "gpu.", self.notes)


def terms_of(rule_id: str, draft: Draft, facts: Facts) -> tuple[Term, ...] | None:
    """What the rule reads on this launch, in order; None where it does not fire."""
    raw = {**catalogue().defaults, **draft.options}
    r = _Noting(draft, facts, raw)
    for part in PIPELINE:
        if isinstance(part, Rule) and part.id == rule_id:
            terms = _watch(part, r)
            if r.findings and any(found.rule == rule_id for found in r.findings):
                return terms
        else:
            _run(part, r)
    return None


def _watch(rule: Rule, r: _Noting) -> tuple[Term, ...]:
    notes = _Notes()
    raw = r.raw
    r.notes = notes
    r.raw = cast(SimpleNamespace, _Watched(raw, "asked: ", notes))
    _run(rule, r)
    r.notes, r.raw = None, raw
    return tuple(notes.terms.values())


def _run(part: Any, r: Resolution) -> None:
    try:
        part.run(r)
    except MissingFact as missing:
        r.missing[missing.name] = missing.reason
    except Exception as error:  # the evaluation itself reports it; here it only ends the list
        r.doubt(f"{type(error).__name__}")


def source_of(report: Report, option: str) -> str:
    """Why the engine gives an option its value, with the place in its source."""
    origin = report.plan.origins.get(option)
    if origin is None or not origin.why:
        return ""
    return f"{origin.why} ({origin.source})" if origin.source else origin.why
