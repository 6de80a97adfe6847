"""One GPU's memory as parts, and what fits into it, made from a report's capacity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtui.tui.words import gib_text

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


@dataclass(frozen=True, slots=True)
class Part:
    """A share of one GPU's memory, in bytes; `about` marks an estimate."""

    name: str
    size: int
    about: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """What the memory bar shows. Sizes are bytes of one GPU."""

    total: int
    parts: tuple[Part, ...]
    tokens: int
    requests: int
    sentences: tuple[str, ...] = ()

    @property
    def free(self) -> int:
        """What no part takes; below zero where it does not fit."""
        return self.total - sum(part.size for part in self.parts)


LIMITED_BY = {
    "option": "as asked",
    "default": "the engine's own limit",
    "tokens": "limited by tokens",
    "states": "limited by state slots",
}


def picture(report: Report) -> Picture | None:
    """The memory picture of a report, or None where its capacity is not known."""
    c = report.capacity
    gpu = report.facts.gpu
    if c is None or gpu is None:
        return None
    used = (
        Part("weights", c.weights_bytes, c.weights.kind == "estimated"),
        Part("draft", c.draft_bytes, c.draft_weights.kind == "estimated"),
        Part("KV", c.kv_bytes),
        Part("state", int(c.state_bytes)),
        Part("graphs", c.graph_bytes, True),
    )
    tokens, requests = c.max_total_num_tokens, c.max_running_requests
    sentences = [f"{tokens:,} tokens", f"{requests:,} requests ({LIMITED_BY[c.limited_by]})"]
    lines = [", ".join(sentences)]
    if c.fits:
        lines.append(f"at once: {_fits(c.fits)}")
    if c.host_bytes:
        lines.append(f"host memory for it: {gib_text(c.host_bytes)}")
    return Picture(
        gpu.memory_mib << 20,
        tuple(part for part in used if part.size > 0),
        tokens,
        requests,
        tuple(lines),
    )


def _fits(fits: Mapping[int, int]) -> str:
    return " · ".join(
        f"{count:,} of {context // 1024}k" for context, count in fits.items() if context >= 1024
    )
