"""Bands of a unified pool: what a request wrote stays what it reads while pages move."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.probe.pool.child.allocator_unified import UnifiedAllocator
from kvtui.probe.pool.child.allocators import DoubleFree
from kvtui.probe.pool.child.band import Band

CPU = torch.device("cpu")
TOTAL = 6000
SINK = 96
ENTRIES = {"full": 8, "swa": 12, "state": 96}
HISTORY = st.lists(
    st.tuples(
        st.sampled_from(["new", "grow", "free", "window", "state", "unstate"]), st.integers(0, 60)
    ),
    max_size=60,
)


class Memory:
    """One byte a page of each band at its first byte; moving a page moves the byte."""

    def __init__(self) -> None:
        self.raw = torch.zeros(TOTAL, dtype=torch.int64)

    def mover(self, page_bytes: int):  # type: ignore[no-untyped-def]
        def move(source: torch.Tensor, target: torch.Tensor) -> None:
            assert not set(source.tolist()) & set(target.tolist())
            self.raw[target * page_bytes] = self.raw[source * page_bytes].clone()

        return move


def make(page: int, roles: tuple[str, ...]) -> tuple[UnifiedAllocator, Memory]:
    memory = Memory()
    grow = {"full": "down", "swa": "float" if "state" in roles else "up", "state": "up"}
    bands = {}
    for role in roles:
        size = 1 if role == "state" else page
        mover = memory.mover(ENTRIES[role] * size)
        bands[role] = Band(TOTAL, ENTRIES[role], size, SINK * page, grow[role], CPU, mover)
    return UnifiedAllocator(bands["full"], bands.get("swa"), bands.get("state")), memory


class World:
    """Requests with a mark of their own in each page, on every side that they hold."""

    def __init__(self, page: int, roles: tuple[str, ...]) -> None:
        self.allocator, self.memory = make(page, roles)
        self.page = page
        self.requests: list[torch.Tensor] = []
        self.window: list[int] = []
        self.states: list[torch.Tensor] = []
        self.marks: dict[tuple[str, int], int] = {}
        self.next_mark = 1

    def mark(self, role: str, pages: torch.Tensor) -> None:
        band = self.allocator.bands()[role]
        for page in pages.tolist():
            self.marks[role, page] = self.next_mark
            self.memory.raw[int(band.physical[page]) * band.page_bytes] = self.next_mark
            self.next_mark += 1

    def check(self) -> None:
        spans = []
        for role, band in self.allocator.bands().items():
            live = [page for (kind, page) in self.marks if kind == role]
            assert band.count == len(live)
            for page in live:
                at = int(band.physical[page]) * band.page_bytes
                assert int(self.memory.raw[at]) == self.marks[role, page], "a page was overwritten"
            if band.count:
                spans.append((band.base * band.page_bytes, band.end_bytes()))
        spans.sort()
        assert all(low[1] <= high[0] for low, high in pairwise(spans))
        assert not spans or (spans[0][0] >= SINK and spans[-1][1] <= TOTAL)

    def take(self, number: int, length: int) -> bool:
        own = self.requests[number]
        last = int(own[-1]) if len(own) else -1
        free = self.allocator.available_size()
        new = self.allocator.alloc_extend([len(own)], [length], [last])
        if new is None:
            need = -(-length // self.page) - -(-len(own) // self.page)
            assert need * self.page > free
            return False
        pages = torch.unique(new // self.page)
        fresh = torch.tensor(
            [page for page in pages.tolist() if ("full", page) not in self.marks],
            dtype=torch.int64,
        )
        for role in self.allocator.bands():
            if role != "state":
                self.mark(role, fresh)
        self.requests[number] = torch.cat((own, new))
        return True

    def drop(self, role: str, slots: torch.Tensor) -> None:
        for page in torch.unique(slots // self.page).tolist():
            self.marks.pop((role, page), None)

    def play(self, action: str, amount: int) -> None:
        if action == "new":
            self.requests.append(torch.empty(0, dtype=torch.int64))
            self.window.append(0)
            if not self.take(len(self.requests) - 1, amount):
                self.requests.pop()
                self.window.pop()
        elif action == "state" and self.allocator.state is not None:
            slot = self.allocator.alloc_state()
            if slot is not None:
                self.states.append(slot)
                self.mark("state", slot)
        elif action == "unstate" and self.states:
            slot = self.states.pop(amount % len(self.states))
            self.marks.pop(("state", int(slot)))
            self.allocator.free_state(slot)
        elif not self.requests:
            return
        elif action == "grow":
            number = amount % len(self.requests)
            self.take(number, len(self.requests[number]) + amount)
        elif action == "free":
            slots = self.requests.pop(amount % len(self.requests))
            for role in ("full", "swa"):
                self.drop(role, slots)
            self.allocator.free(slots)
        elif action == "window" and self.allocator.swa is not None:
            own = self.requests[amount % len(self.requests)]
            gone = own[: amount % (len(own) + 1) // self.page * self.page]
            self.drop("swa", gone)
            self.allocator.free_swa(gone)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 4]),
    st.sampled_from([("full", "swa"), ("full", "state"), ("full", "swa", "state")]),
    HISTORY,
)
def test_histories(page: int, roles: tuple[str, ...], history: list[tuple[str, int]]) -> None:
    world = World(page, roles)
    empty = world.allocator.available_size()
    for action, amount in history:
        world.play(action, amount)
        world.check()
    for slots in world.requests:
        world.allocator.free(slots)
    for slot in world.states:
        world.allocator.free_state(slot)
    assert world.allocator.available_size() == empty


def test_one_side_can_take_what_the_other_leaves() -> None:
    allocator, _ = make(1, ("full", "state"))
    tokens = allocator.available_size()
    slots = [slot for _ in range(20) if (slot := allocator.alloc_state()) is not None]
    assert allocator.available_size() == tokens - 20 * ENTRIES["state"] // ENTRIES["full"]
    for slot in slots:
        allocator.free_state(slot)
    assert allocator.available_size() == tokens
    everything = allocator.alloc_extend([0], [tokens], [-1])
    assert everything is not None
    assert allocator.alloc_state() is None
    assert allocator.alloc_extend([0], [1], [-1]) is None


def test_double_frees_are_noticed() -> None:
    allocator, _ = make(4, ("full", "swa"))
    slots = allocator.alloc_extend([0], [9], [-1])
    assert slots is not None
    allocator.free(slots)
    with pytest.raises(DoubleFree):
        allocator.free(slots)
