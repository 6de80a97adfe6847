"""Plans are cut down to a budget without losing what makes them what they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.pools.spec import BufferSpec
from kvtui.probe.pool.child.memory import GIB
from kvtui.probe.pool.child.sizing import Reduction, TooSmall, fit, space_slots

from . import plans
from .runs import run

LARGE = {
    "mha": lambda: plans.mha(1 << 20, 1, layers=36, heads=8, dims=(128, 128)),
    "swa paged": lambda: plans.swa(1 << 18, 1 << 17, 64),
    "dsv4": lambda: plans.dsv4(1 << 20, 1 << 16),
    "hybrid": lambda: plans.hybrid(1 << 18, 1, states=4096),
    "mxfp8": lambda: plans.mxfp8(1 << 18),
    "unified three": lambda: plans.unified_three(64 << 20, 4),
}


def test_a_plan_that_fits_is_left_alone() -> None:
    plan = plans.mha()
    assert fit(plan, plan.nbytes) == (plan, None)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(LARGE)), st.integers(1 << 20, 1 << 27))
def test_cut_plans_fit_and_keep_their_shape(kind: str, budget: int) -> None:
    plan = LARGE[kind]()
    try:
        small, reduction = fit(plan, budget)
    except TooSmall:
        assert plan.raw_bytes or budget < 4 << 20
        return
    assert small.nbytes <= budget
    assert small.page_size == plan.page_size
    assert all(
        slots % plan.page_size == 0 for slots in space_slots(small).values() if not plan.raw_bytes
    ) or kind in ("mha", "hybrid")
    for before, after in zip(plan.buffers, small.buffers, strict=True):
        assert after.shape[after.row_axis] <= before.shape[before.row_axis]
        if before.row_axis == 0:
            assert after.shape[1:] == before.shape[1:]
    if reduction is None:
        assert small == plan
    elif reduction.layers == 1.0:
        assert small.nbytes > budget * 0.8 or reduction.slots > 0.9 or budget < 4 << 20


@pytest.mark.parametrize("kind", LARGE)
def test_cut_plans_pass_the_exercise(kind: str) -> None:
    report = run(LARGE[kind](), limit_bytes=6 << 20, steps=("build", "exercise"))
    assert report["built"]["reduced"]
    assert report["built"]["allocated_bytes"] <= 6 << 20


def test_layers_go_last() -> None:
    plan = LARGE["mha"]()
    small, reduction = fit(plan, 4 << 20)
    assert reduction is not None
    assert reduction.layers < 1
    assert {buffer.count for buffer in small.buffers} == {int(36 * reduction.layers)}
    assert small.tokens == 64


def test_a_budget_below_the_smallest_pool_says_what_is_needed() -> None:
    with pytest.raises(TooSmall, match="the smallest pool needs"):
        fit(LARGE["mha"](), 1000)


def test_tables_that_slots_do_not_index_shrink_in_proportion() -> None:
    table = BufferSpec("req_to_token", "int32", (2049, 4096), 1, "request")
    plan = plans.mha(1 << 16)
    plan = replace(
        plan, sub_pools=(*plan.sub_pools, plans.sub("requests", 2048, 1, table))
    )  # fmt: skip
    small, _ = fit(plan, plan.nbytes // 8)
    rows = small.sub_pools[1].buffers[0].shape[0]
    assert 0 < rows < 2049 // 4


def test_reductions_read_well() -> None:
    assert str(Reduction(0.0173, 1.0)) == "1.73% of the slots"
    assert str(Reduction(0.5, 0.25)) == "50.00% of the slots and 25% of the layers"


def test_the_full_size_is_refused_where_it_does_not_fit() -> None:
    from kvtui.probe.pool.child.wire import Refused

    plan = plans.mha(1 << 24, 1, layers=64, heads=8, dims=(128, 128))
    assert plan.nbytes > 1000 * GIB
    with pytest.raises(Refused, match=r"the planned pool takes 4096\.0. GiB") as refusal:
        run(plan, full=True)
    assert refusal.value.kind == "memory"
