"""KV sharding: what it takes, and what it sets."""

from __future__ import annotations

import pytest

from kvtui.core.graphs import DISABLED
from kvtui.core.steps.kv_shard_features import FEATURES
from tests.support import judge

MLA = (
    "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --enable-kv-cache-sharding "
    "--disaggregation-mode prefill --page-size 64 --attention-backend fa3"
)
GQA = (
    "--model-path Qwen/Qwen3-8B --tp-size 4 --enable-kv-cache-sharding "
    "--disaggregation-mode prefill --page-size 64 --attention-backend fa3 --enable-prefill-cp "
    "--attn-cp-size 4 --cp-strategy zigzag"
)


@pytest.mark.parametrize("launch", [MLA, GQA])
def test_a_prefill_server_starts_and_captures_no_prefill(launch: str) -> None:
    report = judge(launch, "h200")
    assert report.errors == ()
    assert report.plan.values["cuda_graph_config"].prefill.backend == DISABLED


@pytest.mark.parametrize(("asked", "runs"), [(1000, 1024), (8192, 8192), (63, 64)])
def test_chunks_end_on_pages(asked: int, runs: int) -> None:
    report = judge(f"{MLA} --chunked-prefill-size {asked}", "h200")
    assert report.plan.values["chunked_prefill_size"] == runs


def test_a_longer_chunk_takes_memory() -> None:
    plain = judge(f"{MLA} --chunked-prefill-size 8192", "h200").plan.values["mem_fraction_static"]
    longer = judge(f"{MLA} --chunked-prefill-size 8191", "h200").plan.values["mem_fraction_static"]
    assert plain - longer == pytest.approx(1.5 / 143771)
    kept = judge(f"{MLA} --chunked-prefill-size 8191 --mem-fraction-static 0.7", "h200")
    assert kept.plan.values["mem_fraction_static"] == 0.7


@pytest.mark.parametrize(
    "flag", ["--enable-lmcache", "--enable-flexkv", "--enable-two-batch-overlap",
             "--enable-streaming-session", "--enable-session-radix-cache"]
)  # fmt: skip
def test_whole_page_features_are_refused(flag: str) -> None:
    report = judge(f"{MLA} {flag}", "h200")
    option = flag.removeprefix("--").replace("-", "_")
    assert option in {f.option for f in report.errors if f.rule == "KV380"}
    assert option in {feature[1] for feature in FEATURES}


def test_plain_ranks_are_needed() -> None:
    dp = judge(MLA.replace("--tp-size 8", "--tp-size 8 --attn-dp-size 8"), "h200")
    assert "KV374" in {f.rule for f in dp.errors}
    alone = judge(MLA.replace("--tp-size 8", "--tp-size 1"), "h200")
    assert "KV374" in {f.rule for f in alone.errors}
