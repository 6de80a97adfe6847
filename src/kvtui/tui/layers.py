"""Rules, pool and engine side by side: what each says of the present launch, how old, where.

A layer that did not run for this very launch never looks passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kvtui.core.findings import Outcome, Severity
from kvtui.tui.prober import PoolStep
from kvtui.tui.words import age_text, plural

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


class Standing(StrEnum):
    """Where a layer stands on the present launch."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_RUN = "not run"
    STALE = "stale"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer as shown: its standing, what it says, and how old that is."""

    name: str
    standing: Standing
    text: str
    age: str = ""


@dataclass(frozen=True, slots=True)
class Activity:
    """What runs now and when the last answers came, in seconds of the app's clock."""

    pool_step: PoolStep | None = None
    pool_running: bool = False
    pool_at: float = 0.0
    pool_error: str = ""
    pool_for: str = ""
    """Key of the report that the pool's error is about."""
    engine_running: bool = False
    engine_text: str = ""
    """What the engine does while it is asked."""
    engine_at: float = 0.0
    engine_error: str = ""
    engine_for: str = ""


def layers(report: Report, activity: Activity, now: float) -> tuple[Layer, Layer, Layer]:
    """The three layers in the order in which they deepen."""
    return (
        _rules(report),
        _pool(report, activity, now),
        _engine(report, activity, now),
    )


def _rules(report: Report) -> Layer:
    ours = [f for f in report.findings if f.rule != "ENGINE"]
    errors = sum(f.severity is Severity.ERROR for f in ours)
    warnings = sum(f.severity is Severity.WARNING for f in ours)
    notes = len(ours) - errors - warnings
    counts = [(errors, "error"), (warnings, "warning"), (notes, "note")]
    text = ", ".join(plural(count, noun) for count, noun in counts if count)
    standing = {
        Outcome.STARTS: Standing.PASSED,
        Outcome.FAILS: Standing.FAILED,
        Outcome.UNKNOWN: Standing.UNKNOWN,
    }[report.rules_outcome]
    if standing is Standing.UNKNOWN:
        text = "can't tell"
    return Layer("rules", standing, text or "nothing found")


def _pool(report: Report, activity: Activity, now: float) -> Layer:
    if activity.pool_running:
        step = activity.pool_step
        text = f"{step.number}/{step.total} {step.text}" if step else "starting"
        return Layer("pool", Standing.RUNNING, text, "p cancels")
    if activity.pool_error and activity.pool_for == report.key:
        return Layer("pool", Standing.UNKNOWN, activity.pool_error)
    fact = report.pool_fact
    if fact is not None:
        standing = Standing.PASSED if fact.ok else Standing.FAILED
        return Layer("pool", standing, pool_text(fact.report), age_text(now - activity.pool_at))
    if report.facts.pool is not None:
        return Layer("pool", Standing.STALE, "last run was for other settings")
    return Layer("pool", Standing.NOT_RUN, "not run", "p runs it")


def pool_text(result: Mapping[str, Any]) -> str:
    """A pool check's result in one line: what went wrong, or class and place."""
    name = result.get("pool_class") or result.get("class") or "pool"
    if result.get("error"):
        return f"{name}: {result['error']}"
    return f"{name} · {pool_place(result)}"


def pool_place(result: Mapping[str, Any]) -> str:
    """Where a pool was built, how long it took, and how far below the planned size."""
    parts = [str(result.get("place") or result.get("device") or "?")]
    if result.get("wall_seconds"):
        parts.append(f"{result['wall_seconds']:.0f} s")
    return ", ".join(parts)


def _engine(report: Report, activity: Activity, now: float) -> Layer:
    if activity.engine_running:
        return Layer("engine", Standing.RUNNING, activity.engine_text or "asking", "g cancels")
    if activity.engine_error and activity.engine_for == report.key:
        return Layer("engine", Standing.UNKNOWN, activity.engine_error)
    fact = report.engine_fact
    if fact is not None:
        standing = Standing.PASSED if fact.accepted else Standing.FAILED
        word = "accepts" if fact.accepted else "refuses"
        text = f"{fact.version} {word} · {fact.place}"
        return Layer("engine", standing, text, age_text(now - activity.engine_at))
    if report.facts.engine is not None:
        return Layer("engine", Standing.STALE, "last answer was for other settings")
    if report.facts.engine_version is None:
        return Layer("engine", Standing.NOT_RUN, "none found")
    return Layer("engine", Standing.NOT_RUN, "not asked", "g asks")


@dataclass(frozen=True, slots=True)
class VerdictText:
    """The verdict in words: the short one, and where or why."""

    word: str
    detail: str
    outcome: Outcome
    disagrees: bool = False


STOPS_AT: Mapping[str, str] = {
    "parse": "while the command line is read",
    "resolve": "at start, while options are resolved",
    "check": "at start, while options are checked",
    "pool": "when the KV pool is built, after the weights load",
    "offload": "when decode offload starts, after the weights load",
    "load": "after the weights load",
    "serve": "at graph capture or at the first request",
}
"""Where a launch stops, by stage."""


def verdict_text(report: Report, activity: Activity) -> VerdictText:
    """The verdict as the screen says it."""
    if report.disagrees and report.engine_fact is not None:
        engine = report.engine_fact
        word = "accepts" if engine.accepted else "refuses"
        ours = "starts" if report.rules_outcome is Outcome.STARTS else "fails"
        return VerdictText(
            "STARTS" if engine.accepted else "WILL FAIL",
            f"rules say {ours}, SGLang {engine.version} {word}: the engine decides "
            "(D saves a report)",
            report.outcome,
            True,
        )
    if report.outcome is Outcome.FAILS:
        return VerdictText("WILL FAIL", STOPS_AT[report.errors[0].stage.value], report.outcome)
    if report.outcome is Outcome.UNKNOWN:
        why = report.unknowns[0] if report.unknowns else "no reason recorded"
        return VerdictText("NOT KNOWN", why, report.outcome)
    count = len(report.warnings)
    word = f"STARTS, with {plural(count, 'warning')}" if count else "STARTS"
    return VerdictText(word, _not_checked(report, activity), report.outcome)


def _not_checked(report: Report, activity: Activity) -> str:
    missing = []
    if report.pool_fact is None:
        missing.append("pool not run")
    elif not report.pool_fact.ok:
        missing.append("pool could not be built")
    if report.engine_fact is None:
        missing.append("engine not asked")
    if not missing:
        return "rules, pool and engine agree"
    return "by rules · " + " · ".join(missing) if report.engine_fact is None else missing[0]
