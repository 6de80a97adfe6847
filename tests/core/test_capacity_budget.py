"""The engine's budget rule, by release, on figures that public boot logs printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtui.core.capacity.budget import automatic_requests, budget_bytes
from kvtui.core.capacity.predict import predict, try_predict
from kvtui.core.capacity.result import Capacity, Printed
from kvtui.core.capacity.versions import NEWEST, parse_version, sizing_rule, version_at
from kvtui.core.draft import Draft
from kvtui.core.facts import GIB, Facts
from kvtui.core.options import catalogue
from kvtui.core.pipeline import PIPELINE
from kvtui.core.resolution import Resolution
from tests.support import draft_of, facts_for


def resolution(argv: str, gpu: str, version: str | None = None) -> Resolution:
    """A launch after the whole pipeline, for an engine of `version`."""
    draft: Draft = draft_of(argv, gpu=gpu)
    facts: Facts = replace(facts_for(draft), engine_version=version)
    r = Resolution(draft, facts, {**catalogue().defaults, **draft.options}, None)
    for part in PIPELINE:
        part.run(r)
    return r


def from_printed(
    argv: str, gpu: str, begin: float, end: float, fraction: float, version: str | None = None
) -> Capacity:
    """The capacity from GiB that a log prints."""
    return predict(resolution(argv, gpu, version), Printed(begin * GIB, end * GIB, fraction))


@pytest.mark.parametrize(
    ("argv", "gpu", "begin", "end", "fraction", "version", "tokens"),
    [
        ("--model-path meta-llama/Llama-3.1-8B-Instruct", "h100", 78.81, 63.72, 0.88, "0.4.1",
         444500),
        ("--model-path Qwen/QwQ-32B --tp-size 4", "l4", 21.63, 6.09, 0.85, "0.4.3", 46611),
        ("--model-path Qwen/Qwen3-32B --tp-size 4 --page-size 64", "b200", 176.28, 160.78, 0.8518,
         "0.5.10", 2206208),
        ("--model-path deepseek-ai/DeepSeek-R1 --tp-size 16 --kv-cache-dtype fp8_e4m3"
         " --page-size 64", "h200", 143.05, 101.33, 0.9, "0.5.10", 2659072),
    ],
)  # fmt: skip
def test_tokens_that_logs_printed(
    argv: str, gpu: str, begin: float, end: float, fraction: float, version: str, tokens: int
) -> None:
    capacity = from_printed(argv, gpu, begin, end, fraction, version)
    assert capacity.max_total_num_tokens == pytest.approx(tokens, rel=0.003)


def test_budget_is_free_memory_less_what_stays_out() -> None:
    assert budget_bytes(17.94, 138.17, 0.9, 0) == pytest.approx(4.123, abs=1e-3)
    assert budget_bytes(10.0, 100.0, 0.8, 0) < 0


def test_earlier_releases_price_otherwise() -> None:
    newest, early = sizing_rule(NEWEST), sizing_rule((0, 5, 3))
    assert newest.index_keys
    assert not early.index_keys
    assert sizing_rule((0, 5, 17)).multimodal_mib == 0
    assert sizing_rule((0, 5, 18)).multimodal_mib == 100
    assert sizing_rule((0, 5, 15)).stale_scales
    assert not sizing_rule((0, 5, 12)).stale_scales
    assert not newest.stale_scales
    argv = "--model-path zai-org/GLM-5-FP8 --tp-size 8 --kv-cache-dtype fp8_e4m3"
    with_scales = from_printed(argv, "h200", 138.0, 48.0, 0.9)
    without = from_printed(argv, "h200", 138.0, 48.0, 0.9, "0.5.8")
    assert without.max_total_num_tokens > with_scales.max_total_num_tokens * 1.05


def test_versions_are_read_or_placed_by_date() -> None:
    assert parse_version("0.5.12.post2.dev10xx (patched)") == (0, 5, 12)
    assert parse_version("0.0.0.dev1+g977830e91") is None
    assert parse_version(None) is None
    assert version_at("2026-05-08") == (0, 5, 11)
    assert version_at("2026") == NEWEST


@pytest.mark.parametrize(
    ("tokens", "context", "requests"),
    [
        (89_571, 16_384, 2_799),
        (444_500, 8_192, 4_096),
        (46_611, 131_072, 2_048),
    ],
)
def test_requests_that_logs_printed(tokens: int, context: int, requests: int) -> None:
    assert automatic_requests(tokens, context, sizing_rule()) == requests
    assert automatic_requests(tokens, context, sizing_rule((0, 4, 3))) == requests + 1


def test_states_take_their_share_first() -> None:
    argv = "--model-path Qwen/Qwen3.5-27B --tp-size 2"
    usual = from_printed(argv, "h100", 78.0, 52.0, 0.85)
    assert usual.state_bytes == pytest.approx(usual.budget.value * 0.9 / 1.9, rel=0.01)
    less = from_printed(f"{argv} --mamba-full-memory-ratio 0.2", "h100", 78.0, 52.0, 0.85)
    assert less.state_slots < usual.state_slots
    assert less.max_total_num_tokens > usual.max_total_num_tokens
    assert usual.max_running_requests == usual.state_slots // 5
    assert usual.limited_by == "states"


def test_a_cap_wins_over_memory() -> None:
    capacity = from_printed(
        "--model-path Qwen/Qwen3-8B --max-total-tokens 8192", "h100", 78.8, 63.0, 0.9
    )
    assert capacity.max_total_num_tokens == 8192
    assert capacity.tokens.kind == "exact"
    assert capacity.free_after.value > 40 * GIB


def test_requests_that_fit_shrink_with_context() -> None:
    capacity = from_printed("--model-path Qwen/Qwen3-8B", "h100", 78.8, 63.0, 0.85)
    counts = [capacity.fits[context] for context in sorted(capacity.fits)]
    assert counts == sorted(counts, reverse=True)
    assert capacity.fits[4096] == capacity.max_total_num_tokens // 4096


def test_figures_say_how_they_came_about() -> None:
    capacity = from_printed("--model-path Qwen/Qwen3-8B", "h100", 78.8, 63.0, 0.85)
    data = capacity.to_json()
    assert data["figures"]["total"]["kind"] == "exact"
    assert data["figures"]["bytes_per_token"] == {"value": 147456, "kind": "computed"}
    assert data["figures"]["working"]["kind"] == "estimated"
    assert data["figures"]["working"]["error"] > 0
    assert any("tokens" in line for line in capacity.summary())


def test_a_missing_model_or_gpu_is_said_not_guessed() -> None:
    draft = draft_of("--model-path nobody/knows", gpu="h100")
    r = Resolution(draft, facts_for(draft), {**catalogue().defaults, **draft.options}, None)
    assert try_predict(r) is None
    assert "nobody/knows" in r.scratch["capacity_missing"]
    plain = draft_of("--model-path Qwen/Qwen3-8B")
    r = Resolution(plain, facts_for(plain), {**catalogue().defaults, **plain.options}, None)
    assert try_predict(r) is None
    assert r.scratch["capacity_missing"]
