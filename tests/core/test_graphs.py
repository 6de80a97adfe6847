"""CUDA graph settings: size lists, how spellings merge, and what switches capture off."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.evaluate import Report
from kvtui.core.graphs import (
    BREAKABLE,
    DISABLED,
    FULL,
    GraphConfig,
    GraphConfigError,
    cpu_graph_sizes,
    decode_graph_sizes,
    parse_graph_config,
    prefill_graph_sizes,
)
from tests.support import judge

DENSE = "--model-path Qwen/Qwen3-8B"
MLA = "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8"


def graphs(report: Report) -> GraphConfig:
    """The resolved graph settings of a report."""
    config = report.plan.values["cuda_graph_config"]
    assert isinstance(config, GraphConfig)
    return config


def rules_of(report: Report) -> set[str]:
    """Ids of all rules that found something."""
    return {finding.rule for finding in report.findings}


@settings(max_examples=60)
@given(st.integers(1, 3000), st.booleans(), st.booleans())
def test_decode_sizes_rise_to_the_limit(limit: int, padding: bool, speculative: bool) -> None:
    sizes = decode_graph_sizes(limit, padding, speculative)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == limit
    assert padding or sizes == tuple(range(1, limit + 1))


@settings(max_examples=60)
@given(st.integers(-1, 70000))
def test_prefill_sizes_stay_below_the_limit(limit: int) -> None:
    sizes = prefill_graph_sizes(limit)
    assert list(sizes) == sorted(set(sizes))
    assert all(4 <= size <= limit for size in sizes)


def test_lists_as_the_engine_captures_them() -> None:
    assert decode_graph_sizes(24, True, False) == (1, 2, 4, 8, 12, 16, 24)
    assert decode_graph_sizes(12, True, True) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
    assert prefill_graph_sizes(50) == (4, 8, 12, 16, 20, 24, 28, 32, 48)
    assert len(prefill_graph_sizes(8192)) == 58
    assert cpu_graph_sizes(20, True) == (*range(1, 17), 18, 20)
    assert cpu_graph_sizes(3, False) == (1, 2, 3)


def test_a_huge_limit_does_not_fill_memory() -> None:
    assert len(decode_graph_sizes(10**12, False, False)) <= 1 << 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"verify": {}}', "no phase"),
        ('{"decode": 1}', "must be a JSON object"),
        ('{"decode": {"max_seq_len": 1}}', "no key"),
        ('{"prefill": {"backend": "tc_piecewise"}}', "was removed"),
    ],
)
def test_json_that_the_parser_refuses(text: str, said: str) -> None:
    with pytest.raises(GraphConfigError, match=said):
        parse_graph_config(text)


def test_json_beats_options_and_options_beat_switches() -> None:
    config = json.dumps({"decode": {"max_bs": 32}})
    report = judge(
        [*DENSE.split(), "--disable-cuda-graph", "--cuda-graph-backend-decode", "full",
         "--cuda-graph-max-bs-decode", "64", "--cuda-graph-config", config]
    )  # fmt: skip
    assert graphs(report).decode.max_bs == 32
    assert graphs(report).decode.backend == FULL
    assert graphs(report).prefill.backend == DISABLED


def test_a_list_of_sizes_sets_the_limit() -> None:
    report = judge(f"{DENSE} --cuda-graph-bs-decode 1 2 100 --cuda-graph-max-bs-decode 64")
    assert graphs(report).decode.bs == (1, 2, 100)
    assert graphs(report).decode.max_bs == 100
    assert "KV403" in rules_of(report)


@pytest.mark.parametrize(
    ("argv", "backend"),
    [
        (DENSE, BREAKABLE),
        (f"{DENSE} --pp-size 2", DISABLED),
        (f"{DENSE} --pp-size 2 --cuda-graph-backend-prefill breakable", BREAKABLE),
        (f"{DENSE} --tp-size 2 --dcp-size 2", DISABLED),
        (f"{MLA} --enable-two-batch-overlap --moe-a2a-backend deepep", DISABLED),
        ("--model-path Qwen/Qwen3-VL-8B-Instruct", DISABLED),
        ("--model-path Qwen/Qwen3.5-27B", BREAKABLE),
        ("--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 8", DISABLED),
        (f"{DENSE} --disaggregation-mode decode", DISABLED),
    ],
)
def test_what_leaves_prefill_uncaptured(argv: str, backend: str) -> None:
    assert graphs(judge(argv)).prefill.backend == backend


def test_a_prefill_server_captures_no_decode_unless_told() -> None:
    role = f"{DENSE} --disaggregation-mode prefill"
    assert graphs(judge(role)).decode.backend == DISABLED
    assert graphs(judge(f"{role} --cuda-graph-backend-decode full")).decode.backend == FULL


def test_trtllm_mla_prefills_deepseek_uncaptured_by_default() -> None:
    assert graphs(judge(MLA, "b200")).prefill.backend == DISABLED
    chosen = judge(f"{MLA} --cuda-graph-backend-prefill breakable", "b200")
    assert graphs(chosen).prefill.backend == BREAKABLE


def test_deepep_takes_multiples_of_eight() -> None:
    argv = "--model-path Qwen/Qwen3-30B-A3B --tp-size 4 --moe-a2a-backend deepep"
    prefill = graphs(judge(f"{argv} --cuda-graph-max-bs-prefill 100")).prefill
    assert prefill.bs is not None
    assert all(size % 8 == 0 for size in prefill.bs)
    assert prefill.max_bs == prefill.bs[-1]


def test_captured_context_is_whole_pages() -> None:
    argv = f"{DENSE} --page-size 64 --cuda-graph-prefill-max-context"
    report = judge(f"{argv} 100")
    assert graphs(report).prefill.max_context_size == 128
    assert "KV402" not in rules_of(report)
    assert "KV402" in rules_of(judge(f"{argv} 0"))
    assert "KV402" in rules_of(judge(f"{argv} 999999"))


def test_an_empty_list_captures_no_prefill_and_fails_decode() -> None:
    empty = {phase: json.dumps({phase: {"bs": []}}) for phase in ("prefill", "decode")}
    prefill = judge([*DENSE.split(), "--cuda-graph-config", empty["prefill"]])
    assert graphs(prefill).prefill.bs == ()
    assert not prefill.errors
    assert "KV401" in rules_of(judge([*DENSE.split(), "--cuda-graph-config", empty["decode"]]))


def test_sizes_of_a_wrong_type_are_one_error_and_no_crash() -> None:
    config = json.dumps({"decode": {"bs": "many", "max_bs": 1.5}, "prefill": {"bs": [1, "2"]}})
    report = judge([*DENSE.split(), "--cuda-graph-config", config])
    assert [f.rule for f in report.errors] == ["KV401"] * 3
    assert not report.unknowns
