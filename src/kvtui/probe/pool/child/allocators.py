"""Slot allocators with the engine's behaviour: tokens, pages and state slots.

Slot 0 (page 0) is never handed out: padded tokens write there. An allocator answers None when it
can't serve a request and is then unchanged. Unlike the engine's, these notice a double free.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class DoubleFree(RuntimeError):
    """A slot or page was given back that is not handed out."""


def ceil_div(amount: int, unit: int) -> int:
    """`amount` in whole units, rounded up."""
    return -(-amount // unit)


class FreeList:
    """Free units (slots or pages) 1..count, in the order in which they will be handed out.

    With `need_sort`, freed units wait in `staged` until an allocation runs short, then all free
    units are sorted; without it they go behind (`front=False`) or before the free ones.
    """

    def __init__(self, count: int, device: torch.device, need_sort: bool, front: bool) -> None:
        self.count = count
        self.device = device
        self.need_sort = need_sort
        self.front = front
        self.clear()

    def clear(self) -> None:
        """Everything free again."""
        self.free = torch.arange(1, self.count + 1, dtype=torch.int64, device=self.device)
        self.staged = torch.empty(0, dtype=torch.int64, device=self.device)
        self.taken = torch.zeros(self.count + 1, dtype=torch.bool, device=self.device)

    def __len__(self) -> int:
        return len(self.free) + len(self.staged)

    def take(self, number: int, bound: int = 0) -> torch.Tensor | None:
        """The next `number` units, or None; staged ones join when fewer than `bound` are free."""
        if max(number, bound) > len(self.free) and len(self.staged):
            self.free = torch.sort(torch.cat((self.free, self.staged))).values
            self.staged = self.staged[:0]
        if number > len(self.free):
            return None
        units, self.free = self.free[:number], self.free[number:]
        self.taken[units] = True
        return units

    def give_back(self, units: torch.Tensor) -> None:
        """Units are free again; raises DoubleFree, changing nothing."""
        if not units.numel():
            return
        if len(torch.unique(units)) != len(units) or not bool(self.taken[units].all()):
            raise DoubleFree(f"{len(units)} units, some of them not handed out")
        self.taken[units] = False
        if self.need_sort:
            self.staged = torch.cat((self.staged, units))
        elif self.front:
            self.free = torch.cat((units, self.free))
        else:
            self.free = torch.cat((self.free, units))


class TokenAllocator:
    """`TokenToKVPoolAllocator`: single slots, oldest freed last."""

    page_size = 1

    def __init__(self, size: int, device: torch.device, need_sort: bool = False) -> None:
        self.size = size
        self.units = FreeList(size, device, need_sort, front=False)

    def available_size(self) -> int:
        """Tokens that can still be allocated."""
        return len(self.units)

    def alloc(self, need: int) -> torch.Tensor | None:
        """`need` slots, or None."""
        return self.units.take(need)

    def alloc_extend(
        self, prefix_lens: Sequence[int], seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """Slots of the new tokens of all requests, one request behind the other."""
        return self.alloc(sum(seq_lens) - sum(prefix_lens))

    def alloc_decode(
        self, seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """One slot a request; `seq_lens` count the new token."""
        return self.alloc(len(seq_lens))

    def free(self, slots: torch.Tensor) -> None:
        """Give `slots` back."""
        self.units.give_back(slots)

    def clear(self) -> None:
        """Everything free again."""
        self.units.clear()


def new_pages(prefix_lens: Sequence[int], seq_lens: Sequence[int], page_size: int) -> list[int]:
    """Pages that each request needs beyond those that its prefix already has."""
    return [
        ceil_div(seq, page_size) - ceil_div(prefix, page_size)
        for prefix, seq in zip(prefix_lens, seq_lens, strict=True)
    ]


def spread(
    pages: torch.Tensor, prefix: int, seq: int, last_loc: int, page_size: int
) -> torch.Tensor:
    """Slots of tokens prefix..seq: the rest of the last page first, then `pages`."""
    room = min(-prefix % page_size, seq - prefix)
    device = pages.device
    first = torch.arange(last_loc + 1, last_loc + 1 + room, dtype=torch.int64, device=device)
    inside = torch.arange(page_size, dtype=torch.int64, device=device)
    rest = (pages[:, None] * page_size + inside).reshape(-1)[: seq - prefix - room]
    return torch.cat((first, rest))


class PagedAllocator:
    """`PagedTokenToKVPoolAllocator`: whole pages, so that position p of a request lies at
    offset p % page_size of its page."""

    def __init__(
        self, size: int, page_size: int, device: torch.device, need_sort: bool = False
    ) -> None:
        self.size = size
        self.page_size = page_size
        self.units = FreeList(size // page_size, device, need_sort, front=True)

    def available_size(self) -> int:
        """Tokens that can still be allocated, in whole pages."""
        return len(self.units) * self.page_size

    def alloc(self, need: int) -> torch.Tensor | None:
        """Slots of `need` // page_size pages, or None."""
        pages = self.units.take(need // self.page_size)
        if pages is None:
            return None
        return spread(pages, 0, len(pages) * self.page_size, -1, self.page_size)

    def alloc_extend(
        self, prefix_lens: Sequence[int], seq_lens: Sequence[int], last_locs: Sequence[int]
    ) -> torch.Tensor | None:
        """Slots of the new tokens of all requests, one request behind the other.

        `last_locs` holds the slot of each prefix's last token, -1 without a prefix.
        """
        # The engine bounds the need before it counts pages, which decides when it sorts.
        added = sum(seq_lens) - sum(prefix_lens)
        bound = added // self.page_size + len(seq_lens) + 1
        return self._take(prefix_lens, seq_lens, last_locs, bound)

    def _take(
        self,
        prefix_lens: Sequence[int],
        seq_lens: Sequence[int],
        last_locs: Sequence[int],
        bound: int,
    ) -> torch.Tensor | None:
        counts = new_pages(prefix_lens, seq_lens, self.page_size)
        pages = self.units.take(sum(counts), bound)
        if pages is None:
            return None
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
        """One slot a request; a new page where the previous one is full."""
        return self._take([seq - 1 for seq in seq_lens], seq_lens, last_locs, len(seq_lens))

    def free(self, slots: torch.Tensor) -> None:
        """Give back every page that `slots` touch."""
        self.units.give_back(torch.unique(slots // self.page_size))

    def clear(self) -> None:
        """Everything free again."""
        self.units.clear()


class StateAllocator:
    """`MambaSlotAllocator`: one state slot a request, with batches taken ahead."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self.units = FreeList(size, device, need_sort=False, front=False)
        self._ahead: list[torch.Tensor] = []

    def available_size(self) -> int:
        """Free slots, those taken ahead not counted."""
        return len(self.units)

    def group_begin(self, number: int) -> None:
        """Take `number` slots ahead; `alloc(1)` draws on them until `group_end`."""
        taken = self.units.take(number) if number > 0 else None
        self._ahead = list(torch.split(taken, 1)) if taken is not None else []

    def group_end(self) -> None:
        """Give back what was taken ahead and not used."""
        rest, self._ahead = self._ahead, []
        if rest:
            self.units.give_back(torch.cat(rest))

    def alloc(self, number: int) -> torch.Tensor | None:
        """`number` slots, or None."""
        if number == 1 and self._ahead:
            return self._ahead.pop(0)
        return self.units.take(number)

    def free(self, slots: torch.Tensor) -> None:
        """Give `slots` back."""
        self.units.give_back(slots)

    def clear(self) -> None:
        """Everything free again."""
        self._ahead = []
        self.units.clear()


def plain_allocator(
    size: int, page_size: int, device: torch.device, need_sort: bool = False
) -> TokenAllocator | PagedAllocator:
    """The engine's choice by page size."""
    if page_size == 1:
        return TokenAllocator(size, device, need_sort)
    return PagedAllocator(size, page_size, device, need_sort)
