"""How much host memory the engine would ask for, and how many host pages a check may build."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from kvtui.core.pools.spec import ITEM_BITS, BufferSpec, PoolPlan

from .memory import GIB, available_host_bytes
from .request import HostTier
from .sizing import indexed, space_of, space_slots

RESERVE_BYTES = 10 * GIB
"""Host memory that the engine leaves to others (pool_host/base.py:26)."""
SLACK_FRACTION = 0.05
"""Kept for rounding and staging when a ratio is cut down (hicache_auto_size.py:33)."""


@dataclass(frozen=True)
class Space:
    """One index space of the host tier: host pages the engine would build."""

    name: str
    page: int
    page_bytes: int
    device_pages: int
    pages: int

    @property
    def nbytes(self) -> int:
        return self.pages * self.page_bytes


def slot_bytes(buffer: BufferSpec) -> float:
    """Bytes that one slot takes in all tensors of `buffer`."""
    rows = buffer.shape[buffer.row_axis] * buffer.tokens_per_row
    if buffer.entry_bytes:
        layers = buffer.shape[0] if buffer.row_axis else 1
        inner = prod(buffer.shape[buffer.row_axis + 1 :]) * ITEM_BITS[buffer.dtype] // 8
        return inner * layers * buffer.count
    return buffer.nbytes / rows if rows else 0.0


def spaces(plan: PoolPlan, tier: HostTier) -> list[Space]:
    """Host pages by index space: the device's slots by ratio, or the given size shared out by
    device bytes (pool_host/base.py:203, hybrid_pool_assembler.py:239)."""
    slots = space_slots(plan)
    per_slot = dict.fromkeys(slots, 0.0)
    for sub in plan.sub_pools:
        space = space_of(sub.role)
        for buffer in sub.buffers:
            states = buffer.rows == "request"
            if states != (space == "state") or buffer.rows == "flat" or not sub.listed:
                continue
            if buffer.entry_bytes and not plan.raw_bytes:
                continue
            if plan.raw_bytes or indexed(buffer, slots[space]):
                per_slot[space] += slot_bytes(buffer)
    device = {name: slots[name] * each for name, each in per_slot.items()}
    total = sum(device.values()) or 1.0
    found = []
    for name, each in per_slot.items():
        if not each:
            continue
        page = 1 if name == "state" else plan.page_size
        share = tier.size_gb * 1e9 * device[name] / total
        wanted = int(share // each) if tier.size_gb > 0 else int(slots[name] * tier.ratio)
        pages = wanted // page + 1
        found.append(Space(name, page, round(each * page), slots[name] // page, pages))
    return found


def verdict(planned: list[Space], tier: HostTier) -> dict[str, Any]:
    """The engine's own sizing and check of host memory, done for this machine and all its ranks:
    a default ratio is cut down until it fits, a given one fits or stops the start."""
    asked = sum(space.nbytes for space in planned)
    available = available_host_bytes()
    budget = max(0, available - RESERVE_BYTES) // max(1, tier.ranks)
    cut = 1.0
    if tier.fraction is not None and asked:
        cut = min(1.0, budget * tier.fraction * (1 - SLACK_FRACTION) / asked)
        asked = int(asked * cut)
    return {
        "ratio": round(tier.ratio * cut, 4),
        "bytes_a_rank": asked,
        "ranks": tier.ranks,
        "bytes_all_ranks": asked * tier.ranks,
        "available_bytes": available,
        "reserve_bytes": RESERVE_BYTES,
        "budget_a_rank": budget,
        "fits_here": 0 < asked <= budget,
    }
