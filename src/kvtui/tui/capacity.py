"""One GPU's memory as parts, and what fits into it, made from a report's capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


@dataclass(frozen=True, slots=True)
class Part:
    """A share of one GPU's memory, in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Picture:
    """What the memory bar shows. Sizes are bytes of one GPU."""

    total: int
    parts: tuple[Part, ...]
    tokens: int
    requests: int
    sentences: tuple[str, ...] = ()


def picture(report: Report) -> Picture | None:
    """The memory picture of a report, or None where its capacity is not known."""
    capacity = report.capacity
    gpu = report.facts.gpu
    if capacity is None or gpu is None:
        return None
    names = (("weights_bytes", "weights"), ("kv_bytes", "KV"), ("state_bytes", "state"),
             ("graph_bytes", "graphs"), ("draft_bytes", "draft"))  # fmt: skip
    found = ((label, _number(capacity, name)) for name, label in names)
    parts = tuple(Part(label, size) for label, size in found if size)
    tokens = _number(capacity, "max_total_num_tokens")
    requests = _number(capacity, "max_running_requests")
    return Picture(gpu.memory_mib << 20, parts, tokens, requests, _contexts(tokens, requests))


def _number(capacity: object, name: str) -> int:
    """A field as a whole number, whether it is a plain one or a figure with its certainty."""
    value: Any = getattr(capacity, name, 0)
    value = getattr(value, "value", value)
    return int(value or 0)


CONTEXTS = (8192, 32768, 131072)


def _contexts(tokens: int, requests: int) -> tuple[str, ...]:
    if not tokens:
        return ()
    fits = [
        f"{min(tokens // length, requests or tokens):,} of {length // 1024}k"
        for length in CONTEXTS
        if tokens >= length
    ]
    most = f", {requests:,} requests at most" if requests else ""
    return (f"{tokens:,} tokens{most}", *(("at once: " + " · ".join(fits),) if fits else ()))
