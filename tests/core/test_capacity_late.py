"""Launches that run out of memory: certain deaths, near ones, and which way to turn."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kvtui.core.evaluate import Report, evaluate
from kvtui.core.facts import GpuFacts
from kvtui.core.findings import Severity, Stage
from kvtui.core.gpus import find_gpu
from kvtui.core.late.memory_fixes import fraction_window
from tests.support import draft_of, facts_for, judge


def on_card(argv: str, gib: float, free_gib: float | None = None) -> Report:
    """A launch on one GPU with that much memory, of which so much is free."""
    draft = draft_of(argv, gpu="h100")
    known = find_gpu("h100")
    assert known is not None
    free = None if free_gib is None else round(free_gib * 1024)
    gpu: GpuFacts = replace(known, memory_mib=round(gib * 1024), free_mib=free)
    return evaluate(draft, replace(facts_for(draft), gpu=gpu))


def found(report: Report, rule: str) -> list[Severity]:
    """Severities of a rule's findings."""
    return [one.severity for one in report.findings if one.rule == rule]


def test_weights_that_fit_say_nothing() -> None:
    assert found(judge("--model-path Qwen/Qwen3-8B", "rtx4090"), "KV950") == []


def test_weights_above_the_card_need_more_cards() -> None:
    report = judge("--model-path meta-llama/Llama-3.3-70B-Instruct", "h100")
    assert found(report, "KV950") == [Severity.ERROR]
    finding = next(one for one in report.findings if one.rule == "KV950")
    assert finding.stage is Stage.LOAD
    assert not any(change.option == "mem_fraction_static" for change in finding.fixes[0].changes)
    assert any(change.option == "tp_size" for fix in finding.fixes for change in fix.changes)


def test_weights_above_their_share_call_for_a_higher_fraction() -> None:
    argv = "--model-path Qwen/Qwen3-32B --mem-fraction-static 0.7"
    report = judge(argv, "h100")
    assert found(report, "KV950") == [Severity.ERROR]
    finding = next(one for one in report.findings if one.rule == "KV950")
    change = finding.fixes[0].changes[0]
    assert change.option == "mem_fraction_static"
    assert isinstance(change.value, float)
    assert report.capacity is not None
    lowest, highest = fraction_window(report.capacity)
    assert 0.7 < lowest < change.value <= highest
    least = re.search(r"above (0\.\d+)", finding.message)
    assert least is not None
    assert float(least[1]) == pytest.approx(lowest, abs=1e-3)
    fixed = judge(argv.replace("0.7", str(change.value)), "h100")
    assert fixed.errors == ()


def test_a_near_miss_is_a_warning() -> None:
    report = judge("--model-path Qwen/Qwen3-32B --mem-fraction-static 0.779", "h100")
    assert report.capacity is not None
    assert abs(report.capacity.budget.value) < 2 << 30
    assert found(report, "KV950") == [Severity.WARNING]
    assert report.errors == ()


def test_memory_of_another_process_counts_as_taken() -> None:
    argv = "--model-path Qwen/Qwen3-8B --mem-fraction-static 0.8"
    assert on_card(argv, 24).errors == ()
    report = on_card(argv, 24, free_gib=14)
    assert found(report, "KV950") == [Severity.ERROR]


def test_graphs_call_for_a_lower_fraction() -> None:
    report = judge(
        "--model-path Qwen/Qwen3-8B --mem-fraction-static 0.97 --chunked-prefill-size 32768",
        "h100",
    )
    finding = next(one for one in report.findings if one.rule == "KV961")
    assert finding.severity is Severity.WARNING
    change = finding.fixes[0].changes[0]
    assert change.option == "mem_fraction_static"
    assert isinstance(change.value, float)
    assert change.value < 0.97


def test_request_table_of_a_very_long_context() -> None:
    argv = (
        "--model-path meta-llama/Llama-4-Scout-17B-16E-Instruct --tp-size 8"
        " --context-length 2800000"
    )
    assert "KV960" in {one.rule for one in judge(argv, "h100").errors}
    assert judge(f"{argv} --max-running-requests 64", "h100").errors == ()


@pytest.mark.parametrize(("tokens", "starts"), [(4096, False), (5120, True)])
def test_smallest_pool_of_v4(tokens: int, starts: bool) -> None:
    report = judge(
        f"--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 4 --max-total-tokens {tokens}",
        "h200",
    )
    assert ("KV953" not in {one.rule for one in report.errors}) is starts


@pytest.mark.parametrize(
    ("slots", "rule"), [(0, "KV955"), (4, "KV956"), (40, None), (4000, "KV968")]
)
def test_state_slots(slots: int, rule: str | None) -> None:
    report = judge(
        f"--model-path Qwen/Qwen3.5-27B --tp-size 2 --max-mamba-cache-size {slots}", "h100"
    )
    assert {one.rule for one in report.errors} == ({rule} if rule else set())


def test_states_cut_requests() -> None:
    argv = "--model-path Qwen/Qwen3.5-27B --tp-size 2 --max-mamba-cache-size 40"
    report = judge(f"{argv} --max-running-requests 16", "h100")
    finding = next(one for one in report.findings if one.rule == "KV957")
    assert "8 will run" in finding.message
    assert finding.fixes[0].changes[0].value == 80
    assert found(judge(f"{argv} --max-running-requests 8", "h100"), "KV957") == []


def test_pool_below_the_context_that_was_asked_for() -> None:
    argv = "--model-path Qwen/Qwen3-32B --context-length 40960 --max-total-tokens"
    assert found(judge(f"{argv} 20000", "h200"), "KV959") == [Severity.WARNING]
    assert found(judge(f"{argv} 50000", "h200"), "KV959") == []


def test_fp4_needs_a_pool_with_scales() -> None:
    report = judge("--model-path openai/gpt-oss-20b --kv-cache-dtype nvfp4", "b200")
    assert "KV966" in {one.rule for one in report.findings}
    plain = judge("--model-path Qwen/Qwen3-8B --kv-cache-dtype nvfp4", "b200")
    assert "KV966" not in {one.rule for one in plain.findings}


def test_an_unknown_gpu_gives_no_verdict_on_memory() -> None:
    draft = draft_of("--model-path meta-llama/Llama-3.3-70B-Instruct")
    report = evaluate(draft, facts_for(draft))
    assert not [one for one in report.findings if one.rule.startswith(("KV95", "KV96"))]
