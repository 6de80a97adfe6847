"""Allocators through long random histories: no slot twice, none lost, pages aligned."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.probe.pool.child.allocator_swa import SwaAllocator
from kvtui.probe.pool.child.allocators import (
    DoubleFree,
    PagedAllocator,
    StateAllocator,
    TokenAllocator,
    plain_allocator,
)

CPU = torch.device("cpu")
HISTORY = st.lists(
    st.tuples(st.sampled_from(["new", "grow", "decode", "free", "window"]), st.integers(0, 40)),
    max_size=60,
)


@dataclass
class Book:
    """What requests hold, kept apart from the allocator."""

    page: int
    held: list[list[int]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    """Tokens at the front of a request whose sliding side went."""

    def take(self, request: int, slots: torch.Tensor) -> None:
        new = slots.tolist()
        every = [slot for other in self.held for slot in other]
        assert len(set(new)) == len(new), "a slot twice in one answer"
        assert not set(new) & set(every), "a slot that somebody holds"
        assert min(new, default=self.page) >= self.page, "the padding page"
        start = len(self.held[request])
        for offset, slot in enumerate(new):
            assert slot % self.page == (start + offset) % self.page, "not page-aligned"
        self.held[request] += new

    def pages(self) -> int:
        return sum(-(-len(slots) // self.page) for slots in self.held)


def play(allocator: TokenAllocator | PagedAllocator | SwaAllocator, history: list[tuple[str, int]],
         capacity: int) -> None:  # fmt: skip
    page = allocator.page_size
    book = Book(page)
    for action, amount in history:
        free = allocator.available_size()
        request = amount % len(book.held) if book.held else 0
        if action == "new":
            slots = allocator.alloc_extend([0], [amount], [-1])
            if slots is None:
                assert -(-amount // page) * page > free
                assert allocator.available_size() == free
            else:
                book.held.append([])
                book.released.append(0)
                book.take(len(book.held) - 1, slots)
        elif not book.held:
            continue
        elif action == "grow":
            own = book.held[request]
            slots = allocator.alloc_extend(
                [len(own)], [len(own) + amount], [own[-1] if own else -1]
            )
            if slots is not None:
                book.take(request, slots)
        elif action == "decode":
            slots = allocator.alloc_decode(
                [len(own) + 1 for own in book.held], [own[-1] if own else -1 for own in book.held]
            )
            if slots is not None:
                for number, slot in enumerate(torch.split(slots, 1)):
                    book.take(number, slot)
        elif action == "window" and isinstance(allocator, SwaAllocator):
            border = amount % (len(book.held[request]) + 1) // page * page
            allocator.free_swa(torch.tensor(book.held[request][:border], dtype=torch.int64))
            book.released[request] = max(book.released[request], border)
        elif action == "free":
            slots = torch.tensor(book.held.pop(request), dtype=torch.int64)
            book.released.pop(request)
            allocator.free(slots)
        full = allocator.full if isinstance(allocator, SwaAllocator) else allocator
        assert full.available_size() == capacity - book.pages() * page
        if isinstance(allocator, SwaAllocator):
            check_mapping(allocator, book)
    for own in book.held:
        allocator.free(torch.tensor(own, dtype=torch.int64))
    full = allocator.full if isinstance(allocator, SwaAllocator) else allocator
    assert full.available_size() == capacity


def check_mapping(allocator: SwaAllocator, book: Book) -> None:
    """Live tokens have sliding slots of their own at the same page offset; others have none."""
    seen: set[int] = set()
    for slots, released in zip(book.held, book.released, strict=True):
        peers = allocator.translate(torch.tensor(slots, dtype=torch.int64)).tolist()
        assert all(peer == 0 for peer in peers[:released])
        live = peers[released:]
        assert all(peer >= allocator.page_size for peer in live)
        assert all(
            peer % allocator.page_size == slot % allocator.page_size
            for peer, slot in zip(live, slots[released:], strict=True)
        )
        assert not seen & set(live)
        seen |= set(live)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 2, 16]), st.booleans(), HISTORY)
def test_plain_histories(page: int, need_sort: bool, history: list[tuple[str, int]]) -> None:
    capacity = 96 // page * page
    play(plain_allocator(capacity, page, CPU, need_sort), history, capacity)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 4]), st.integers(8, 24), HISTORY)
def test_sliding_histories(page: int, pages: int, history: list[tuple[str, int]]) -> None:
    play(SwaAllocator(96, pages * page, page, CPU), history, 96)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["take", "give", "ahead", "end"]), max_size=40))
def test_state_histories(history: list[str]) -> None:
    allocator = StateAllocator(5, CPU)
    held: list[int] = []
    for action in history:
        if action == "take":
            slot = allocator.alloc(1)
            if slot is None:
                assert len(held) == 5
            else:
                assert int(slot) not in held
                assert 1 <= int(slot) <= 5
                held.append(int(slot))
        elif action == "give" and held:
            allocator.free(torch.tensor([held.pop(0)]))
        elif action == "ahead":
            allocator.group_end()
            allocator.group_begin(2)
        elif action == "end":
            allocator.group_end()
    allocator.group_end()
    assert allocator.available_size() == 5 - len(held)


def test_tokens_are_handed_out_oldest_freed_last() -> None:
    allocator = TokenAllocator(4, CPU)
    first = allocator.alloc(3)
    assert first is not None
    assert first.tolist() == [1, 2, 3]
    allocator.free(first[1:2])
    again = allocator.alloc(2)
    assert again is not None
    assert again.tolist() == [4, 2]


def test_sorted_free_lists_are_sorted_when_they_run_short() -> None:
    allocator = TokenAllocator(4, CPU, need_sort=True)
    slots = allocator.alloc(4)
    assert slots is not None
    allocator.free(slots[2:])
    allocator.free(slots[:2])
    again = allocator.alloc(4)
    assert again is not None
    assert again.tolist() == [1, 2, 3, 4]


def test_freed_pages_come_first() -> None:
    allocator = PagedAllocator(64, 16, CPU)
    slots = allocator.alloc(32)
    assert slots is not None
    allocator.free(slots[16:])
    again = allocator.alloc_extend([0], [3], [-1])
    assert again is not None
    assert again.tolist() == [32, 33, 34]


def test_a_prefix_fills_its_last_page_first() -> None:
    allocator = PagedAllocator(64, 16, CPU)
    start = allocator.alloc_extend([0], [13], [-1])
    assert start is not None
    rest = allocator.alloc_extend([13], [20], [int(start[-1])])
    assert rest is not None
    assert rest.tolist() == [29, 30, 31, 32, 33, 34, 35]


@pytest.mark.parametrize("page", [1, 16])
def test_double_frees_are_noticed_and_change_nothing(page: int) -> None:
    allocator = plain_allocator(64, page, CPU)
    slots = allocator.alloc_extend([0], [page], [-1])
    assert slots is not None
    allocator.free(slots)
    with pytest.raises(DoubleFree):
        allocator.free(slots)
    assert allocator.available_size() == 64


def test_the_full_side_is_not_freed_under_a_live_sliding_peer() -> None:
    allocator = SwaAllocator(32, 32, 1, CPU)
    slots = allocator.alloc(4)
    assert slots is not None
    with pytest.raises(DoubleFree):
        allocator.free_full(slots)
    allocator.free_swa(slots)
    allocator.free_full(slots)
    assert allocator.available_size() == 32


def test_a_prompt_from_elsewhere_gets_sliding_slots_for_its_tail_only() -> None:
    allocator = SwaAllocator(64, 32, 16, CPU)
    slots = allocator.alloc_extend_tail(48, 16)
    assert slots is not None
    peers = allocator.translate(slots)
    assert peers[:32].tolist() == [0] * 32
    assert sorted(peers[32:].tolist()) == list(range(16, 32))
    assert allocator.swa.available_size() == 16
    assert allocator.alloc_extend_tail(32, 16) is None
    allocator.free(slots)
    assert (allocator.full.available_size(), allocator.swa.available_size()) == (64, 32)
