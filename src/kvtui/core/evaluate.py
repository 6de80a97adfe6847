"""`evaluate(draft, facts)`: the one call that the screen, the command line and the tests make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvtui.core.draft import Draft
from kvtui.core.facts import EngineFact, Facts, MissingFact, PoolFact
from kvtui.core.findings import STAGE_ORDER, Finding, Outcome, Severity, Stage, Value
from kvtui.core.options import NEWEST, catalogue
from kvtui.core.pipeline import PIPELINE
from kvtui.core.pools.spec import PoolPlan
from kvtui.core.releases import earlier_release
from kvtui.core.request import request_key
from kvtui.core.resolution import Origin, Resolution, Sizing

if TYPE_CHECKING:
    from kvtui.core.capacity.result import Capacity

ENGINE_RULE = "ENGINE"
"""Stands where a rule's id stands in a finding that is the engine's own word."""

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
    key: str
    """What pool and engine answers must be tagged with to count for this report."""
    outcome: Outcome
    """The verdict over all layers: where the engine answered, it decides what it can see."""
    rules_outcome: Outcome
    """What the rules alone say."""
    findings: tuple[Finding, ...]
    plan: Plan
    pool: PoolPlan | None
    capacity: Capacity | None
    unknowns: tuple[str, ...]
    """Why the rules can't tell, or what they could not look at."""
    pool_fact: PoolFact | None = None
    """The pool check of this very launch, or None."""
    engine_fact: EngineFact | None = None
    """An engine's answer to this very launch, or None."""
    engine_version: str = NEWEST

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make the launch fail, first stop first."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings of a launch that starts, but not as asked or not well."""
        return tuple(f for f in self.findings if f.severity is Severity.WARNING)

    @property
    def disagrees(self) -> bool:
        """True where rules and engine give different verdicts on what both can see."""
        if self.engine_fact is None or self.rules_outcome is Outcome.UNKNOWN:
            return False
        early = any(not f.stage.is_late and f.rule != ENGINE_RULE for f in self.errors)
        return self.engine_fact.accepted is early


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
            if any(f.stage is Stage.PARSE and f.severity is Severity.ERROR for f in r.findings):
                continue  # it tripped over a value that the parser refuses anyway
            r.doubt(f"rule {part.name} could not be evaluated: {type(error).__name__}: {error}")
    earlier = earlier_release(facts.engine_version)
    if earlier is not None:
        from kvtui.core.for_release import judge_for

        judge_for(r, earlier)
    unknowns = (*(f"{name}: {why}" for name, why in r.missing.items()), *r.unknowns)
    key = request_key(draft, facts)
    engine = facts.engine if facts.engine and facts.engine.request_key == key else None
    pool = facts.pool if facts.pool and facts.pool.request_key in _pool_keys(key, r) else None
    rules_outcome = _outcome(r.findings, unknowns)
    findings = _distinct([*r.findings, *_engine_findings(engine)])
    findings.sort(key=lambda f: (SEVERITY_ORDER[f.severity], STAGE_ORDER[f.stage]))
    return Report(
        draft=draft,
        facts=facts,
        key=key,
        outcome=_with_engine(rules_outcome, r.findings, engine),
        rules_outcome=rules_outcome,
        findings=tuple(findings),
        plan=Plan(r.values, r.origins, r.backends, r.scratch.get("extra", {})),
        pool=r.pool,
        capacity=r.scratch.get("capacity"),
        unknowns=unknowns,
        pool_fact=pool,
        engine_fact=engine,
    )


def _distinct(findings: list[Finding]) -> list[Finding]:
    """Each finding once: a hook that the engine runs twice finds the same thing twice."""
    kept: list[Finding] = []
    for finding in findings:
        if finding not in kept:
            kept.append(finding)
    return kept


def _pool_keys(key: str, r: Resolution) -> tuple[str, ...]:
    """A pool check answers a planned layout: it stays true while the plan does not change."""
    return (key, r.pool.key) if r.pool is not None else (key,)


def _outcome(findings: list[Finding], unknowns: tuple[str, ...]) -> Outcome:
    if any(f.severity is Severity.ERROR for f in findings):
        return Outcome.FAILS
    return Outcome.UNKNOWN if unknowns else Outcome.STARTS


def _with_engine(rules: Outcome, findings: list[Finding], engine: EngineFact | None) -> Outcome:
    """The engine decides on everything up to the pools; late failures stay the rules' word."""
    if engine is None:
        return rules
    if not engine.accepted:
        return Outcome.FAILS
    late = any(f.severity is Severity.ERROR and f.stage.is_late for f in findings)
    return Outcome.FAILS if late else Outcome.STARTS


def _engine_findings(engine: EngineFact | None) -> list[Finding]:
    if engine is None or engine.accepted:
        return []
    stage = engine.stage if engine.stage in {s.value for s in Stage} else Stage.RESOLVE
    where = f" ({engine.at})" if engine.at else ""
    text = (engine.error or engine.error_type or "no reason given").strip().splitlines()[0]
    message = f"SGLang {engine.version} refuses: {text}{where}"
    return [Finding(ENGINE_RULE, Severity.ERROR, Stage(stage), None, message)]
