"""Shrinks a pool plan to a byte budget: fewer slots first, then fewer layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from kvtui.core.pools.spec import BufferSpec, PoolPlan, SubPool

MIN_PAGES = 8
MIN_TOKENS = 64
MIN_STATES = 3
OWN_SPACES = ("swa", "state")
"""Roles with an index space of their own; every other role is indexed by full slots."""


class TooSmall(ValueError):
    """Not even the smallest pool of this class fits the budget; `needed` is its bytes."""

    def __init__(self, needed: int, budget: int) -> None:
        super().__init__(f"the smallest pool needs {needed} bytes, the limit is {budget}")
        self.needed = needed


@dataclass(frozen=True)
class Reduction:
    """How the built pool differs from the planned one."""

    slots: float
    """Share of the planned slots, 0 to 1."""
    layers: float
    """Share of the planned layers, 0 to 1."""

    def __str__(self) -> str:
        parts = [f"{self.slots:.2%} of the slots"] if self.slots < 1 else []
        parts += [f"{self.layers:.0%} of the layers"] if self.layers < 1 else []
        return " and ".join(parts) or "full size"


def indexed(buffer: BufferSpec, slots: int) -> bool:
    """Whether the slots of an index space of `slots` address the rows of `buffer`."""
    if buffer.rows == "flat":
        return False
    return buffer.shape[buffer.row_axis] * buffer.tokens_per_row > slots


def space_of(role: str) -> str:
    """Index space of a sub-pool with this role."""
    return role if role in OWN_SPACES else "full"


def space_slots(plan: PoolPlan) -> dict[str, int]:
    """Usable slots by index space; `full` falls back to the planned tokens."""
    slots = {"full": plan.tokens}
    for sub in plan.sub_pools:
        if sub.role in OWN_SPACES or sub.role == "full":
            slots[sub.role] = sub.slots
    return slots


def minimum_slots(plan: PoolPlan, space: str) -> int:
    """Fewest slots on which the exercise still means something."""
    if space == "state":
        return MIN_STATES
    widest = max((b.tokens_per_row for s in plan.sub_pools for b in s.buffers), default=1)
    page = max(plan.page_size, widest)
    return max(MIN_PAGES * page, ceil(MIN_TOKENS / page) * page)


def _shrink_slots(plan: PoolPlan, factor: float) -> PoolPlan:
    planned = space_slots(plan)
    wanted: dict[str, int] = {}
    for space, slots in planned.items():
        page = 1 if space == "state" else plan.page_size
        floor = minimum_slots(plan, space)
        wanted[space] = min(slots, max(floor, int(slots * factor) // page * page))
    raw = 0
    if plan.raw_bytes:
        raw = max(int(plan.raw_bytes * factor), min(plan.raw_bytes, _minimum_raw(plan)))
    subs = tuple(_shrink_sub(sub, planned, wanted, raw) for sub in plan.sub_pools)
    return replace(plan, tokens=wanted["full"], sub_pools=subs, raw_bytes=raw)


def _minimum_raw(plan: PoolPlan) -> int:
    """Bytes for the sink and the minimum of every sub-pool of a unified pool."""
    need = 0
    sink = 0
    for sub in plan.sub_pools:
        entry = max((b.entry_bytes for b in sub.buffers), default=0)
        page = 1 if sub.role == "state" else plan.page_size
        sink = max(sink, entry * page)
        need += entry * (minimum_slots(plan, space_of(sub.role)) + page)
    return need + sink


def _shrink_sub(sub: SubPool, planned: dict[str, int], wanted: dict[str, int], raw: int) -> SubPool:
    space = space_of(sub.role)
    scale = _Scale(planned[space], wanted[space], raw, sub.page_size)
    buffers = tuple(scale.shrink(buffer) for buffer in sub.buffers)
    slots = sub.slots - (scale.planned - scale.wanted)
    return replace(sub, slots=max(min(1, sub.slots), slots), buffers=buffers)


@dataclass(frozen=True)
class _Scale:
    """Slots of one index space before and after."""

    planned: int
    wanted: int
    raw: int
    page: int

    def shrink(self, buffer: BufferSpec) -> BufferSpec:
        """`buffer` with as many rows less as the space has slots less.

        Rows that slots do not index (workspaces, request tables) shrink in proportion.
        """
        rows = buffer.shape[buffer.row_axis]
        less = self.planned - self.wanted
        if buffer.entry_bytes and self.raw:
            unit = 1 if buffer.rows == "request" else self.page
            rows = min(rows, self.raw // buffer.entry_bytes // unit * unit)
        elif indexed(buffer, self.planned):
            rows -= less // buffer.tokens_per_row
        elif less and rows:
            rows = max(1, rows * self.wanted // self.planned)
        shape = list(buffer.shape)
        shape[buffer.row_axis] = rows
        return replace(buffer, shape=tuple(shape))


def _shrink_layers(plan: PoolPlan, share: float) -> PoolPlan:
    def shrink(buffer: BufferSpec) -> BufferSpec:
        if buffer.row_axis:
            return replace(buffer, shape=(max(1, int(buffer.shape[0] * share)), *buffer.shape[1:]))
        return replace(buffer, count=max(1, int(buffer.count * share)))

    subs = tuple(
        replace(
            sub,
            buffers=tuple(shrink(buffer) for buffer in sub.buffers),
            layers=max(1, int(sub.layers * share)) if sub.layers else 0,
        )
        for sub in plan.sub_pools
    )
    return replace(plan, sub_pools=subs)


def fit(plan: PoolPlan, budget: int) -> tuple[PoolPlan, Reduction | None]:
    """The largest pool of this plan within `budget` bytes; raises TooSmall.

    Unified pools keep their layers: the entry layout of the shared buffer contains them all.
    """
    if plan.nbytes <= budget:
        return plan, None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if _shrink_slots(plan, middle).nbytes <= budget:
            low = middle
        else:
            high = middle
    small = _shrink_slots(plan, low)
    share = space_slots(small)["full"] / max(1, space_slots(plan)["full"])
    if small.nbytes <= budget:
        return small, Reduction(share, 1.0)
    layers = budget / small.nbytes
    thin = small if plan.raw_bytes else _shrink_layers(small, layers)
    if thin.nbytes > budget:
        raise TooSmall(thin.nbytes, budget)
    return thin, Reduction(share, layers)
