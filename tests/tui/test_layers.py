"""A layer that did not run for this very launch never looks passed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtui.core.facts import EngineFact, PoolFact
from kvtui.core.findings import Outcome
from kvtui.tui.layers import Activity, Standing, layers, verdict_text
from kvtui.tui.prober import PoolStep
from tests.tui.canned import draft_of, facts_for, judge

IDLE = Activity()


def standings(report: object, activity: Activity = IDLE) -> list[Standing]:
    return [layer.standing for layer in layers(report, activity, 100.0)]  # type: ignore[arg-type]


def test_nothing_but_the_rules_ran() -> None:
    report = judge(draft_of(), facts_for())
    assert standings(report) == [Standing.PASSED, Standing.NOT_RUN, Standing.NOT_RUN]
    text = verdict_text(report, IDLE)
    assert text.word == "STARTS"
    assert text.detail == "by rules · pool not run · engine not asked"


def test_answers_to_this_launch_count() -> None:
    facts = facts_for()
    key = judge(draft_of(), facts).key
    facts = replace(
        facts,
        pool=PoolFact(key, True, {"class": "MHATokenToKVPool", "device": "cuda:0"}),
        engine=EngineFact(key, True, "0.5.23", "~/venv"),
    )
    report = judge(draft_of(), facts)
    assert standings(report) == [Standing.PASSED] * 3
    assert verdict_text(report, IDLE).detail == "rules, pool and engine agree"


def test_answers_to_another_launch_are_stale() -> None:
    facts = replace(
        facts_for(),
        pool=PoolFact("other", True, {}),
        engine=EngineFact("other", True, "0.5.23", "~/venv"),
    )
    assert standings(judge(draft_of(), facts))[1:] == [Standing.STALE, Standing.STALE]


def test_an_engine_that_refuses_decides() -> None:
    facts = facts_for()
    key = judge(draft_of(), facts).key
    facts = replace(facts, engine=EngineFact(key, False, "0.5.23", "~/venv", error="no"))
    report = judge(draft_of(), facts)
    assert report.outcome is Outcome.FAILS
    assert standings(report)[2] is Standing.FAILED


def test_a_running_check_shows_its_step_and_an_error_belongs_to_one_launch() -> None:
    report = judge(draft_of(), facts_for())
    running = Activity(pool_running=True, pool_step=PoolStep(2, 5, "writing"))
    assert layers(report, running, 0)[1].text == "2/5 writing"
    broken = Activity(pool_error="torch is missing", pool_for=report.key)
    assert standings(report, broken)[1] is Standing.UNKNOWN
    other = judge(draft_of(page_size=16), facts_for())
    assert standings(other, broken)[1] is Standing.NOT_RUN


@pytest.mark.parametrize(
    ("options", "word", "detail"),
    [
        ({"kv_cache_dtype": "nvfp4"}, "WILL FAIL", "at start, while options are checked"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "STARTS, with 1 warning", "by rules"),
        ({"model": "who/knows"}, "NOT KNOWN", "config.json was not found"),
    ],
)
def test_the_verdict_in_words(options: dict[str, str], word: str, detail: str) -> None:
    text = verdict_text(judge(draft_of(**options), facts_for()), IDLE)
    assert text.word == word
    assert detail in text.detail
