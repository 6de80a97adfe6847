"""`evaluate(draft, facts)`: the one call that the screen, the command line and the tests make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts, MissingFact
from kvtui.core.findings import STAGE_ORDER, Finding, Outcome, Severity, Value
from kvtui.core.options import NEWEST, catalogue
from kvtui.core.pipeline import PIPELINE
from kvtui.core.pools.spec import PoolPlan
from kvtui.core.resolution import Origin, Resolution, Sizing

if TYPE_CHECKING:
    from kvtui.core.capacity.predict import Capacity

SEVERITY_ORDER = {severity: index for index, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Plan:
    """Every option with its resolved value and where that comes from."""

    values: Mapping[str, Value]
    origins: Mapping[str, Origin]
    backends: tuple[str | None, str | None]
    extra: Mapping[str, Any]
    """Resolved values that are no options (graph limits, state strategy)."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known about one draft at one moment; frozen, every view is made from it."""

    draft: Draft
    facts: Facts
    outcome: Outcome
    findings: tuple[Finding, ...]
    plan: Plan
    pool: PoolPlan | None
    capacity: Capacity | None
    unknowns: tuple[str, ...]
    """Why the verdict is `unknown`, or what rules could not look at."""
    engine_version: str = NEWEST

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make the launch fail, first stop first."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)


def evaluate(draft: Draft, facts: Facts, sizing: Sizing | None = None) -> Report:
    """Resolve and judge `draft` against `facts`. Pure: no I/O, no clock, no environment."""
    raw = dict(catalogue().defaults)
    raw.update(draft.options)
    r = Resolution(draft, facts, raw, sizing)
    for part in PIPELINE:
        try:
            part.run(r)
        except MissingFact as missing:
            r.missing[missing.name] = missing.reason
        except Exception as error:  # a rule that breaks must never look like a pass
            r.doubt(f"rule {part.name} could not be evaluated: {type(error).__name__}: {error}")
    findings = tuple(
        sorted(r.findings, key=lambda f: (SEVERITY_ORDER[f.severity], STAGE_ORDER[f.stage]))
    )
    unknowns = (*(f"{name}: {why}" for name, why in r.missing.items()), *r.unknowns)
    if any(f.severity is Severity.ERROR for f in findings):
        outcome = Outcome.FAILS
    elif unknowns:
        outcome = Outcome.UNKNOWN
    else:
        outcome = Outcome.STARTS
    plan = Plan(r.values, r.origins, r.backends, r.scratch.get("extra", {}))
    return Report(
        draft, facts, outcome, findings, plan, r.pool, r.scratch.get("capacity"), unknowns
    )
