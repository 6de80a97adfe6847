"""Every value of an option with what it would do."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.core.options import catalogue
from kvtui.errors import InputError
from kvtui.tui.base import world_of
from kvtui.tui.candidates import (
    Judged,
    Mark,
    candidates,
    judge_all,
    read_value,
    takes_text,
)
from kvtui.tui.session import Session
from tests.tui.canned import draft_of, facts_for, judge


def judged(option: str, **chosen: Any) -> dict[str, Judged]:
    session = Session(draft_of(**chosen), world_of(facts_for()), judge)
    rows = candidates(option, session.report)
    last: dict[str, Judged] = {}
    for part in judge_all(option, rows, session.try_out, session.report):
        last = dict(part)
    return last


def test_a_refused_value_carries_its_reason_before_it_is_chosen() -> None:
    marks = judged("kv_cache_dtype")
    assert marks["nvfp4"].mark is Mark.FAILS
    assert marks["nvfp4"].reason is not None
    assert marks["nvfp4"].reason.rule == "CN226"
    assert marks["fp8_e4m3"].mark is Mark.OK
    assert marks["fp8_e5m2"].mark is Mark.WARNS


def test_an_error_that_every_value_shares_is_blamed_on_none() -> None:
    marks = judged(
        "kv_cache_dtype",
        model="Qwen/Qwen3.5-27B",
        disaggregation_mode="decode",
        disaggregation_decode_enable_offload_kvcache=True,
    )
    assert marks["fp8_e4m3"].mark is Mark.OK
    assert marks["nvfp4"].mark is Mark.FAILS


def test_a_value_that_clears_an_error_says_so() -> None:
    marks = judged("disaggregation_mode", disaggregation_decode_enable_offload_kvcache=True)
    assert [finding.rule for finding in marks["decode"].clears] == ["CN510"]


def test_the_default_is_the_absent_option_and_the_present_value_is_listed() -> None:
    session = Session(draft_of(page_size=48), world_of(facts_for()), judge)
    rows = candidates("page_size", session.report)
    assert rows[0].is_default
    assert rows[0].change.value is None
    assert [row.value for row in rows if row.is_current] == [48]


def test_choosing_the_default_of_a_choice_drops_the_option() -> None:
    session = Session(draft_of(kv_cache_dtype="fp8_e4m3"), world_of(facts_for()), judge)
    auto = candidates("kv_cache_dtype", session.report)[0]
    assert (auto.label, auto.change.value) == ("auto", None)


def test_a_switch_offers_on_and_off_once() -> None:
    session = Session(draft_of(), world_of(facts_for()), judge)
    labels = [row.label for row in candidates("disable_radix_cache", session.report)]
    assert labels == ["off", "on"]


@pytest.mark.parametrize("name", [o.name for o in catalogue().options.values() if o.flags])
def test_every_option_of_the_engine_can_be_edited(name: str) -> None:
    session = Session(draft_of(), world_of(facts_for()), judge)
    rows = candidates(name, session.report)
    assert rows
    assert len(rows) > 1 or takes_text(name) or len(catalogue().options[name].choices or ()) == 1
    assert len({row.label for row in rows}) == len(rows)


def test_typed_text_becomes_the_engines_value() -> None:
    assert read_value("page_size", " 64 ") == 64
    assert read_value("mem_fraction_static", "0.9") == 0.9
    assert read_value("cuda_graph_bs_decode", "1 2 4") == [1, 2, 4]
    assert read_value("model_path", "org/name") == "org/name"
    assert read_value("page_size", "") is None


def test_typed_text_that_is_no_value_says_what_was_expected() -> None:
    with pytest.raises(InputError, match="whole number"):
        read_value("page_size", "many")
