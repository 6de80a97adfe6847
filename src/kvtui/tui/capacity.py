"""One GPU's memory as parts, and what fits into it, made from a report's capacity."""

from __future__ import annotations

from dataclasses import dataclass

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
    parts = tuple(
        Part(label, int(getattr(capacity, name)))
        for name, label in names
        if getattr(capacity, name, 0)
    )
    tokens = int(getattr(capacity, "max_total_num_tokens", 0) or 0)
    requests = int(getattr(capacity, "max_running_requests", 0) or 0)
    return Picture(gpu.memory_mib << 20, parts, tokens, requests, _contexts(tokens, requests))


CONTEXTS = (8192, 32768, 131072)


def _contexts(tokens: int, requests: int) -> tuple[str, ...]:
    if not tokens:
        return ()
    fits = [
        f"{length // 1024}k context: {min(tokens // length, requests or tokens)} at once"
        for length in CONTEXTS
        if tokens >= length
    ]
    return tuple(fits)
