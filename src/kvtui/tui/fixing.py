"""Fixes worked out ahead: what one leads to, and a chain that clears every error it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtui.core.draft import Draft
from kvtui.core.findings import Finding, Fix
from kvtui.tui.session import change_draft

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

MAX_FIXES = 40
"""A launch with more errors than that is better begun anew."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Fixes in order and the report that they lead to."""

    fixes: tuple[tuple[Finding, Fix], ...]
    report: Report


def fix_all(report: Report, judge: Callable[[Draft], Report]) -> Chain:
    """Apply fix after fix, the engine's first stop first, until no error has one that helps.

    Warnings stay: what they change starts, and may be meant.
    """
    done: list[tuple[Finding, Fix]] = []
    seen = [report.draft]
    while len(done) < MAX_FIXES:
        step = _next_step(report, judge, seen)
        if step is None:
            break
        finding, fix, report = step
        done.append((finding, fix))
        seen.append(report.draft)
    return Chain(tuple(done), report)


def _next_step(
    report: Report, judge: Callable[[Draft], Report], seen: list[Draft]
) -> tuple[Finding, Fix, Report] | None:
    for finding in report.errors:
        for fix in finding.fixes:
            draft = change_draft(report.draft, fix.changes)
            if draft in seen:
                continue
            after = judge(draft)
            if _key(finding) not in {_key(left) for left in after.errors}:
                return finding, fix, after
    return None


def _key(finding: Finding) -> tuple[str, str | None]:
    return finding.rule, finding.option
