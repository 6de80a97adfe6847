"""The host tier: layouts in memory, round trips bit for bit, refusals, host slots."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.pools.spec import PoolPlan
from kvtui.probe.pool.child import host_plan
from kvtui.probe.pool.child.allocators import DoubleFree
from kvtui.probe.pool.child.build import build
from kvtui.probe.pool.child.host_plan import spaces, verdict
from kvtui.probe.pool.child.host_step import HostCheck
from kvtui.probe.pool.child.hostpool import HostPool, HostSlots
from kvtui.probe.pool.child.regions import Region, make_regions
from kvtui.probe.pool.child.request import HostTier
from kvtui.probe.pool.child.slots import make_slots
from kvtui.probe.pool.child.wire import Refused

from . import plans
from .runs import figures, run

CPU = torch.device("cpu")
WAYS = [
    ("mha paged", "layer_first", "kernel"), ("mha paged", "page_first", "kernel"),
    ("mha paged", "page_head", "kernel"), ("mha", "page_head", "kernel"),
    ("mha paged", "layer_first", "direct"), ("mha paged", "page_first_direct", "direct"),
    ("mha", "page_first", "kernel"), ("unequal", "page_first", "kernel"),
    ("unequal", "page_first_direct", "direct"), ("mla paged", "layer_first", "kernel"),
    ("mla paged", "page_first", "kernel"), ("mla paged", "page_first_direct", "direct"),
    ("mla paged", "page_first_kv_split", "kernel_ascend"),
    ("mla", "page_first_kv_split", "kernel_ascend"), ("mxfp8", "page_first", "kernel"),
    ("dsa", "layer_first", "kernel"), ("dsa", "page_first", "kernel"),
    ("dsa", "page_first_direct", "direct"), ("swa paged", "page_first", "kernel"),
    ("swa", "page_first_direct", "direct"), ("hybrid paged", "page_first", "kernel"),
    ("hybrid", "page_first_direct", "direct"), ("minimax", "page_first", "kernel"),
    ("slab", "page_first", "kernel"), ("dsv4", "page_first", "kernel"),
    ("unified swa", "page_first", "kernel"), ("unified swa paged", "page_first_direct", "direct"),
    ("unified hybrid", "page_first", "kernel"), ("unified three paged", "page_first", "kernel"),
]  # fmt: skip


def host(plan: PoolPlan, layout: str, backend: str, **more: Any) -> dict[str, Any]:
    tier = HostTier(layout=layout, io_backend=backend, **more)
    return figures(run(plan, host=tier, steps=("build", "host")), "host")


@pytest.mark.parametrize(("kind", "layout", "backend"), WAYS)
def test_round_trips(kind: str, layout: str, backend: str) -> None:
    done = host(plans.EVERY[kind](), layout, backend)
    trips = done["round_trips"]
    assert {trip["pages"] for trip in trips} == {"contiguous", "scattered"}
    assert {trip["space"] for trip in trips} == set(done["host_pages"])
    assert all(trip["out_gb_s"] > 0 and trip["in_gb_s"] > 0 for trip in trips)
    assert done["plain_copy"]["out_gb_s"] > 0
    assert done["pinned"] is False


@pytest.mark.parametrize(
    ("kind", "layout", "backend", "why"),
    [
        ("mha paged", "page_first", "direct", "this backend takes layer_first, page_first_direct"),
        ("mha paged", "page_first_direct", "kernel", "takes layer_first, page_first, page_head"),
        ("mla paged", "page_head", "kernel", "this backend takes layer_first, page_first"),
        ("mha paged", "page_first_kv_split", "kernel_ascend", "only latent"),
        ("unequal", "layer_first", "kernel", "head dims 24 and 8"),
        ("unequal", "page_head", "kernel", "head dims 24 and 8"),
        ("fp4", "page_first", "kernel", "FP4 block scales"),
        ("mla fp4", "page_first", "kernel", "FP4 block scales"),
        ("mxfp8", "layer_first", "kernel", "MXFP8 needs page_first"),
        ("hybrid", "layer_first", "kernel", "state pools take page_first or page_first_direct"),
        ("mha", "page_first", "pigeon", "expected io backend kernel or direct"),
    ],
)
def test_what_the_engine_refuses_is_refused(kind: str, layout: str, backend: str, why: str) -> None:
    with pytest.raises(Refused, match=why) as refusal:
        host(plans.EVERY[kind](), layout, backend)
    assert refusal.value.kind == "refused"


def region_of(layout: str, kind: str = "mha paged") -> Region:
    pool = build(plans.EVERY[kind](), CPU)
    return make_regions([pool.buffers[0]], layout, 4, pool.plan.page_size, pin=False)[0]


def test_memory_lies_as_the_layouts_say() -> None:
    heads, words = 2, 4  # 16 bfloat16 a head in 8-byte words
    assert region_of("layer_first").memory.shape == (3, 4, 16, 1, heads * words)
    assert region_of("page_first").memory.shape == (4, 16, 3, 1, heads * words)
    assert region_of("page_first_direct").memory.shape == (4, 3, 16, 1, heads * words)
    assert region_of("page_head").memory.shape == (4, heads, 16, 3, words)


def test_one_page_in_page_first_order() -> None:
    region = region_of("page_first")
    for number, layer in enumerate(region.layers):
        layer[:] = number * 1000 + torch.arange(len(layer))[:, None, None]
    pool = HostPool([region], 4, "kernel")
    pool.backup(torch.tensor([2]), torch.tensor([3]))
    assert region.memory[3, 5, 1, 0, 0] == 1000 + 2 * 16 + 5
    assert region.memory[3, 0, 2, 0, 7] == 2000 + 2 * 16


def test_a_latent_row_is_split_in_two() -> None:
    pool = build(plans.mla(page=64), CPU)
    parts = make_regions(list(pool.buffers), "page_first_kv_split", 2, 64, pin=False)
    assert [part.memory.shape[-1] * part.memory.itemsize for part in parts] == [64, 128]


def test_a_page_goes_to_storage_and_back_whole() -> None:
    pool = build(plans.dsa(), CPU)
    regions = make_regions(list(pool.buffers), "page_first", 3, 64, pin=False)
    host_pool = HostPool(regions, 3, "kernel")
    for built in pool.buffers:
        for tensor in built.rows:
            tensor.random_(0, 255)
    host_pool.backup(torch.tensor([1, 3]), torch.tensor([0, 2]))
    data = host_pool.page_data(2)
    assert data.numel() == host_pool.page_bytes
    host_pool.set_page_data(1, data)
    host_pool.load(torch.tensor([1]), torch.tensor([4]))
    for built in pool.buffers:
        width = 64 if built.spec.rows == "slot" else 1
        for tensor in built.rows:
            assert torch.equal(tensor[4 * width : 5 * width], tensor[3 * width : 4 * width])


def test_a_fault_on_the_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Region.scatter

    def crossed(self: Region, data: torch.Tensor, pages: torch.Tensor) -> None:
        plain(self, data, pages.flip(0))

    monkeypatch.setattr(Region, "scatter", crossed)
    with pytest.raises(Refused, match="after the trip through the host pool") as refusal:
        host(plans.mha(page=16), "page_first", "kernel")
    assert refusal.value.kind == "corrupt"


def test_old_bytes_of_an_earlier_trip_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = HostPool.load

    def lazy(self: HostPool, pages: torch.Tensor, target: torch.Tensor) -> None:
        calls.append(1)
        if len(calls) <= 3:  # the first trip's timed repeats
            plain(self, pages, target)

    monkeypatch.setattr(HostPool, "load", lazy)
    with pytest.raises(Refused, match="after the trip"):
        host(plans.mha(page=16), "page_first", "kernel")


def test_a_host_budget_that_is_too_small_is_answered() -> None:
    with pytest.raises(Refused, match=r"bytes of host memory may be taken") as refusal:
        run(plans.hybrid(), host=HostTier("page_first"), steps=("build", "host"),
            host_limit_bytes=2000)  # fmt: skip
    assert refusal.value.kind == "memory"


def test_the_no_op_pool_has_no_host_tier() -> None:
    report = run(plans.noop(), host=HostTier("page_first"))
    assert report["notes"] == ["the no-op pool holds nothing that a host tier could keep"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=40))
def test_host_slots_through_histories(history: list[tuple[bool, int]]) -> None:
    slots = HostSlots(16)
    held: list[torch.Tensor] = []
    for take, amount in history:
        taken = sum(len(part) for part in held)
        if take:
            pages = slots.alloc(amount)
            assert (pages is None) == (amount > 16 - taken)
            if pages is not None:
                assert not set(pages.tolist()) & {p for part in held for p in part.tolist()}
                held.append(pages)
        elif held:
            slots.free(held.pop(amount % len(held)))
        assert slots.available() == 16 - sum(len(part) for part in held)


def test_host_pages_are_not_freed_twice() -> None:
    slots = HostSlots(4)
    pages = slots.alloc(2)
    assert pages is not None
    slots.free(pages)
    with pytest.raises(DoubleFree):
        slots.free(pages)


def test_host_bytes_by_ratio_and_by_size() -> None:
    plan = plans.mha(4096, 16, layers=4, heads=8, dims=(128, 128))
    each = 4 * 2 * 8 * 128 * 2
    by_ratio = spaces(plan, HostTier(ratio=2.0))
    assert [(space.name, space.pages) for space in by_ratio] == [("full", 4096 * 2 // 16 + 1)]
    assert by_ratio[0].nbytes == (4096 * 2 + 16) * each
    by_size = spaces(plan, HostTier(size_gb=1.0))
    assert by_size[0].pages == int(1e9 // each) // 16 + 1


def test_host_size_is_shared_out_by_device_bytes() -> None:
    both = {space.name: space for space in spaces(plans.swa(4096, 1024, 16), HostTier(size_gb=0.1))}
    full_bytes, swa_bytes = 4096 * 3 * 2 * 2 * 16 * 2, 1024 * 5 * 4 * (24 + 8) * 2
    share = full_bytes / (full_bytes + swa_bytes)
    assert both["full"].nbytes == pytest.approx(1e8 * share, rel=0.01)
    assert both["swa"].nbytes == pytest.approx(1e8 * (1 - share), rel=0.01)


def test_all_ranks_are_held_against_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_plan, "available_host_bytes", lambda: 30 << 30)
    plan = plans.mha(1 << 18, 16, layers=8, heads=8, dims=(128, 128))
    tier = HostTier(ratio=1.0, ranks=4)
    said = verdict(spaces(plan, tier), tier)
    assert said["bytes_all_ranks"] == 4 * said["bytes_a_rank"] > 32 << 30
    assert said["budget_a_rank"] == 5 << 30
    assert said["fits_here"] is False
    assert verdict(spaces(plan, tier), HostTier(ratio=1.0))["fits_here"] is True


def test_a_default_ratio_is_cut_down_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_plan, "available_host_bytes", lambda: 30 << 30)
    plan = plans.mha(1 << 18, 16, layers=8, heads=8, dims=(128, 128))
    tier = HostTier(ratio=2.0, ranks=4, fraction=0.8)
    said = verdict(spaces(plan, tier), tier)
    assert said["bytes_a_rank"] == pytest.approx((5 << 30) * 0.8 * 0.95, rel=0.001)
    assert said["ratio"] == pytest.approx(2.0 * said["bytes_a_rank"] / (16 << 30), rel=0.01)
    assert said["fits_here"] is True
    monkeypatch.setattr(host_plan, "available_host_bytes", lambda: 9 << 30)
    assert verdict(spaces(plan, tier), tier)["fits_here"] is False


def test_host_check_uses_the_seed() -> None:
    pool = build(plans.mha(page=16), CPU)
    first = HostCheck(pool, make_slots(pool), HostTier("page_first"), 1 << 24, 1)
    second = HostCheck(pool, make_slots(pool), HostTier("page_first"), 1 << 24, 2)
    rows, positions = torch.tensor([16, 17]), torch.tensor([0, 1])
    first.stamps["full"][0].write(5, rows, positions)
    assert first.stamps["full"][0].mismatch(5, rows, positions) == ""
    assert second.stamps["full"][0].mismatch(5, rows, positions)
