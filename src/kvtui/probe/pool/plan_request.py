"""From a report to the pool check that it asks for."""

from __future__ import annotations

from kvtui.core.evaluate import Report
from kvtui.probe.pool.protocol import PoolRequest


def request_for(
    report: Report,
    *,
    python: tuple[str, ...] = (),
    limit_bytes: int | None = None,
    full: bool = False,
) -> PoolRequest:
    """The request that builds the report's planned pool; it must have one."""
    assert report.pool is not None
    return PoolRequest(plan=report.pool, python=python, limit_bytes=limit_bytes, full=full)
