"""The token allocator of a unified pool: virtual pages over bands of one shared buffer.

Requests hold virtual pages; a table per band says where a page lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from .allocators import DoubleFree, ceil_div, new_pages, spread
from .band import Band


class UnifiedAllocator:
    """Token side of a unified pool: full pages, and sliding pages bound to the same virtual ids
    where the pool has them; state slots have virtual ids of their own."""

    def __init__(self, full: Band, swa: Band | None, state: Band | None) -> None:
        self.full = full
        self.swa = swa
        self.state = state
        chain = [band for band in (state, swa, full) if band is not None]
        for low, high in pairwise(chain):
            low.high_peer, high.low_peer = high, low
        self.page_size = full.page_size
        self.clear()

    def bands(self) -> dict[str, Band]:
        """The sub-pools by role."""
        every = {"full": self.full, "swa": self.swa, "state": self.state}
        return {role: band for role, band in every.items() if band is not None}

    def clear(self) -> None:
        """Everything free again."""
        self.full.clear(self.full.num_pages)
        if self.swa is not None:
            self.swa.clear(self.full.num_pages)
        states = self.state.num_pages if self.state is not None else 1
        if self.state is not None:
            self.state.clear(states)
        self.virtual = torch.arange(1, self.full.num_pages, device=self.full.device)
        self.virtual_states = torch.arange(1, states, device=self.full.device)

    def available_size(self) -> int:
        """Tokens that fit now, given what the other sides have taken."""
        return self._pages_that_fit() * self.page_size

    def _pages_that_fit(self) -> int:
        low, high = 0, min(self.full.available_pages(), len(self.virtual))
        if self.swa is None:
            return high
        while low < high:
            middle = (low + high + 1) // 2
            if self._both_fit(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def _both_fit(self, pages: int) -> bool:
        """Whether full and sliding bands can both grow by `pages`."""
        swa = self.swa
        assert swa is not None
        limit = (self.full.base - pages) * self.full.page_bytes
        start = swa.first_page
        if swa.grow == "float" and swa.low_peer is not None:
            start = max(start, ceil_div(swa.low_peer.end_bytes(), swa.page_bytes))
        return start + swa.count + pages <= min(swa.num_pages, limit // swa.page_bytes)

    def alloc_extend(
        self, prefix_lens: Sequence[int], seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """Virtual slots of the new tokens of all requests, or None."""
        counts = new_pages(prefix_lens, seq_lens, self.page_size)
        need = sum(counts)
        if need > self._pages_that_fit():
            return None
        pages, rest = self.virtual[:need], self.virtual[need:]
        if not self.full.bind(pages) or (self.swa is not None and not self.swa.bind(pages)):
            raise RuntimeError("a band of the unified pool ran out after it had room")
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
        if bool((self.full.physical[pages] < 0).any()):
            raise DoubleFree("a page that is not backed")
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
