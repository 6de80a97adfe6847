"""Tries the decode offload manager on a built pool: a life of a few requests, faults included."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from .build import Pool
from .copier import Copier
from .host_step import HostCheck
from .offload import OffloadManager, OffloadRequest, RetractionRefused, effective_stride
from .pagehash import chain
from .request import HostTier, Offload
from .slots import Slots
from .storage import FileStorage
from .wire import Refused

FIRST_REQUEST = 80_001


class OffloadCheck:
    """One run of the manager; raises Refused (`corrupt`, `offload`, `slots`, `memory`)."""

    def __init__(self, host: HostCheck, settings: Offload) -> None:
        self.host = host
        self.pool: Pool = host.pool
        self.slots: Slots = host.slots
        self.settings = settings
        self.page = self.slots.page_size
        self.stride = effective_stride(settings.stride, self.page)
        self.own_folder = "" if settings.folder else tempfile.mkdtemp(prefix="kvtui-offload-")
        self.storage = (
            FileStorage(Path(settings.folder or self.own_folder))
            if settings.storage == "file"
            else None
        )
        self.copier, self.writer = Copier(self.pool.device), Copier(torch.device("cpu"))
        spaces = ("full", "swa") if self.pool.plan.raw_bytes else ("full",)
        self.hosts = {name: pool for name, pool in host.pools.items() if name in spaces}
        self.manager = OffloadManager(
            self.slots, self.hosts, settings.stride, self.storage, self.copier, self.writer,
            lambda request: self.slots.tokens.free(request.slots),
        )  # fmt: skip
        self.numbers: dict[str, int] = {}
        self.checks: list[str] = []

    def close(self) -> None:
        """End the threads and remove a folder of our own."""
        self.copier.close()
        self.writer.close()
        if self.own_folder:
            shutil.rmtree(self.own_folder, ignore_errors=True)

    def run(self) -> dict[str, Any]:
        """The whole life; returns figures."""
        need = 4 * (self.stride + self.page)
        if need > self.slots.capacity:
            return {"skipped": f"a stride of {self.stride} tokens needs {need} slots here"}
        before = self.slots.census()
        first = self._admit("a", 2 * self.page + self.page // 2 + 1)
        self._decode(first, self.stride + 3)
        self._flight(first)
        self._full_host(first)
        self._finish_in_flight(first)
        if self.slots.census() != before:
            raise Refused("slots", f"offload lost slots: {before} before, {self.slots.census()}")
        free = {name: pool.slots.available() for name, pool in self.hosts.items()}
        if any(count != self.hosts[name].slots.pages for name, count in free.items()):
            raise Refused("offload", f"host pages stayed taken: {free} free")
        self._read_storage(first)
        return {
            "stride": self.stride,
            "asked_stride": self.settings.stride,
            "pages_stored": len(self.manager.stored),
            "storage": self.settings.storage or "none",
            "checks": self.checks,
        }

    def _admit(self, rid: str, length: int) -> OffloadRequest:
        slots = self.slots.tokens.alloc_extend([0], [length], [-1])
        if slots is None:
            raise Refused("slots", f"{length} slots for the prompt were not granted")
        self.numbers[rid] = FIRST_REQUEST + len(self.numbers)
        request = OffloadRequest(rid, list(range(1000, 1000 + length)), slots)
        self._stamp(request, 0)
        return request

    def _decode(self, request: OffloadRequest, count: int) -> None:
        """Append `count` tokens; the last one's KV is not written yet, as in a decode step."""
        old = len(request.slots)
        grown = len(request.prompt) + len(request.output) + count - 1
        new = self.slots.tokens.alloc_extend([old], [grown], [int(request.slots[-1])])
        if new is None:
            raise Refused("slots", f"{count} decode slots were not granted")
        request.slots = torch.cat((request.slots, new))
        request.output += range(50_000 + len(request.output), 50_000 + len(request.output) + count)
        self._stamp(request, old)

    def _stamp(self, request: OffloadRequest, start: int) -> None:
        slots = request.slots[start:]
        positions = torch.arange(start, len(request.slots), device=slots.device)
        for space in self.hosts:
            for stamp in self.host.stamps[space]:
                stamp.write(self.numbers[request.rid], self.slots.rows(space, slots), positions)

    def _intact(self, request: OffloadRequest, title: str) -> None:
        positions = torch.arange(len(request.slots), device=request.slots.device)
        for space in self.hosts:
            rows = self.slots.rows(space, request.slots)
            for stamp in self.host.stamps[space]:
                fault = stamp.mismatch(self.numbers[request.rid], rows, positions)
                if fault:
                    raise Refused("corrupt", f"{title}: {fault}")
        self.checks.append(title)

    def _expect(self, holds: bool, title: str) -> None:
        if not holds:
            raise Refused("offload", f"expected: {title}")
        self.checks.append(title)

    def _flight(self, request: OffloadRequest) -> None:
        """A copy that is held back: retraction is refused, then it lands and is stored."""
        free = self.hosts["full"].slots.available()
        self.copier.hold()
        self._expect(self.manager.offload(request), "a whole stride goes out")
        taken = free - self.hosts["full"].slots.available()
        self._expect(
            taken * self.page % self.stride == 0 and taken > 0, "only whole strides go out"
        )
        self._expect(not self.manager.offload(request), "less than a stride stays")
        try:
            self.manager.drain_before_retraction()
        except RetractionRefused:
            self.checks.append("retraction refused while a copy is on its way")
        else:
            raise Refused("offload", "a retraction was allowed while a copy is on its way")
        self.copier.resume()
        self.manager.check_progress(wait=True)
        self.manager.drain_before_retraction()
        self._intact(request, "the request keeps its slots after the copy")

    def _full_host(self, request: OffloadRequest) -> None:
        """A full host pool refuses, says so and loses nothing."""
        held = {name: pool.slots.alloc(pool.slots.available()) for name, pool in self.hosts.items()}
        self._decode(request, self.stride)
        self._expect(
            not self.manager.offload(request) and bool(self.manager.refusals),
            "a full host pool refuses and says so",
        )
        self._intact(request, "nothing lost by the refusal")
        for name, pages in held.items():
            if pages is not None and len(pages):
                self.hosts[name].slots.free(pages)
        self._expect(self.manager.offload(request), "the refused stride goes out later")
        self.manager.check_progress(wait=True)

    def _finish_in_flight(self, request: OffloadRequest) -> None:
        self._decode(request, self.stride)
        self.copier.hold()
        self.manager.finish(request)
        self._expect(not request.released, "a finished request waits for its copy")
        self._intact(request, "its slots are intact until then")
        self.copier.resume()
        self.manager.check_progress(wait=True)
        self._expect(request.released, "it is released once the copy has landed")

    def _read_storage(self, request: OffloadRequest) -> None:
        """Every stored page comes back from its file to the device as it was written."""
        if self.storage is None:
            return
        if self.storage.failures:
            raise Refused("offload", f"storage refused pages: {self.storage.failures[0]}")
        tokens = request.prompt + request.output[:-1]
        prefix = self.manager.aligned_prompt(request)
        names = chain(tokens[: len(tokens) // self.page * self.page], self.page, None)
        stored = [index for index, name in enumerate(names) if self.storage.exists(name)]
        first = prefix // self.page
        self._expect(
            stored == list(range(first, first + len(stored))) and len(stored) > 0,
            "stored pages follow the prompt's last page without a gap",
        )
        host = self.hosts["full"]
        slots = self.slots.tokens.alloc_extend([0], [self.page], [-1])
        page = host.slots.alloc(1)
        if slots is None or page is None:
            raise Refused("slots", "no page to read the storage back into")
        for index in stored:
            host.set_page_data(int(page), self.storage.get(names[index], host.page_bytes))
            rows = self.slots.rows("full", slots)
            host.load(page, rows[:: self.page] // self.page)
            start = index * self.page
            positions = torch.arange(start, start + self.page, device=slots.device)
            for stamp in self.host.stamps["full"]:
                fault = stamp.mismatch(self.numbers[request.rid], rows, positions)
                if fault:
                    raise Refused("corrupt", f"page {index} from storage: {fault}")
        self.slots.tokens.free(slots)
        host.slots.free(page)
        self.checks.append("every stored page reads back bit for bit")


def run_offload(
    pool: Pool, slots: Slots, tier: HostTier, settings: Offload, budget: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """The offload step; returns figures."""
    run = OffloadCheck(HostCheck(pool, slots, tier, budget, seed), settings)
    try:
        return run.run()
    finally:
        run.close()
