"""The session: edits, undo, and facts that follow the draft's hardware."""

from __future__ import annotations

from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.findings import Change, Outcome
from kvtui.tui.base import merge_machine, world_of
from kvtui.tui.prober import Machine
from kvtui.tui.session import GPU, GPU_COUNT, LOCAL, Session, changed_options
from tests.tui.canned import HOST, draft_of, facts_for, judge, local_gpu


def session(**options: Any) -> Session:
    return Session(draft_of(**options), world_of(facts_for()), judge)


def outcome(s: Session) -> Outcome:
    return s.report.outcome


def test_an_edit_is_judged_and_undone() -> None:
    s = session()
    assert outcome(s) is Outcome.STARTS
    assert s.change((Change("kv_cache_dtype", "nvfp4"),))
    assert outcome(s) is Outcome.FAILS
    assert s.last_changed == {"kv_cache_dtype"}
    assert s.undo()
    assert outcome(s) is Outcome.STARTS
    assert s.redo()
    assert s.draft.options["kv_cache_dtype"] == "nvfp4"
    assert not s.redo()


def test_an_edit_that_changes_nothing_is_no_step_back() -> None:
    s = session(kv_cache_dtype="fp8_e4m3")
    assert not s.change((Change("kv_cache_dtype", "fp8_e4m3"),))
    assert not s.undo()


def test_a_new_edit_forgets_what_was_undone() -> None:
    s = session()
    s.change((Change("page_size", 16),))
    s.undo()
    s.change((Change("page_size", 32),))
    assert not s.redo()
    assert s.draft.options["page_size"] == 32


def test_the_report_is_made_when_it_is_asked_for() -> None:
    calls: list[Draft] = []

    def counting(draft: Draft, facts: object) -> object:
        calls.append(draft)
        return judge(draft, facts)  # type: ignore[arg-type]

    s = Session(draft_of(), world_of(facts_for()), counting)  # type: ignore[arg-type]
    s.change((Change("page_size", 16),))
    assert calls == []
    assert s.report is s.report
    assert len(calls) == 1


def test_a_named_gpu_is_in_another_machine() -> None:
    s = session()
    assert s.facts.host == HOST
    s.change((Change(GPU, "b200"), Change(GPU_COUNT, 4)))
    assert s.facts.gpu is not None
    assert s.facts.gpu.key == "b200"
    assert s.facts.gpu_count == 4
    assert s.facts.host is None
    s.change((Change(GPU, LOCAL),))
    assert s.facts.gpu == local_gpu()
    assert s.facts.gpu_count == 2


def test_a_gpu_that_is_not_known_says_so() -> None:
    s = session()
    s.change((Change(GPU, "h9000"),))
    assert s.facts.gpu is None
    assert "h9000" in s.facts.missing["gpu"]


def test_trying_out_keeps_nothing() -> None:
    s = session()
    assert s.try_out((Change("kv_cache_dtype", "nvfp4"),)).outcome is Outcome.FAILS
    assert s.report.outcome is Outcome.STARTS
    assert not s.can_undo


def test_changed_options_name_environment_and_hardware() -> None:
    before = draft_of(page_size=16)
    after = Draft(options={"model_path": "Qwen/Qwen3-8B"}, env={"A": "1"}, gpu="t4", gpu_count=1)
    assert changed_options(before, after) == {"page_size", "env:A", GPU, GPU_COUNT}


def test_a_reason_goes_when_the_thing_is_found() -> None:
    known = Machine(missing={"gpu": "looking", "torch": "looking"})
    merged = merge_machine(known, Machine(gpu=local_gpu(), gpu_count=1))
    assert merged.gpu is not None
    assert dict(merged.missing) == {"torch": "looking"}
