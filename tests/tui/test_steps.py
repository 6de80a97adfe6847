"""The walk through a launch covers the engine's options, each in one step."""

from __future__ import annotations

from kvtui.core.options import catalogue
from kvtui.tui.session import GPU, GPU_COUNT
from kvtui.tui.steps import STEPS, USED_WHEN, listed_options, not_used, step_of
from tests.tui.canned import draft_of, facts_for, judge


def test_every_listed_option_exists_and_is_listed_once() -> None:
    listed = [name for step in STEPS for name in step.options]
    assert len(listed) == len(set(listed))
    known = {*catalogue().options, GPU, GPU_COUNT}
    assert set(listed) <= known
    assert set(USED_WHEN) <= known


def test_every_option_has_a_step() -> None:
    keys = {step.key for step in STEPS}
    assert {step_of(name) for name in catalogue().options} <= keys
    assert step_of("kv_cache_dtype") == "kv"
    assert step_of("hicache_storage_prefetch_retry_max_attempts") == "offload"
    assert step_of(None) == "review"


def test_an_option_without_effect_says_why_and_comes_last() -> None:
    report = judge(draft_of(), facts_for())
    assert not_used("swa_full_tokens_ratio", report) == "no sliding window in this pool"
    kv = next(step for step in STEPS if step.key == "kv")
    names = listed_options(kv, report)
    assert names.index("page_size") < names.index("swa_full_tokens_ratio")


def test_an_option_that_was_set_is_listed_even_if_no_step_names_it() -> None:
    report = judge(draft_of(stream_interval=4, schedule_policy="lpm"), facts_for())
    review, kv = STEPS[-1], next(step for step in STEPS if step.key == "kv")
    assert "stream_interval" in listed_options(review, report)
    assert "schedule_policy" in listed_options(kv, report)
