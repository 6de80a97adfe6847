"""Run the child's steps inside the test process, without pipes."""

from __future__ import annotations

import json
from typing import Any, cast

from kvtui.core.pools.spec import PoolPlan
from kvtui.probe.pool.child.device import pick
from kvtui.probe.pool.child.request import Request, read_request
from kvtui.probe.pool.child.steps import Run
from kvtui.probe.pool.child.wire import Channel
from kvtui.probe.pool.protocol import PoolRequest


class Silent:
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})


def as_child_reads(request: PoolRequest) -> Request:
    """The request after its trip over the wire."""
    return read_request(json.loads(request.to_line()))


def run(plan: PoolPlan, **settings: Any) -> dict[str, Any]:
    """The report of a check of `plan` on the CPU."""
    settings.setdefault("device", "cpu")
    request = as_child_reads(PoolRequest(plan, **settings))
    channel = Silent()
    return Run(request, pick(request.device), cast(Channel, channel), {}).run()


def figures(report: dict[str, Any], step: str) -> dict[str, Any]:
    """Figures of one step."""
    found = next(entry for entry in report["steps"] if entry["step"] == step)
    return cast("dict[str, Any]", found["figures"])


def never(done: float = 0.0) -> None:
    """Follows a step without telling anybody."""
