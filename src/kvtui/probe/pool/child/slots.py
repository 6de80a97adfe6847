"""One surface over the allocators: what a request of the exercise needs of its pool."""

from __future__ import annotations

from math import prod

import torch

from kvtui.core.pools.spec import PoolPlan

from .allocator_swa import SwaAllocator
from .allocator_unified import EndAllocator, Move, UnifiedAllocator
from .allocators import PagedAllocator, StateAllocator, TokenAllocator, ceil_div, plain_allocator
from .build import Pool, byte_shape
from .sizing import space_slots

Tokens = TokenAllocator | PagedAllocator | SwaAllocator | UnifiedAllocator


class Slots:
    """Allocators of a built pool, and the rows that its slots address.

    Slots handed out are full slots (virtual ones in a unified pool); `rows` gives the physical
    rows in an index space.
    """

    def __init__(self, tokens: Tokens, states: StateAllocator | None, capacity: int) -> None:
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
            ends = {"full": tokens.full, "swa": tokens.swa, "state": tokens.state}
            return {name: end.num_pages - end.count for name, end in ends.items() if end}
        sides = {"full": tokens.available_size()}
        if isinstance(tokens, SwaAllocator):
            sides = {
                "full": tokens.full.available_size(),
                "swa": tokens.swa.available_size(),
            }
        if self.states is not None:
            sides["state"] = self.states.available_size()
        return sides


def _mover(pool: Pool, role: str, page_size: int) -> Move:
    """Copies whole pages between rows of every buffer of one sub-pool."""
    tensors = [tensor for built in pool.buffers if built.sub.role == role for tensor in built.rows]

    def move(source: torch.Tensor, target: torch.Tensor) -> None:
        inside = torch.arange(page_size, device=source.device)
        origin = (source[:, None] * page_size + inside).reshape(-1)
        aim = (target[:, None] * page_size + inside).reshape(-1)
        for tensor in tensors:
            tensor[aim] = tensor[origin]

    return move


def _unified(pool: Pool) -> UnifiedAllocator:
    """The ends of a unified pool; sub-pools that share a role's entries share its end."""
    plan = pool.plan
    entry = {
        sub.role: max(buffer.entry_bytes for buffer in sub.buffers)
        for sub in plan.sub_pools
        if any(buffer.entry_bytes for buffer in sub.buffers)
    }
    pages = {role: 1 if role == "state" else plan.page_size for role in entry}
    sink = max(entry[role] * pages[role] for role in entry)
    grow = {sub.role: sub.grow for sub in plan.sub_pools}
    ends = {
        role: EndAllocator(
            plan.raw_bytes,
            entry[role],
            pages[role],
            sink,
            grow[role] or ("down" if role == "full" else "up"),
            pool.device,
            _mover(pool, role, pages[role]),
        )
        for role in entry
    }
    return UnifiedAllocator(ends["full"], ends.get("swa"), ends.get("state"))


def make_slots(pool: Pool) -> Slots:
    """The allocators that this pool class gets, over the pool as built."""
    plan = pool.plan
    if plan.raw_bytes:
        unified = _unified(pool)
        return Slots(unified, None, unified.available_size())
    sizes = space_slots(plan)
    tokens: Tokens
    if "swa" in sizes:
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
        space = "state" if spec.rows == "request" else built.sub.role
        slots = sizes.get(space, sizes["full"])
        highest = slots + (0 if spec.rows == "request" or plan.page_size == 1 else plan.page_size)
        needed = {
            "slot": highest if plan.page_size > 1 else slots + 1,
            "page": ceil_div(highest, spec.tokens_per_row),
            "request": slots + 1,
            "flat": 1,
        }[spec.rows]
        if spec.shape[spec.row_axis] < needed:
            return (
                f"{built.label}: {spec.shape[spec.row_axis]} rows "
                f"(shape {list(spec.shape)}), its slots need {needed}"
            )
    return ""


def total_items(pool: Pool) -> int:
    """Bytes of all rows of the built pool, views of a shared buffer counted once each."""
    return sum(prod(byte_shape(built.spec)) * built.spec.count for built in pool.buffers)
