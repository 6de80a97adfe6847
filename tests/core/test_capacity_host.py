"""Host memory of HiCache: per rank, over all ranks, with the system's reserve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtui.core.capacity.host import HostNeed, allowed_bytes
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.facts import GIB, HostFacts
from tests.support import draft_of, facts_for

GB = 10**9


def report(argv: str, host: HostFacts | None = None, gpu: str = "h100") -> Report:
    """A launch on a machine with that much memory."""
    draft = draft_of(argv, gpu=gpu)
    return evaluate(draft, replace(facts_for(draft), host=host))


def need(argv: str, host: HostFacts | None = None, gpu: str = "h100") -> HostNeed:
    """What the launch asks of the host; fails where it asks nothing."""
    capacity = report(argv, host, gpu).capacity
    assert capacity is not None
    assert capacity.host is not None
    return capacity.host


def test_ten_gib_stay_with_the_system() -> None:
    host = HostFacts(64 * GB, int(44.87 * GB))
    assert allowed_bytes(host, 1) == pytest.approx(34.13 * GB, rel=1e-3)
    assert allowed_bytes(host, 4) == pytest.approx(34.13 * GB / 4, rel=1e-3)


def test_a_container_limit_counts() -> None:
    host = HostFacts(2000 * GB, 1900 * GB, cgroup_limit_bytes=200 * GB)
    assert allowed_bytes(host, 8) == pytest.approx((200 * GB - 10 * GIB) / 8)


def test_a_ratio_multiplies_the_device_pool_on_every_rank() -> None:
    one = need("--model-path Qwen/Qwen3-8B --enable-hierarchical-cache --hicache-ratio 2")
    capacity = report("--model-path Qwen/Qwen3-8B").capacity
    assert capacity is not None
    assert one.per_rank == pytest.approx(2 * capacity.kv_bytes, rel=0.01)
    four = need(
        "--model-path Qwen/Qwen3-8B --tp-size 4 --enable-hierarchical-cache --hicache-ratio 2"
    )
    assert four.ranks == 4
    assert four.total == four.per_rank * 4


def test_a_size_is_per_rank_and_index_copies_come_on_top() -> None:
    found = need(
        "--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8 --enable-hierarchical-cache"
        " --hicache-size 96 --kv-cache-dtype bfloat16", gpu="h200",
    )  # fmt: skip
    assert found.sized == pytest.approx(96 * GB, rel=1e-6)
    assert found.per_rank / found.sized == pytest.approx(1 + 132 / 1152, rel=0.01)


def test_the_automatic_size_shrinks_to_the_machine() -> None:
    host = HostFacts(128 * GB, 100 * GB)
    found = need("--model-path Qwen/Qwen3-8B --enable-hierarchical-cache", host)
    assert found.automatic
    assert found.per_rank == pytest.approx((100 * GB - 10 * GIB) * 0.8 * 0.95, rel=0.01)
    assert report("--model-path Qwen/Qwen3-8B --enable-hierarchical-cache", host).errors == ()


def test_a_retraction_pool_is_small() -> None:
    found = need("--model-path Qwen/Qwen3-8B --disaggregation-mode decode")
    assert 0.2 <= found.ratio < 0.5


def test_a_size_above_the_machine_stops_the_start() -> None:
    argv = "--model-path Qwen/Qwen3-8B --enable-hierarchical-cache --hicache-size"
    host = HostFacts(64 * GB, int(44.87 * GB))
    found = [f for f in report(f"{argv} 40", host).errors if f.rule == "KV962"]
    assert found
    assert "34.1 GB" in found[0].message
    assert report(f"{argv} 33", host).errors == ()
    fix = found[0].fixes[0]
    draft = draft_of(f"{argv} 40", gpu="h100").with_changes(fix.changes)
    again = evaluate(draft, replace(facts_for(draft), host=host))
    assert again.errors == ()


def test_ranks_share_the_machine() -> None:
    argv = "--model-path Qwen/Qwen3-8B --tp-size {} --enable-hierarchical-cache --hicache-size 80"
    host = HostFacts(600 * GB, 500 * GB)
    assert report(argv.format(4), host).errors == ()
    assert [f.rule for f in report(argv.format(8), host).errors] == ["KV962"]


def test_no_memory_at_all_for_an_automatic_size() -> None:
    host = HostFacts(16 * GB, 8 * GB)
    found = report("--model-path Qwen/Qwen3-8B --enable-hierarchical-cache", host)
    assert "KV963" in {f.rule for f in found.errors}


def test_an_unknown_machine_gets_a_warning_not_a_verdict() -> None:
    found = report("--model-path Qwen/Qwen3-8B --enable-hierarchical-cache --hicache-ratio 4")
    assert found.errors == ()
    assert "KV964" in {f.rule for f in found.warnings}
