"""The host pool beside a device pool (HiCache): slots, memory and transfers in both directions."""

from __future__ import annotations

import threading

import torch

from .allocators import DoubleFree
from .build import Built
from .regions import Region

CHUNK_BYTES = 64 << 20
"""Most bytes that one staged transfer holds on the device beside the pool."""
LONG_PAGE_BYTES = 64 << 10
"""Pages from this size on are copied one by one when they lie scattered in host memory."""


class HostSlots:
    """Page allocator of a host pool: freed pages are used again only when fresh ones run short."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._lock = threading.RLock()
        self._free = torch.arange(pages)
        self._released: list[torch.Tensor] = []
        self._used = torch.zeros(pages, dtype=torch.bool)

    def available(self) -> int:
        """Pages that can still be taken."""
        with self._lock:
            return len(self._free) + sum(len(part) for part in self._released)

    def alloc(self, count: int) -> torch.Tensor | None:
        """`count` pages, or None when the pool is too full (nothing is taken then)."""
        with self._lock:
            if count > self.available():
                return None
            if count > len(self._free):
                self._free = torch.cat([self._free, *self._released])
                self._released = []
            taken, self._free = self._free[:count], self._free[count:]
            self._used[taken] = True
            return taken

    def free(self, pages: torch.Tensor) -> None:
        """Give pages back; raises DoubleFree, changing nothing."""
        with self._lock:
            if not bool(self._used[pages].all()) or len(torch.unique(pages)) != len(pages):
                raise DoubleFree("host pages that are not handed out")
            self._used[pages] = False
            self._released.append(pages)


class HostPool:
    """Regions of one index space (full, swa or state) and their common slots.

    `kernel` transfers move all layers of many pages at once through an index, in the host's
    memory order; `direct` copies each page of each layer by itself, as a DMA engine would.
    """

    def __init__(self, regions: list[Region], pages: int, backend: str) -> None:
        self.regions = regions
        self.slots = HostSlots(pages)
        self.backend = backend
        self.page_bytes = sum(region.page_bytes for region in regions)

    @property
    def nbytes(self) -> int:
        """Bytes of host memory."""
        return sum(region.nbytes for region in self.regions)

    def backup(self, device_pages: torch.Tensor, host_pages: torch.Tensor) -> None:
        """Copy device pages to host pages; done when this returns."""
        for part, target in self._chunks(device_pages, host_pages):
            for region in self.regions:
                (self._out_direct if self.backend == "direct" else self._out)(region, part, target)
        _wait(device_pages.device)

    def load(self, host_pages: torch.Tensor, device_pages: torch.Tensor) -> None:
        """Copy host pages to device pages; done when this returns."""
        for part, source in self._chunks(device_pages, host_pages):
            for region in self.regions:
                (self._in_direct if self.backend == "direct" else self._in)(region, source, part)
        _wait(device_pages.device)

    def _chunks(
        self, device_pages: torch.Tensor, host_pages: torch.Tensor
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if self.backend == "direct":
            return [(device_pages, host_pages)]
        widest = max((region.page_bytes for region in self.regions), default=1)
        size = max(1, CHUNK_BYTES // widest)
        return list(
            zip(torch.split(device_pages, size), torch.split(host_pages, size), strict=True)
        )

    def _out(self, region: Region, device_pages: torch.Tensor, host_pages: torch.Tensor) -> None:
        data = region.gather(device_pages)
        stretches = _stretches(region, data, host_pages)
        if stretches is None:
            region.memory.index_copy_(region.pages_axis, host_pages, data.cpu())
            return
        for host, device in stretches:
            host.copy_(device, non_blocking=True)

    def _in(self, region: Region, host_pages: torch.Tensor, device_pages: torch.Tensor) -> None:
        sizes = list(region.memory.shape)
        sizes[region.pages_axis] = len(host_pages)
        data = torch.empty(sizes, dtype=region.memory.dtype, device=device_pages.device)
        stretches = _stretches(region, data, host_pages)
        if stretches is None:
            data.copy_(region.memory.index_select(region.pages_axis, host_pages))
        else:
            for host, device in stretches:
                device.copy_(host, non_blocking=True)
        region.scatter(data, device_pages)

    def _out_direct(
        self, region: Region, device_pages: torch.Tensor, host_pages: torch.Tensor
    ) -> None:
        for device_page, host_page in zip(device_pages.tolist(), host_pages.tolist(), strict=True):
            for layer in range(len(region.layers)):
                source = region.device_page(layer, device_page)
                region.logical[host_page, layer].copy_(source, non_blocking=True)

    def _in_direct(
        self, region: Region, host_pages: torch.Tensor, device_pages: torch.Tensor
    ) -> None:
        for device_page, host_page in zip(device_pages.tolist(), host_pages.tolist(), strict=True):
            for layer in range(len(region.layers)):
                target = region.device_page(layer, device_page)
                target.copy_(region.logical[host_page, layer], non_blocking=True)

    def page_data(self, page: int) -> torch.Tensor:
        """One host page, all regions one behind the other, as flat bytes."""
        return torch.cat([region.page_data(page) for region in self.regions])

    def set_page_data(self, page: int, data: torch.Tensor) -> None:
        """Fill one host page from `page_data` bytes."""
        parts = torch.split(data, [region.page_bytes for region in self.regions])
        for region, part in zip(self.regions, parts, strict=True):
            region.set_page_data(page, part)


def _stretches(
    region: Region, data: torch.Tensor, host_pages: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """(host, device) pairs of contiguous memory that make up a transfer; None where the pages
    lie scattered in pieces too short to be copied one by one."""
    run = _contiguous(host_pages)
    if region.pages_axis == 0:
        if run is not None:
            return [(region.memory.narrow(0, *run), data)]
        if region.page_bytes >= LONG_PAGE_BYTES:
            return [(region.memory[page], data[at]) for at, page in enumerate(host_pages.tolist())]
    elif run is not None:
        return [
            (layer.narrow(0, *run), own) for layer, own in zip(region.memory, data, strict=True)
        ]
    return None


def _contiguous(pages: torch.Tensor) -> tuple[int, int] | None:
    """(first, count) when `pages` is one run, else None."""
    first, count = int(pages[0]), len(pages)
    run = torch.arange(first, first + count)
    return (first, count) if torch.equal(pages, run) else None


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def mirrored(buffers: list[Built], page: int) -> list[Built]:
    """Buffers that can be mirrored page by page: states, and rows that divide the pool's page."""
    return [
        built
        for built in buffers
        if built.spec.rows == "request" or page % built.spec.tokens_per_row == 0
    ]
