"""Decode KV offload: its three gates, its stride, and its store's configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.core.evaluate import evaluate
from kvtui.core.findings import Outcome, Stage
from kvtui.core.steps.pd_offload import STRIDE, offload_stride
from tests.support import facts_for, judge

OFFLOAD = "--model-path Qwen/Qwen3-8B --disaggregation-decode-enable-offload-kvcache"
HICACHE = "--model-path Qwen/Qwen3-8B --enable-hierarchical-cache --hicache-storage-backend file"
GOOD = f"{OFFLOAD} --disaggregation-mode decode --hicache-storage-backend file"


@given(st.integers(1, 512), st.one_of(st.none(), st.integers(1, 1 << 20)))
def test_the_stride_is_whole_pages_and_one_at_least(page: int, asked: int | None) -> None:
    stride = offload_stride(page, asked)
    assert stride % page == 0
    assert stride >= page
    if asked is not None:
        assert stride <= max(page, asked) < stride + page


def test_a_decode_server_with_a_store_starts() -> None:
    report = judge(GOOD)
    assert report.outcome is Outcome.STARTS
    assert any("every 1 generated tokens" in f.message for f in report.findings)


def test_role_store_and_retraction_are_told_at_once() -> None:
    report = judge(f"{OFFLOAD} --disaggregation-decode-retraction-backup host_pool")
    assert {f.rule for f in report.errors} >= {"KV520", "KV521", "KV522", "KV350"}


@pytest.mark.parametrize("mode", ["null", "prefill"])
def test_every_fix_of_a_wrong_role_leads_to_a_start(mode: str) -> None:
    report = judge(f"{OFFLOAD} --hicache-storage-backend file --disaggregation-mode {mode}")
    (finding,) = report.errors
    assert finding.rule == "KV520"
    for fix in finding.fixes:
        draft = report.draft.with_changes(fix.changes)
        assert evaluate(draft, facts_for(draft)).outcome is Outcome.STARTS, fix.title


def test_a_host_receive_threshold_counts_as_host_pool_retraction() -> None:
    report = judge(f"{GOOD} --disaggregation-decode-host-receive-threshold 0.5")
    finding = next(f for f in report.errors if f.rule == "KV522")
    assert "0.5" in finding.message
    options = {change.option for change in finding.fixes[0].changes}
    assert "disaggregation_decode_host_receive_threshold" in options


@pytest.mark.parametrize(
    ("page", "asked", "runs"),
    [(64, "100", 64), (64, "128", None), (64, "10", 64), (16, "100", 96), (64, "-5", 64),
     (64, "many", 64)],
)  # fmt: skip
def test_a_cut_stride_is_told_with_both_numbers(page: int, asked: str, runs: int | None) -> None:
    report = judge(f"{GOOD} --page-size {page}", env={STRIDE: asked})
    told = [f for f in report.findings if f.rule == "KV523"]
    if runs is None:
        assert told == []
        return
    assert asked in told[0].message
    assert f"every {runs} tokens" in told[0].message


@pytest.mark.parametrize("text", ["@store.toml", "{bad", "[1]"])
def test_decode_offload_takes_json_text_only(text: str) -> None:
    report = judge([*GOOD.split(), "--hicache-storage-backend-extra-config", text])
    (finding,) = (f for f in report.errors if f.rule == "KV525")
    assert finding.stage is Stage.OFFLOAD


def test_hicache_reads_configuration_files() -> None:
    launch = [
        *HICACHE.split(),
        "--hicache-storage-backend-extra-config",
    ]
    assert judge([*launch, "@store.toml"]).errors == ()
    assert {f.rule for f in judge([*launch, "@store.ini"]).errors} == {"KV640"}
