"""The pair of allocators of a sliding-window pool, with the full-to-sliding mapping."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .allocators import DoubleFree, ceil_div, new_pages, plain_allocator


class SwaAllocator:
    """`SWATokenToKVPoolAllocator`: every token takes a full and a sliding slot of equal page
    size; the sliding one can go earlier, when the token leaves the window.

    `mapping[full slot]` is the sliding slot, 0 once it was released (0 is the padding slot).
    """

    def __init__(
        self,
        size: int,
        size_swa: int,
        page_size: int,
        device: torch.device,
        need_sort: bool = False,
    ) -> None:
        self.page_size = page_size
        self.full = plain_allocator(size, page_size, device, need_sort)
        self.swa = plain_allocator(size_swa, page_size, device, need_sort)
        # One more entry at the end, -1: a last slot of -1 (no prefix) reads it.
        self.mapping = torch.zeros(size + page_size + 1, dtype=torch.int64, device=device)
        self.mapping[-1] = -1

    @property
    def size(self) -> int:
        return min(self.full.size, self.swa.size)

    def available_size(self) -> int:
        """Tokens that both sides can still take."""
        return min(self.full.available_size(), self.swa.available_size())

    def translate(self, slots: torch.Tensor) -> torch.Tensor:
        """Sliding slots of full `slots`."""
        return self.mapping[slots]

    def _fits(self, full_pages: int, swa_pages: int) -> bool:
        return (
            full_pages * self.page_size <= self.full.available_size()
            and swa_pages * self.page_size <= self.swa.available_size()
        )

    def alloc(self, need: int) -> torch.Tensor | None:
        """`need` tokens on both sides, or None."""
        pages = need // self.page_size
        if not self._fits(pages, pages):
            return None
        return self._pair(self.full.alloc(need), self.swa.alloc(need))

    def alloc_extend(
        self, prefix_lens: Sequence[int], seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """Slots of the new tokens, taken on both sides in step."""
        pages = sum(new_pages(prefix_lens, seq_lens, self.page_size))
        if not self._fits(pages, pages):
            return None
        swa_last = [int(self.mapping[last]) for last in last_locs]
        return self._pair(
            self.full.alloc_extend(prefix_lens, seq_lens, last_locs),
            self.swa.alloc_extend(prefix_lens, seq_lens, swa_last),
        )

    def alloc_decode(
        self, seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """One token a request on both sides."""
        pages = sum(new_pages([seq - 1 for seq in seq_lens], seq_lens, self.page_size))
        if not self._fits(pages, pages):
            return None
        swa_last = [int(self.mapping[last]) for last in last_locs]
        return self._pair(
            self.full.alloc_decode(seq_lens, last_locs), self.swa.alloc_decode(seq_lens, swa_last)
        )

    def alloc_extend_tail(self, length: int, tail: int) -> torch.Tensor | None:
        """A request of `length` tokens of which only the last `tail` get sliding slots, as a
        decode server takes a prompt that was prefilled elsewhere (page size above 1)."""
        pages = ceil_div(length, self.page_size)
        if not self._fits(pages, ceil_div(tail, self.page_size)):
            return None
        slots = self.full.alloc_extend([0], [length], [-1])
        if slots is None or not tail:
            return slots
        self._pair(slots[-tail:], self.swa.alloc_extend([0], [tail], [-1]))
        return slots

    def _pair(self, full: torch.Tensor | None, swa: torch.Tensor | None) -> torch.Tensor:
        if full is None or swa is None:
            raise RuntimeError("one side of the pair ran out after both had room")
        self.mapping[full] = swa
        return full

    def free(self, slots: torch.Tensor) -> None:
        """Give back both sides; sliding slots that went earlier are skipped."""
        self.free_swa(slots)
        self.free_full(slots)

    def free_swa(self, slots: torch.Tensor) -> None:
        """Give back the sliding side of the pages that `slots` touch."""
        touched = self._whole_pages(slots)
        peers = self.mapping[touched]
        live = peers[peers > 0]
        if live.numel():
            self.swa.free(live)
        self.mapping[touched] = 0

    def free_full(self, slots: torch.Tensor) -> None:
        """Give back the full side; raises DoubleFree while a sliding peer is still live."""
        if not slots.numel():
            return
        if bool((self.mapping[slots] != 0).any()):
            raise DoubleFree("the sliding side of these slots is still live")
        self.full.free(slots)

    def _whole_pages(self, slots: torch.Tensor) -> torch.Tensor:
        pages: torch.Tensor = torch.unique(slots // self.page_size)
        inside = torch.arange(self.page_size, dtype=torch.int64, device=slots.device)
        return (pages[:, None] * self.page_size + inside).reshape(-1)

    def clear(self) -> None:
        """Everything free again."""
        self.full.clear()
        self.swa.clear()
        self.mapping[:-1] = 0
