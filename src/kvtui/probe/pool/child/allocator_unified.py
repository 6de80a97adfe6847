"""Allocators of unified pools: two sub-pools that grow towards each other in one buffer.

Requests hold virtual pages; a table per sub-pool says where a page lies. A freed page leaves a
hole, which the page nearest to the frontier is moved into at once, so that the bytes between the
two frontiers can serve either side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .allocators import DoubleFree, ceil_div, new_pages, spread

Move = Callable[[torch.Tensor, torch.Tensor], None]
"""Copies the rows of physical pages `source` to `target` (equal length, disjoint)."""


class EndAllocator:
    """One end of the shared buffer (`MultiEndedAllocator`), in pages."""

    def __init__(
        self,
        total_bytes: int,
        entry_bytes: int,
        page_size: int,
        sink_bytes: int,
        grow: str,
        device: torch.device,
        move: Move,
    ) -> None:
        self.page_size = page_size
        self.page_bytes = entry_bytes * page_size
        self.grow = grow
        self.device = device
        self.move = move
        self.num_pages = total_bytes // entry_bytes // page_size
        self.first_page = ceil_div(ceil_div(sink_bytes, entry_bytes), page_size)
        if self.num_pages <= self.first_page:
            raise ValueError("the shared buffer leaves no page beside its padding sink")
        self.peer: EndAllocator | None = None
        self.clear()

    def clear(self) -> None:
        """Nothing allocated; virtual page 0 is the padding page."""
        self.count = 0
        self.physical = torch.full((self.num_pages,), -1, dtype=torch.int64, device=self.device)
        self.owner = torch.full((self.num_pages,), -1, dtype=torch.int64, device=self.device)
        self.physical[0] = 0

    def _at(self, order: torch.Tensor) -> torch.Tensor:
        """Physical page of the n-th page from this end."""
        if self.grow == "up":
            return self.first_page + order
        return self.num_pages - 1 - order

    @property
    def frontier(self) -> int:
        """Byte where this end's pages stop."""
        if self.grow == "up":
            return (self.first_page + self.count) * self.page_bytes
        return (self.num_pages - self.count) * self.page_bytes

    def available_pages(self) -> int:
        """Pages between the frontiers (or up to the sink)."""
        if self.grow == "up":
            limit = self.peer.frontier if self.peer else self.num_pages * self.page_bytes
            gap = limit - self.frontier
        else:
            low = self.first_page * self.page_bytes
            gap = self.frontier - max(low, self.peer.frontier if self.peer else 0)
        inside = self.num_pages - self.first_page - self.count
        return max(0, min(gap // self.page_bytes, inside))

    def bind(self, virtual: torch.Tensor) -> bool:
        """Back virtual pages with physical ones; False (unchanged) when there is no room."""
        number = len(virtual)
        if number > self.available_pages():
            return False
        order = torch.arange(self.count, self.count + number, device=self.device)
        pages = self._at(order)
        self.physical[virtual] = pages
        self.owner[pages] = virtual
        self.count += number
        return True

    def unbind(self, virtual: torch.Tensor) -> None:
        """Release virtual pages and close the holes; raises DoubleFree, changing nothing."""
        pages = self.physical[virtual]
        if bool((virtual == 0).any()) or bool((pages < 0).any()):
            raise DoubleFree("a page that is not backed")
        if len(torch.unique(virtual)) != len(virtual):
            raise DoubleFree("a page twice in one call")
        self.physical[virtual] = -1
        self.owner[pages] = -1
        keep = self.count - len(virtual)
        tail = self._at(torch.arange(keep, self.count, device=self.device))
        movers = tail[self.owner[tail] >= 0]
        head = self._at(torch.arange(keep, device=self.device))
        holes = head[self.owner[head] < 0]
        if len(movers):
            self.move(movers, holes)
            owners = self.owner[movers]
            self.physical[owners] = holes
            self.owner[holes] = owners
            self.owner[movers] = -1
        self.count = keep

    def translate(self, slots: torch.Tensor) -> torch.Tensor:
        """Physical rows of virtual slots; released ones read as row 0, the padding row."""
        pages = self.physical[slots // self.page_size]
        rows = pages * self.page_size + slots % self.page_size
        return torch.where(pages < 0, torch.zeros_like(rows), rows)


class UnifiedAllocator:
    """Token side of a unified pool: `full` pages, and sliding pages bound to the same virtual
    ids where the pool has them; state slots are the peer end of a hybrid pool."""

    def __init__(
        self, full: EndAllocator, swa: EndAllocator | None, state: EndAllocator | None
    ) -> None:
        self.full = full
        self.swa = swa
        self.state = state
        other = swa or state
        if other is not None:
            full.peer, other.peer = other, full
        self.page_size = full.page_size
        self.clear()

    def clear(self) -> None:
        """Everything free again."""
        for end in (self.full, self.swa, self.state):
            if end is not None:
                end.clear()
        device = self.full.device
        self.virtual = torch.arange(1, self.full.num_pages, device=device)
        count = self.state.num_pages if self.state else 1
        self.virtual_states = torch.arange(1, count, device=device)

    def available_size(self) -> int:
        """Tokens that fit now, given what the other side has taken."""
        return self._pages_that_fit() * self.page_size

    def _pages_that_fit(self) -> int:
        pages = min(self.full.available_pages(), len(self.virtual))
        if self.swa is None:
            return pages
        gap = abs(self.full.frontier - self.swa.frontier)
        both = gap // (self.full.page_bytes + self.swa.page_bytes)
        room = self.swa.num_pages - self.swa.first_page - self.swa.count
        return min(pages, both, room)

    def alloc_extend(
        self, prefix_lens: Sequence[int], seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """Virtual slots of the new tokens of all requests, or None."""
        counts = new_pages(prefix_lens, seq_lens, self.page_size)
        need = sum(counts)
        if need > self._pages_that_fit():
            return None
        pages, rest = self.virtual[:need], self.virtual[need:]
        if not self.full.bind(pages):
            return None
        if self.swa is not None and not self.swa.bind(pages):
            self.full.unbind(pages)
            return None
        self.virtual = rest
        parts = [
            spread(own, prefix, seq, last, self.page_size)
            for own, prefix, seq, last in zip(
                torch.split(pages, counts), prefix_lens, seq_lens, last_locs, strict=True
            )
        ]
        return torch.cat(parts)

    def alloc_decode(
        self, seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """One virtual slot a request."""
        return self.alloc_extend([seq - 1 for seq in seq_lens], seq_lens, last_locs)

    def free(self, slots: torch.Tensor) -> None:
        """Give back every page that `slots` touch, with the sliding side if it is live."""
        if not slots.numel():
            return
        pages = torch.unique(slots // self.page_size)
        self.free_swa(slots)
        self.full.unbind(pages)
        self.virtual = torch.cat((pages, self.virtual))

    def free_swa(self, slots: torch.Tensor) -> None:
        """Give back the sliding side of the pages that `slots` touch."""
        if self.swa is None or not slots.numel():
            return
        pages = torch.unique(slots // self.page_size)
        live = pages[self.swa.physical[pages] >= 0]
        if len(live):
            self.swa.unbind(live)

    def alloc_state(self) -> torch.Tensor | None:
        """One virtual state slot, or None."""
        if self.state is None or not len(self.virtual_states):
            return None
        slot = self.virtual_states[:1]
        if not self.state.bind(slot):
            return None
        self.virtual_states = self.virtual_states[1:]
        return slot

    def free_state(self, slot: torch.Tensor) -> None:
        """Give a state slot back."""
        if self.state is not None:
            self.state.unbind(slot)
            self.virtual_states = torch.cat((self.virtual_states, slot))
