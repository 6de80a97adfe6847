"""`--prefill-only-disable-kv-cache`: everything at once, and one fix for all of it."""

from __future__ import annotations

import pytest

from kvtui.core.evaluate import Report, evaluate
from kvtui.core.findings import Outcome
from tests.support import facts_for, judge

RULES = ("KV330", "KV331", "KV332", "KV333", "KV334", "KV335", "KV336")
GOOD = (
    "--model-path Qwen/Qwen3-8B --prefill-only-disable-kv-cache --is-embedding "
    "--chunked-prefill-size -1 --disable-radix-cache"
)
BAD = (
    "--model-path Qwen/Qwen3-8B --tp-size 4 --prefill-only-disable-kv-cache "
    "--kv-cache-dtype nvfp4 --attn-cp-size 2 --enable-hisparse --attention-backend flashinfer"
)


def own(report: Report) -> set[str]:
    """Ids of our rules that fired."""
    return {finding.rule for finding in report.errors} & set(RULES)


def test_a_hopper_embedding_server_starts() -> None:
    report = judge(GOOD, "h100")
    assert report.outcome is Outcome.STARTS
    assert report.plan.backends[0] == "fa3"


def test_all_violations_are_told_at_once() -> None:
    assert own(judge(BAD, "b200")) == set(RULES)


@pytest.mark.parametrize(
    ("gpu", "backend"), [("h100", "fa3"), ("a100-80", "fa3"), ("l40s", "fa3"), ("b200", "fa4")]
)
def test_one_fix_meets_all_conditions(gpu: str, backend: str) -> None:
    report = judge(BAD, gpu)
    first = next(finding for finding in report.errors if finding.rule == "KV330")
    draft = report.draft.with_changes(first.fixes[0].changes)
    after = evaluate(draft, facts_for(draft))
    assert own(after) == set()
    assert after.outcome is Outcome.STARTS, [f"{f.rule} {f.message}" for f in after.errors]
    assert after.plan.backends[0] == backend


def test_the_fix_names_no_more_than_is_needed() -> None:
    report = judge(GOOD.replace(" --disable-radix-cache", ""), "h100")
    assert own(report) == {"KV333"}
    (finding,) = report.errors
    assert [c.option for c in finding.fixes[0].changes] == ["disable_radix_cache"]


def test_a_gpu_without_flash_attention_is_offered_the_pool_only() -> None:
    report = judge(GOOD, "t4")
    (finding,) = (f for f in report.errors if f.rule == "KV336")
    assert [fix.changes[0].option for fix in finding.fixes] == ["prefill_only_disable_kv_cache"]
    assert "T4" in finding.message


def test_conditions_are_told_without_a_gpu() -> None:
    assert own(judge(GOOD.replace(" --is-embedding", ""), "none-such")) >= {"KV330"}


def test_an_unset_flag_fires_nothing() -> None:
    report = judge("--model-path Qwen/Qwen3-8B", "l40s")
    assert own(report) == set()
