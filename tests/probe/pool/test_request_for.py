"""What a report asks the pool child to do, and what memory a check may take."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvtui.probe.pool import device_memory, plan_request
from kvtui.probe.pool.child import memory
from kvtui.probe.pool.child.memory import GIB, cgroup_headroom, cuda_budget, host_budget, host_most
from kvtui.probe.pool.plan_request import decode_offload, host_tier, ranks_on_host, request_for
from tests.support import judge


def test_a_plain_launch_asks_for_the_pool_alone() -> None:
    report = judge("--model-path Qwen/Qwen3-8B")
    request = request_for(report)
    assert report.pool is not None
    assert request.key == report.pool.key
    assert request.steps == ("build", "exercise", "sweep", "release")
    assert (request.host, request.offload, request.python) == (None, None, ())


def test_hicache_asks_for_its_host_tier() -> None:
    report = judge(
        "--model-path Qwen/Qwen3-8B --enable-hierarchical-cache --hicache-mem-layout page_first"
        " --hicache-io-backend kernel --hicache-ratio 3 --tp-size 4"
    )
    host = request_for(report).host
    assert host is not None
    assert (host.layout, host.io_backend, host.ratio, host.ranks) == ("page_first", "kernel", 3, 4)


def test_decode_offload_asks_for_host_tier_and_manager() -> None:
    report = judge(
        "--model-path Qwen/Qwen3-8B --disaggregation-mode decode --hicache-storage-backend file"
        " --disaggregation-decode-enable-offload-kvcache",
        env={"SGLANG_HICACHE_DECODE_OFFLOAD_STRIDE": "128"},
    )
    request = request_for(report, full=True, limit_bytes=5)
    assert request.offload is not None
    assert (request.offload.stride, request.offload.storage) == (128, "file")
    assert request.host is not None
    assert request.steps == ("build", "exercise", "sweep", "host", "offload", "release")
    assert (request.full, request.limit_bytes, request.time_limit_s) == (True, 5, 600.0)


def test_the_no_op_pool_has_neither_sweep_nor_host() -> None:
    report = judge(
        "--model-path Qwen/Qwen3-8B --is-embedding --prefill-only-disable-kv-cache"
        " --chunked-prefill-size -1 --disable-radix-cache --attention-backend fa3"
    )
    request = request_for(report)
    assert request.plan.class_name == "NoOpMHATokenToKVPool"
    assert request.steps == ("build", "exercise", "release")


def test_without_a_planned_pool_there_is_no_request() -> None:
    report: Any = SimpleNamespace(pool=None)
    with pytest.raises(ValueError, match="no pool is planned"):
        request_for(report)


def test_odd_values_fall_back() -> None:
    assert host_tier({"disaggregation_decode_retraction_backup": "host_pool"}) is not None
    assert host_tier({}) is None
    values = {"disaggregation_decode_enable_offload_kvcache": True}
    assert decode_offload(values, {"SGLANG_HICACHE_DECODE_OFFLOAD_STRIDE": "many"}).stride is None  # type: ignore[union-attr]
    assert ranks_on_host({"tp_size": 16, "pp_size": 2, "nnodes": 4}) == 8
    assert ranks_on_host({"tp_size": None, "nnodes": 0}) == 1


def test_the_engines_python_builds_where_ours_has_no_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(device_memory, "DEVICES", tmp_path)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0+cpu")
    engine = SimpleNamespace(command=("/engine/python",))
    monkeypatch.setattr("kvtui.probe.engine.discover.find_engine", lambda: engine)
    assert plan_request.default_python() == ("/engine/python",)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0")
    assert plan_request.default_python() == ()


class Driver:
    """As much of pynvml as is read."""

    def __init__(self, used: list[int]) -> None:
        self.used = used

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return "GPU-abc"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=self.used.pop(0) if len(self.used) > 1 else self.used[0])


def with_driver(driver: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(device_memory, "DEVICES", tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", driver)


def test_device_memory_that_comes_back_late_is_not_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_driver(Driver([100, 900, 500, 100]), tmp_path, monkeypatch)
    before = device_memory.used_bytes()
    assert before == {"abc": 100}
    assert asyncio.run(device_memory.left_over(before, "abc")) == 0


def test_device_memory_that_stays_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(Driver([100, 900]), tmp_path, monkeypatch)
    monkeypatch.setattr(device_memory, "SETTLE_S", 0.15)
    before = device_memory.used_bytes()
    assert asyncio.run(device_memory.left_over(before, "abc")) == 800
    assert asyncio.run(device_memory.left_over(before, "other")) is None


def test_a_driver_that_fails_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(object(), tmp_path, monkeypatch)
    assert device_memory.used_bytes() == {}
    monkeypatch.setattr(device_memory, "DEVICES", tmp_path / "none")
    assert device_memory.used_bytes() == {}


def cgroup(root: Path, proc: Path, line: str, files: dict[str, str]) -> int | None:
    (proc / "self").mkdir(parents=True, exist_ok=True)
    (proc / "self" / "cgroup").write_text(line + "\n")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return cgroup_headroom(proc, root)


def test_cgroup_v2_counts_page_cache_as_free(tmp_path: Path) -> None:
    room = cgroup(
        tmp_path / "fs", tmp_path / "proc", "0::/pod/box",
        {"pod/memory.max": "max", "pod/box/memory.max": "1000", "pod/box/memory.current": "700",
         "pod/box/memory.stat": "anon 300\nactive_file 150\ninactive_file 50"},
    )  # fmt: skip
    assert room == 500


def test_the_tightest_group_of_the_hierarchy_counts(tmp_path: Path) -> None:
    room = cgroup(
        tmp_path / "fs", tmp_path / "proc", "0::/pod/box",
        {"pod/memory.max": "400", "pod/memory.current": "350",
         "pod/box/memory.max": "1000", "pod/box/memory.current": "100"},
    )  # fmt: skip
    assert room == 50


def test_cgroup_v1_and_its_way_to_say_no_limit(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": "2000", "memory/memory.usage_in_bytes": "500",
             "memory/memory.stat": "total_inactive_file 100\ntotal_active_file 0"}  # fmt: skip
    line = "4:cpu,memory:/docker/abc"
    assert cgroup(tmp_path / "fs", tmp_path / "proc", line, files) == 1600
    files["memory/memory.limit_in_bytes"] = "9223372036854771712"
    assert cgroup(tmp_path / "fs", tmp_path / "proc", line, files) is None


def test_no_cgroups_are_no_limit(tmp_path: Path) -> None:
    assert cgroup_headroom(tmp_path, tmp_path) is None


def test_shares_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_host_bytes", lambda: 64 * GIB)
    assert host_budget(None, 0.25, full=False) == GIB // 4
    assert host_most(None, 0.25, full=False) == 2 * GIB
    assert host_budget(10 * GIB, 0.25, full=False) == host_most(10 * GIB, 0.25, False) == 10 * GIB
    assert host_budget(None, 0.25, full=True) == int(64 * GIB * 0.9)
    monkeypatch.setattr(memory, "available_host_bytes", lambda: GIB // 2)
    assert host_budget(None, 0.25, full=False) == GIB // 8
    assert host_budget(10 * GIB, 0.25, full=False) == GIB // 2
    assert cuda_budget(81 * GIB, None, 0.25, full=False) == 20 * GIB
    assert cuda_budget(81 * GIB, None, 0.25, full=True) == 80 * GIB
    assert cuda_budget(GIB // 2, None, 0.25, full=True) == 0
    assert cuda_budget(81 * GIB, 5 * GIB, 0.25, full=True) == 5 * GIB
