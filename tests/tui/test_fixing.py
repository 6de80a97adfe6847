"""The chain of fixes clears every error that it can, and ends."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.evaluate import Report
from kvtui.core.findings import Fix, Outcome, set_to
from kvtui.tui.fixing import MAX_FIXES, fix_all
from tests.tui.canned import draft_of, facts_for, judge


def judged(draft: object) -> Report:
    return judge(draft, facts_for())  # type: ignore[arg-type]


def test_all_errors_are_fixed_in_turn() -> None:
    report = judged(
        draft_of(
            "Qwen/Qwen3.5-27B",
            kv_cache_dtype="nvfp4",
            disaggregation_decode_enable_offload_kvcache=True,
        )
    )
    chain = fix_all(report, judged)
    assert chain.report.outcome is Outcome.STARTS
    assert [finding.rule for finding, _ in chain.fixes] == ["CN226", "CN510", "CN512"]


def test_warnings_stay() -> None:
    chain = fix_all(judged(draft_of(kv_cache_dtype="fp8_e5m2")), judged)
    assert chain.fixes == ()


def test_fixes_that_undo_each_other_end() -> None:
    def quarrel(draft: object) -> Report:
        report = judged(draft)
        size = report.draft.options.get("page_size", 0)
        finding = judged(draft_of(kv_cache_dtype="nvfp4")).errors[0]
        fix: Fix = set_to("the other one", page_size=16 if size != 16 else 32)
        return replace(report, findings=(replace(finding, fixes=(fix,), rule=f"KV{size}"),))

    chain = fix_all(quarrel(draft_of()), quarrel)
    assert len(chain.fixes) <= MAX_FIXES
