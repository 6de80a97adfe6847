"""One surface over the allocators: what a request of the exercise needs of its pool."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kvtui.core.pools.spec import PoolPlan

from .allocator_swa import SwaAllocator
from .allocator_unified import UnifiedAllocator
from .allocators import PagedAllocator, StateAllocator, TokenAllocator, ceil_div, plain_allocator
from .band import Band, Move
from .build import Built, Pool
from .sizing import indexed, space_of, space_slots

Tokens = TokenAllocator | PagedAllocator | SwaAllocator | UnifiedAllocator


class Gate:
    """What must have ended before pages of a unified pool may be moved; nothing, as a rule."""

    def __init__(self) -> None:
        self.wait: Callable[[], None] = lambda: None


class Slots:
    """Allocators of a built pool, and the rows that its slots address.

    Slots handed out are full slots (virtual ones in a unified pool); `rows` gives the physical
    rows in an index space.
    """

    def __init__(
        self, tokens: Tokens, states: StateAllocator | None, capacity: int, gate: Gate | None = None
    ) -> None:
        self.gate = gate or Gate()
        self.tokens = tokens
        self.states = states
        self.capacity = capacity
        """Tokens that fit into the empty pool, whichever side runs out first."""
        self.page_size = tokens.page_size
        self.unified = tokens if isinstance(tokens, UnifiedAllocator) else None
        self.has_states = states is not None or (
            self.unified is not None and self.unified.state is not None
        )

    def rows(self, space: str, slots: torch.Tensor) -> torch.Tensor:
        """Physical rows of full slots in `space` (full or swa)."""
        if self.unified is not None:
            end = self.unified.swa if space == "swa" else self.unified.full
            return slots if end is None else end.translate(slots)
        if space == "swa" and isinstance(self.tokens, SwaAllocator):
            return self.tokens.translate(slots)
        return slots

    def state_row(self, slot: torch.Tensor) -> torch.Tensor:
        """Physical row of a state slot."""
        if self.unified is not None and self.unified.state is not None:
            return self.unified.state.translate(slot)
        return slot

    def alloc_state(self) -> torch.Tensor | None:
        """A state slot, or None."""
        if self.unified is not None:
            return self.unified.alloc_state()
        return self.states.alloc(1) if self.states is not None else None

    def free_state(self, slot: torch.Tensor) -> None:
        """Give a state slot back."""
        if self.unified is not None:
            self.unified.free_state(slot)
        elif self.states is not None:
            self.states.free(slot)

    def free_window(self, slots: torch.Tensor) -> bool:
        """Give back the sliding side of `slots`; False where there is none."""
        tokens = self.tokens
        if isinstance(tokens, SwaAllocator) or (
            isinstance(tokens, UnifiedAllocator) and tokens.swa is not None
        ):
            tokens.free_swa(slots)
            return True
        return False

    def census(self) -> dict[str, int]:
        """Free units by side; equal before and after a history that lost nothing."""
        tokens = self.tokens
        if isinstance(tokens, UnifiedAllocator):
            return {role: band.num_pages - band.count for role, band in tokens.bands().items()}
        sides = {"full": tokens.available_size()}
        if isinstance(tokens, SwaAllocator):
            sides = {
                "full": tokens.full.available_size(),
                "swa": tokens.swa.available_size(),
            }
        if self.states is not None:
            sides["state"] = self.states.available_size()
        return sides


def _mover(pool: Pool, role: str, page_size: int, gate: Gate) -> Move:
    """Copies whole pages between rows of every buffer of one sub-pool."""
    tensors = [tensor for built in pool.buffers if built.sub.role == role for tensor in built.rows]

    def move(source: torch.Tensor, target: torch.Tensor) -> None:
        gate.wait()
        inside = torch.arange(page_size, device=source.device)
        origin = (source[:, None] * page_size + inside).reshape(-1)
        aim = (target[:, None] * page_size + inside).reshape(-1)
        for tensor in tensors:
            tensor[aim] = tensor[origin]

    return move


def _unified(pool: Pool, gate: Gate) -> UnifiedAllocator:
    """The bands of a unified pool: states from the low end, full slots from the high end,
    sliding slots from the low end or, beside states, floating in between."""
    plan = pool.plan
    entry = {
        sub.role: max(buffer.entry_bytes for buffer in sub.buffers)
        for sub in plan.sub_pools
        if any(buffer.entry_bytes for buffer in sub.buffers)
    }
    pages = {role: 1 if role == "state" else plan.page_size for role in entry}
    sink = max(entry[role] * pages[role] for role in entry)
    middle = "float" if "state" in entry else "up"
    grow = {"full": "down", "swa": middle, "state": "up"}
    bands = {
        role: Band(
            plan.raw_bytes,
            entry[role],
            pages[role],
            sink,
            grow[role],
            pool.device,
            _mover(pool, role, pages[role], gate),
        )
        for role in entry
    }
    return UnifiedAllocator(bands["full"], bands.get("swa"), bands.get("state"))


def make_slots(pool: Pool) -> Slots:
    """The allocators that this pool class gets, over the pool as built."""
    plan = pool.plan
    if plan.raw_bytes:
        gate = Gate()
        unified = _unified(pool, gate)
        return Slots(unified, None, unified.available_size(), gate)
    sizes = space_slots(plan)
    tokens: Tokens
    if plan.allocator == "PureSWATokenToKVPoolAllocator":
        tokens = plain_allocator(sizes["swa"], plan.page_size, pool.device)
    elif "swa" in sizes:
        tokens = SwaAllocator(sizes["full"], sizes["swa"], plan.page_size, pool.device)
    else:
        tokens = plain_allocator(sizes["full"], plan.page_size, pool.device)
    states = StateAllocator(sizes["state"], pool.device) if "state" in sizes else None
    return Slots(tokens, states, tokens.available_size())


def check_rows(pool: Pool) -> str:
    """Names the first buffer whose rows the slots of its space would overrun; empty if none.

    The engine gives every buffer room for all slots and one padding page.
    """
    plan: PoolPlan = pool.plan
    if plan.raw_bytes or not plan.writable:
        return ""
    sizes = space_slots(plan)
    for built in pool.buffers:
        spec = built.spec
        if spec.rows not in ("slot", "page") or not built.rows or not spec.shape[spec.row_axis]:
            continue
        page = plan.page_size
        highest = sizes[space_of(built.sub.role)] // page * page + page
        needed = ceil_div(highest, spec.tokens_per_row)
        if spec.shape[spec.row_axis] < needed:
            return (
                f"{built.label}: {spec.shape[spec.row_axis]} rows "
                f"(shape {list(spec.shape)}), its slots need {needed}"
            )
    return ""


def addressed(pool: Pool, space: str) -> list[tuple[int, Built]]:
    """Buffers, with their number in the pool, that the slots of `space` address.

    Left out are workspaces, request tables and tensors without rows; the sweep covers those.
    """
    slots = space_slots(pool.plan).get(space, 0)
    return [
        (number, built)
        for number, built in enumerate(pool.buffers)
        if space_of(built.sub.role) == space
        and (built.spec.rows == "request") == (space == "state")
        and built.rows
        and built.rows[0].numel()
        and (pool.plan.raw_bytes or indexed(built.spec, slots))
    ]
