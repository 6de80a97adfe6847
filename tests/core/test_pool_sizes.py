"""From tokens or bytes to pool sizes: nothing above the budget, nothing below a page."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.options import catalogue
from kvtui.core.pipeline import PIPELINE
from kvtui.core.pools.build import build_plan, cell_bytes
from kvtui.core.pools.geometry import Geometry, geometry_of
from kvtui.core.pools.layouts import mla_fp4
from kvtui.core.pools.sizes import (
    aligned,
    from_budget,
    from_tokens,
    request_capped,
    swa_request_cap,
    table_columns,
    window_floor,
)
from kvtui.core.pools.state import slots_per_request
from kvtui.core.resolution import Resolution
from tests.support import draft_of, facts_for

GIB = 1 << 30
FAMILIES = {
    "mha": ("--model-path Qwen/Qwen3-8B --attention-backend triton --page-size 16", "h100"),
    "mla": ("--model-path deepseek-ai/DeepSeek-V3 --tp-size 8", "h200"),
    "dsa": ("--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8", "h200"),
    "swa": ("--model-path openai/gpt-oss-20b", "h100"),
    "hybrid": ("--model-path Qwen/Qwen3.5-27B", "h100"),
    "v4": ("--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 4", "h200"),
}


def resolved(argv: str, gpu: str = "h100") -> tuple[Resolution, Geometry]:
    """A resolution after the whole pipeline, with its geometry."""
    draft = draft_of(argv, gpu=gpu)
    r = Resolution(draft, facts_for(draft), {**catalogue().defaults, **draft.options}, None)
    for part in PIPELINE:
        part.run(r)
    return r, geometry_of(r)


CASES = {name: resolved(*one) for name, one in FAMILIES.items()}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=30, deadline=None)
@given(budget=st.integers(min_value=2 * GIB, max_value=100 * GIB))
def test_a_pool_costs_no_more_than_its_budget(family: str, budget: int) -> None:
    r, g = CASES[family]
    sizes = from_budget(r, g, budget)
    assert sizes.tokens % g.page_size == 0
    price = cell_bytes(r, g)
    assert sizes.tokens * price <= budget * 1.0001
    if family != "v4":  # its states take a fixed part first
        assert (sizes.tokens + 2 * g.page_size) * price > budget * 0.98


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=30, deadline=None)
@given(tokens=st.integers(min_value=1, max_value=5_000_000))
def test_a_token_cap_is_rounded_down_to_pages(family: str, tokens: int) -> None:
    r, g = CASES[family]
    sizes = from_tokens(r, g, tokens)
    assert 0 <= sizes.tokens <= tokens
    assert sizes.tokens == aligned(tokens, g.page_size)
    assert (sizes.swa or 0) <= (sizes.full if sizes.full is not None else 0)


@settings(max_examples=30, deadline=None)
@given(first=st.integers(GIB, 50 * GIB), more=st.integers(0, 50 * GIB))
def test_a_larger_budget_never_holds_less(first: int, more: int) -> None:
    for r, g in CASES.values():
        assert from_budget(r, g, first).tokens <= from_budget(r, g, first + more).tokens


def test_plan_allocates_what_the_sizes_say() -> None:
    r, g = CASES["swa"]
    sizes = from_tokens(r, g, 8192)
    plan = build_plan(r, g, sizes)
    slots = {one.role: one.slots for one in plan.sub_pools}
    assert (slots["full"], slots["swa"]) == (8192, sizes.swa)


def test_sliding_pool_below_one_window_falls_short() -> None:
    r, g = CASES["v4"]
    floor = window_floor(g)
    assert floor == 128 + 256
    assert from_tokens(r, g, 4096).shortfall == f"swa:256:{floor}"
    assert from_tokens(r, g, 5120).shortfall == ""


def test_sliding_pool_follows_the_request_limit_without_a_tree() -> None:
    r, g = resolved(
        "--model-path openai/gpt-oss-20b --disable-radix-cache --max-running-requests 8"
    )
    assert request_capped(r, g)
    cap = swa_request_cap(r, g, g.window or 0)
    big, small = from_budget(r, g, 40 * GIB), from_budget(r, g, 20 * GIB)
    assert big.swa == small.swa
    assert big.swa is not None
    assert cap <= big.swa < cap + g.page_size
    assert big.tokens > small.tokens


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        ("--disable-radix-cache", 1),
        ("--mamba-radix-cache-strategy no_buffer", 3),
        ("--mamba-radix-cache-strategy extra_buffer", 5),
        ("--mamba-radix-cache-strategy extra_buffer --disable-overlap-schedule", 4),
        ("--mamba-radix-cache-strategy extra_buffer_lazy", 4),
    ],
)
def test_state_slots_of_a_running_request(options: str, slots: int) -> None:
    r, _ = resolved(f"--model-path Qwen/Qwen3.5-27B --tp-size 2 {options}")
    assert slots_per_request(r) == slots


def test_request_table_grows_with_drafts() -> None:
    plain, g = CASES["mha"]
    assert table_columns(plain, g) == g.context + 4
    drafting, h = resolved(
        "--model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM --speculative-num-draft-tokens 8"
    )
    assert table_columns(drafting, h) > h.context + 4


def test_latent_fp4_rows_have_scales_for_sixteen_values() -> None:
    shapes = sorted(one.shape for one in mla_fp4("", 10, 576, 61))
    assert shapes == [(10, 1, 288), (10, 36)]
