"""The GPU check script: its cases, its table, and what it says without a device."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvtui.probe.pool.protocol import PoolOutcome

ROOT = Path(__file__).resolve().parents[3]
CLASSES = {
    "MHATokenToKVPool", "MHATokenToKVPoolMXFP8", "MLATokenToKVPool", "MLATokenToKVPoolFP4",
    "DSATokenToKVPool", "SWAKVPool", "HybridLinearKVPool", "MiniMaxSparseKVPool",
    "DeepSeekV4TokenToKVPool", "UnifiedHybridLinearKVPool", "UnifiedSWAKVPool",
    "NoOpMHATokenToKVPool",
}  # fmt: skip


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "scripts" / "gpu_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = ModuleType("gpu_check")
    module.__spec__ = spec
    import sys

    sys.modules["gpu_check"] = module
    module.__file__ = spec.origin
    spec.loader.exec_module(module)
    return module


def test_every_pool_class_has_a_case(script: Any) -> None:
    assert {script.plan_of(case).class_name for case in script.CASES} == CLASSES


def outcome(case: Any, script: Any, ok: bool = True) -> PoolOutcome:
    steps = [
        {"step": "build", "seconds": 2.0,
         "figures": {"allocated_bytes": 100 << 30, "seconds": 1.5}},
        {"step": "exercise", "seconds": 0.8, "figures": {"bytes_compared": 5 << 20}},
        {"step": "host", "figures": {
            "round_trips": [{"out_gb_s": 40.0, "in_gb_s": 50.0}],
            "plain_copy": {"out_gb_s": 55.0, "in_gb_s": 56.0},
        }},
        {"step": "release", "figures": {"left_over_bytes": 0}},
    ]  # fmt: skip
    report = {"steps": steps, "device_left_over_bytes": 0, "wall_seconds": 9.0,
              "device": {"name": "Test GPU", "torch": "2", "total_bytes": 139 << 30},
              "free_bytes": 138 << 30}  # fmt: skip
    error = None if ok else "out of memory: no"
    return PoolOutcome(script.plan_of(case).key, ok, report, error, "" if ok else "oom")


def test_rows_say_what_was_measured(script: Any) -> None:
    case = script.CASES[1]
    row = script.row_of(case, script.plan_of(case), outcome(case, script))
    assert (row["allocated_gib"], row["build_s"], row["compared_mib"]) == (100.0, 1.5, 5)
    assert (row["layout"], row["out_gb_s"]) == ("page_first/kernel", 40.0)
    text = script.table([script.cells(row)])
    assert "55.0/56.0" in text
    assert "0/0" in text
    assert "passed" in text
    bad = script.row_of(case, script.plan_of(case), outcome(case, script, ok=False))
    assert script.cells(bad)[-1] == "failed: out of memory: no"


def test_large_cases_get_the_planned_size_where_it_fits(script: Any) -> None:
    args = script.argparse.Namespace(device="cuda", python="python", small=False)
    whole = next(case for case in script.CASES if case.whole)
    planned = script.plan_of(whole).nbytes
    assert script.request_of(whole, args, planned * 2).full is True
    squeezed = script.request_of(whole, args, planned // 2)
    assert squeezed.full is False
    assert squeezed.limit_bytes == int(planned // 2 * 0.9)
    small = script.request_of(script.CASES[0], args, planned * 2)
    assert small.limit_bytes == script.SMALL_BYTES


def test_the_page_and_its_json(script: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(script, "run_check", lambda *_: outcome(script.CASES[0], script))
    assert script.main(["--docs", str(tmp_path), "--only", "no-op"]) == 0
    data = json.loads((tmp_path / "gpu-check.json").read_text())
    assert data["device"]["name"] == "Test GPU"
    assert [row["class"] for row in data["rows"]] == ["NoOpMHATokenToKVPool"]
    text = (tmp_path / "gpu-check.md").read_text()
    assert "device: Test GPU, 139.0 GiB" in text
    assert "1 of 1 pools passed" in text


def test_a_failed_pool_fails_the_command(script: Any, tmp_path: Path, monkeypatch: Any) -> None:
    answers = iter([True, False])
    monkeypatch.setattr(
        script, "run_check", lambda *_: outcome(script.CASES[0], script, next(answers))
    )
    assert script.main(["--docs", str(tmp_path), "--only", "no-op"]) == 1


@pytest.mark.parametrize(("present", "code"), [(False, 0), (True, 1)])
def test_without_a_usable_device_nothing_is_written(
    script: Any, tmp_path: Path, monkeypatch: Any, capsys: Any, present: bool, code: int
) -> None:
    lost = PoolOutcome("k", False, {}, "cuda: torch finds no CUDA device", "device")
    monkeypatch.setattr(script, "run_check", lambda *_: lost)
    monkeypatch.setattr(script, "has_nvidia_device", lambda: present)
    assert script.main(["--docs", str(tmp_path / "docs")]) == code
    assert capsys.readouterr().out == (
        "gpu-check: cuda: torch finds no CUDA device; nothing was checked and nothing written\n"
    )
    assert not (tmp_path / "docs").exists()
