"""The decode KV offload manager, with the engine's behaviour, over a built pool.

Facts: disaggregation/decode_kvcache_offload_manager.py of 0.5.23. What the prefill server stored
(the page-aligned prompt) is left alone; new tokens go out in whole strides, copied while decoding
goes on; a request keeps its device slots until it has finished and its last copy has landed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from .copier import Completion, Copier
from .hostpool import HostPool
from .pagehash import chain, namespace_seed
from .slots import Slots
from .storage import FileStorage
from .wire import Refused

OFFLOADABLE = "Unsupported KV cache type for decode offload"


class RetractionRefused(RuntimeError):
    """Copies still read the slots that a retraction would free."""


@dataclass(eq=False)
class OffloadRequest:
    """One decoding request: its tokens and the device slots that hold them."""

    rid: str
    prompt: list[int]
    slots: torch.Tensor
    output: list[int] = field(default_factory=list)
    finished: bool = False
    released: bool = False
    extra_key: str | None = None
    cache_salt: str | None = None


@dataclass
class _Progress:
    """Tokens behind the aligned prompt that are on their way, and the end of the hash chain."""

    length: int = 0
    last_hash: str | None = None


@dataclass
class _Copy:
    """One copy on its way from device to host."""

    request: OffloadRequest
    pages: dict[str, torch.Tensor]
    tokens: list[int]
    swa_from: int
    """First page of the copy that still had sliding slots."""
    completion: Completion


@dataclass
class _Backup:
    """One write on its way from host to storage."""

    pages: dict[str, torch.Tensor]
    completion: Completion


def effective_stride(asked: int | None, page: int) -> int:
    """The stride in tokens: whole pages, at least one."""
    if asked is None or asked <= 0:
        return page
    return max(page, asked // page * page)


class OffloadManager:
    """Moves finished strides of decoding requests to the host pool and on to storage."""

    def __init__(
        self, slots: Slots, hosts: dict[str, HostPool], stride: int | None,
        storage: FileStorage | None, copier: Copier, writer: Copier,
        release: Callable[[OffloadRequest], None],
    ) -> None:  # fmt: skip
        self.slots = slots
        self.hosts = hosts
        self.page = slots.page_size
        self.stride = effective_stride(stride, self.page)
        self.storage = storage
        self.copier = copier
        self.writer = writer
        self.release = release
        self.refusals: list[str] = []
        self.stored: dict[str, str] = {}
        """Request by page hash, for what has reached storage."""
        self._progress: dict[OffloadRequest, _Progress] = {}
        self._copies: list[_Copy] = []
        self._backups: list[_Backup] = []
        slots.gate.wait = self.wait_for_copies

    def aligned_prompt(self, request: OffloadRequest) -> int:
        """Prompt tokens in whole pages: the prefill server stored those."""
        return len(request.prompt) // self.page * self.page

    def in_flight(self, request: OffloadRequest) -> bool:
        """Whether a copy still reads the request's slots."""
        return any(copy.request is request for copy in self._copies)

    def offload(self, request: OffloadRequest) -> bool:
        """Send the next whole strides of `request` out; False when there is nothing to send or
        the host pool is full (which is noted, and tried again next time)."""
        if request.released or not request.output:
            return False
        tokens = request.prompt + request.output[:-1]
        prefix = self.aligned_prompt(request)
        progress = self._progress.get(request)
        if progress is None:
            seed = namespace_seed(request.extra_key, request.cache_salt)
            hashes = chain(request.prompt[:prefix], self.page, seed)
            progress = self._progress[request] = _Progress(last_hash=hashes[-1] if hashes else seed)
        ready = (len(tokens) - prefix - progress.length) // self.stride * self.stride
        if not ready:
            return False
        start = prefix + progress.length
        slots = request.slots[start : start + ready]
        if not self._send(request, slots, tokens[start : start + ready]):
            self.refusals.append(f"not enough host memory for request {request.rid}")
            return False
        progress.length += ready
        return True

    def _send(self, request: OffloadRequest, slots: torch.Tensor, tokens: list[int]) -> bool:
        rows = {"full": self.slots.rows("full", slots)}
        swa_from = 0
        if "swa" in self.hosts:
            sliding = self.slots.rows("swa", slots)
            live = sliding[sliding >= self.page]
            swa_from = (len(sliding) - len(live)) // self.page
            if len(live):
                rows["swa"] = live
        taken: dict[str, torch.Tensor] = {}
        for space, own in rows.items():
            pages = self.hosts[space].slots.alloc(len(own) // self.page)
            if pages is None:
                for other, held in taken.items():
                    self.hosts[other].slots.free(held)
                return False
            taken[space] = pages
        device = {space: own[:: self.page] // self.page for space, own in rows.items()}

        def copy() -> None:
            for space, pages in taken.items():
                self.hosts[space].backup(device[space], pages)

        completion = self.copier.submit(copy)
        self._copies.append(_Copy(request, taken, tokens, swa_from, completion))
        return True

    def wait_for_copies(self) -> None:
        """Until no copy reads device pages any more; nothing is acknowledged by it."""
        for copy in self._copies:
            copy.completion.wait()

    def check_progress(self, wait: bool = False) -> None:
        """Acknowledge copies and storage writes that have ended, oldest first and in order."""
        while self._copies and (wait or self._copies[0].completion.done()):
            self._land(self._copies[0])
        while self._backups and (wait or self._backups[0].completion.done()):
            backup = self._backups.pop(0)
            backup.completion.wait()
            for space, pages in backup.pages.items():
                self.hosts[space].slots.free(pages)

    def _land(self, copy: _Copy) -> None:
        copy.completion.wait()
        self._copies.pop(0)
        progress = self._progress.get(copy.request)
        hashes = chain(copy.tokens, self.page, progress.last_hash if progress else None)
        if progress is not None:
            progress.last_hash = hashes[-1]
        action = self._writes(copy, hashes)
        self._backups.append(_Backup(copy.pages, self.writer.submit(action)))
        if copy.request.finished and not self.in_flight(copy.request):
            self._release(copy.request)

    def _writes(self, copy: _Copy, hashes: list[str]) -> Callable[[], None]:
        storage, rid = self.storage, copy.request.rid

        def write() -> None:
            if storage is None:
                return
            for space, pages in copy.pages.items():
                names = hashes if space == "full" else hashes[copy.swa_from :]
                tag = "" if space == "full" else f".{space}"
                for name, page in zip(names, pages.tolist(), strict=True):
                    if storage.set(name + tag, self.hosts[space].page_data(page)):
                        self.stored[name + tag] = rid

        return write

    def finish(self, request: OffloadRequest) -> None:
        """The request ended: send what is still whole, release it now or when copies landed."""
        request.finished = True
        if not self.offload(request) and not self.in_flight(request):
            self._release(request)

    def _release(self, request: OffloadRequest) -> None:
        if request.released:
            return
        request.released = True
        self._progress.pop(request, None)
        self.release(request)

    def drain_before_retraction(self) -> None:
        """Acknowledge what has landed; raises RetractionRefused while a copy is on its way."""
        self.check_progress()
        if self._copies:
            waiting = len({copy.request for copy in self._copies})
            raise RetractionRefused(
                f"{len(self._copies)} copies of {waiting} requests still read device slots; "
                "a retraction now would free them"
            )


def refuse_unknown_pool(class_name: str, decode_offload: bool) -> None:
    """Raises Refused, as the engine does at start, for a pool that offload does not know."""
    if not decode_offload:
        raise Refused("refused", f"{OFFLOADABLE}: the pool is {class_name}")
