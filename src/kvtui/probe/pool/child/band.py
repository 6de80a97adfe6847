"""Bands: the sub-pools of a unified pool, which grow towards each other in one buffer.

A freed page leaves a hole, which the outermost page is moved into at once, so that each sub-pool
stays one band and the bytes between the bands can serve either side. With three sub-pools the
middle band floats: it moves aside when a neighbour needs its place.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .allocators import DoubleFree, ceil_div

Move = Callable[[torch.Tensor, torch.Tensor], None]
"""Copies the rows of physical pages `source` to `target` (equal length, disjoint)."""


class Band:
    """One sub-pool in the shared buffer (`MultiEndedAllocator`), in pages of its own grid.

    `grow`: up from the low end, down from the high end, or float between two neighbours.
    """

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
        self.low_peer: Band | None = None
        self.high_peer: Band | None = None
        self.clear(self.num_pages)

    def clear(self, virtual_pages: int) -> None:
        """Nothing allocated; virtual page 0 is the padding page."""
        self.count = 0
        self.base = self.num_pages if self.grow == "down" else self.first_page
        self.physical = torch.full((virtual_pages,), -1, dtype=torch.int64, device=self.device)
        self.owner = torch.full((self.num_pages,), -1, dtype=torch.int64, device=self.device)
        self.physical[0] = 0

    def lowest(self) -> int:
        """First page of the grid that the band could start at."""
        peer = self.low_peer
        if peer is None:
            return self.first_page
        if peer.grow == "float" and not peer.count:
            return max(self.first_page, ceil_div(peer.low_limit_bytes(), self.page_bytes))
        return max(self.first_page, ceil_div(peer.end_bytes(), self.page_bytes))

    def highest(self) -> int:
        """Page of the grid behind the last one that the band could take."""
        peer = self.high_peer
        if peer is None:
            return self.num_pages
        if peer.grow == "float" and not peer.count:
            return min(self.num_pages, peer.high_limit_bytes() // self.page_bytes)
        return min(self.num_pages, peer.base * peer.page_bytes // self.page_bytes)

    def low_limit_bytes(self) -> int:
        """Byte where the neighbour below ends."""
        return self.low_peer.end_bytes() if self.low_peer else 0

    def high_limit_bytes(self) -> int:
        """Byte where the neighbour above starts."""
        peer = self.high_peer
        return peer.base * peer.page_bytes if peer else self.num_pages * self.page_bytes

    def end_bytes(self) -> int:
        """Byte behind the band."""
        return (self.base + self.count) * self.page_bytes

    def gaps(self) -> tuple[int, int]:
        """Free pages below and above the band, as things lie."""
        if self.grow == "float" and not self.count:
            return 0, max(0, self.highest() - self.lowest())
        below = self.base - self.lowest() if self.grow != "up" else 0
        above = self.highest() - self.base - self.count if self.grow != "down" else 0
        return max(0, below), max(0, above)

    def available_pages(self) -> int:
        """Pages that can be taken once a floating neighbour has moved aside."""
        below, above = self.gaps()
        peer = self.high_peer if self.grow == "up" else self.low_peer
        if self.grow == "float" or peer is None or peer.grow != "float" or not peer.count:
            return below + above
        if self.grow == "up":
            limit = (peer.base + peer.gaps()[1]) * peer.page_bytes // self.page_bytes
            return min(limit, self.num_pages) - self.base - self.count
        limit = ceil_div((peer.base + peer.count - peer.gaps()[0]) * peer.page_bytes,
                         self.page_bytes)  # fmt: skip
        return self.base - max(limit, self.first_page)

    def _ask_for_room(self, pages: int) -> None:
        """Let a floating neighbour move by just what is missing."""
        missing = (pages - sum(self.gaps())) * self.page_bytes
        if missing <= 0:
            return
        if self.grow == "up" and self.high_peer is not None:
            self.high_peer.slide(ceil_div(missing + self.page_bytes, self.high_peer.page_bytes))
        elif self.grow == "down" and self.low_peer is not None:
            self.low_peer.slide(-ceil_div(missing + self.page_bytes, self.low_peer.page_bytes))

    def slide(self, pages: int) -> None:
        """Move a floating band by up to `pages` (up if positive), as far as there is room."""
        below, above = self.gaps()
        step = min(abs(pages), above if pages > 0 else below)
        if self.grow != "float" or not self.count or not step:
            return
        moved = min(step, self.count)
        inside = torch.arange(moved, device=self.device)
        if pages > 0:
            source = self.base + inside
            target = self.base + self.count + step - moved + inside
            self.base += step
        else:
            source = self.base + self.count - moved + inside
            target = self.base - step + inside
            self.base -= step
        self._relocate(source, target)

    def _relocate(self, source: torch.Tensor, target: torch.Tensor) -> None:
        self.move(source, target)
        owners = self.owner[source].clone()
        self.owner[source] = -1
        self.owner[target] = owners
        self.physical[owners] = target

    def bind(self, virtual: torch.Tensor) -> bool:
        """Back virtual pages with physical ones; False (unchanged) when there is no room."""
        number = len(virtual)
        if number > self.available_pages():
            return False
        self._ask_for_room(number)
        if self.grow == "float" and not self.count:
            self.base = self.lowest()
        _, above = self.gaps()
        up = min(number, above) if self.grow != "down" else 0
        down = number - up
        low = torch.arange(self.base - down, self.base, device=self.device)
        start = self.base + self.count
        pages = torch.cat((low, torch.arange(start, start + up, device=self.device)))
        self.base -= down
        self.count += number
        self.physical[virtual] = pages
        self.owner[pages] = virtual
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
        freed = len(virtual)
        band = torch.arange(self.base, self.base + self.count, device=self.device)
        keep = self.count - freed
        head, tail = (band[freed:], band[:freed]) if self.grow == "down" else (
            band[:keep], band[keep:]
        )  # fmt: skip
        movers = tail[self.owner[tail] >= 0]
        holes = head[self.owner[head] < 0]
        if len(movers):
            self._relocate(movers, holes)
        self.base += freed if self.grow == "down" else 0
        self.count = keep

    def translate(self, slots: torch.Tensor) -> torch.Tensor:
        """Physical rows of virtual slots; released ones read as row 0, the padding row."""
        pages = self.physical[slots // self.page_size]
        rows = pages * self.page_size + slots % self.page_size
        return torch.where(pages < 0, torch.zeros_like(rows), rows)
