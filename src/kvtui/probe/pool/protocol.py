"""Request, events and outcome of a pool check as the parent sees them (no torch here)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from kvtui.core.facts import PoolFact
from kvtui.core.pools.spec import PoolPlan

from .child.request import HostTier, Offload

__all__ = ["HostTier", "Offload", "PoolEvent", "PoolOutcome", "PoolRequest", "ProtocolError"]

PROTOCOL = 1
EVENTS = ("hello", "step", "progress", "result", "error")
STEPS = ("build", "exercise", "sweep", "host", "offload")


class ProtocolError(ValueError):
    """A line of the child is not an event of this protocol."""


@dataclass(frozen=True)
class PoolRequest:
    """A pool to build and check.

    `python` is the command that starts a Python with torch; empty for this one. `limit_bytes`
    bounds the pool, `share` the part of free memory it takes unasked, `full` builds the planned
    size. `host` and `offload` are tried when set and named in `steps`.
    """

    plan: PoolPlan
    device: str = "auto"
    python: tuple[str, ...] = ()
    full: bool = False
    limit_bytes: int | None = None
    share: float = 0.25
    host_limit_bytes: int | None = None
    time_limit_s: float = 120.0
    steps: tuple[str, ...] = STEPS
    host: HostTier | None = None
    offload: Offload | None = None
    seed: int = 1

    @property
    def key(self) -> str:
        """Tags the answer: digest of the plan."""
        return self.plan.key

    def to_line(self) -> bytes:
        """The request as the child reads it."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        data.pop("python")
        for name in ("plan", "host", "offload"):
            data[name] = None if data[name] is None else asdict(data[name])
        return (json.dumps(data) + "\n").encode("ascii")


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """One message of the child: a step started or passed, or progress inside one."""

    event: str
    step: str = ""
    state: str = ""
    """started | passed, for steps."""
    title: str = ""
    seconds: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    done: float = 0.0
    """Share of the step that is done, 0 to 1, for progress."""
    body: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The whole message."""


def parse_event(line: bytes) -> PoolEvent:
    """The event in `line`; raises ProtocolError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(_shorten(line)) from error
    if not isinstance(data, dict) or data.get("event") not in EVENTS:
        raise ProtocolError(_shorten(line))
    texts = {name: data.get(name, "") for name in ("step", "state", "title")}
    numbers = {name: data.get(name, 0.0) for name in ("seconds", "done")}
    figures = data.get("figures", {})
    if not (
        all(isinstance(text, str) for text in texts.values())
        and all(isinstance(number, int | float) for number in numbers.values())
        and isinstance(figures, dict)
    ):
        raise ProtocolError(_shorten(line))
    return PoolEvent(data["event"], **texts, **numbers, figures=figures, body=data)


def _shorten(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return printable[:80] + ("…" if len(printable) > 80 else "")


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """How a pool check ended; `error` is one line for people, `kind` its group."""

    request_key: str
    ok: bool
    report: Mapping[str, Any]
    error: str | None = None
    kind: str = ""
    """timeout | oom | memory | device | python | torch | protocol | died | refused …"""

    def fact(self) -> PoolFact:
        """The outcome as a fact for `evaluate`."""
        report = {**self.report, **summary(self.report), "error": self.error, "kind": self.kind}
        return PoolFact(self.request_key, self.ok, report)


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """What headers and presets carry of a check: class, size and place of the built pool."""
    built, device = report.get("built"), report.get("device")
    found: dict[str, Any] = {"class": report.get("pool_class", "")}
    if isinstance(built, Mapping):
        found["tokens"] = built.get("tokens")
        found["allocated_bytes"] = built.get("allocated_bytes")
    if isinstance(device, Mapping):
        name, index = str(device.get("name", "")), str(device.get("device", ""))
        place = f"{name} ({index})" if index.startswith("cuda") else name
        size = built.get("reduced") if isinstance(built, Mapping) else None
        found["place"] = f"{place} at {size}" if size else place
    return found
