"""`scripts/accuracy.py`: reads boot logs, measures, writes its page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "accuracy.py"
LOGS = ROOT.parent / "shared" / "bootlogs" / "bootlogs.jsonl"

BOOT: dict[str, Any] = {
    "source": "a boot", "date": "2025-01-23", "version": None,
    "model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100", "gpu_mem_gib": 79.6,
    "num_gpus": 1, "argv": ["--mem-fraction-static", "0.88"], "load_weight_begin_avail": 78.81,
    "load_weight_end_avail": 63.72, "weight_mem_usage": None, "tokens": 444500,
    "max_running_requests": 2049, "context_len": 131072,
    "extra": {"bytes_per_token": {"k": 65536, "v": 65536}, "priced_cell_bytes": 131072,
              "formula": {"mem_fraction_static": 0.88, "fraction_source": "explicit"}},
    "note": "",
}  # fmt: skip
STRANGER = {**BOOT, "source": "another", "model": "nobody/knows"}
DEAD = {
    **BOOT, "source": "a death", "version": "0.5.23", "tokens": None, "max_running_requests": None,
    "argv": ["--mem-fraction-static", "0.15"], "note": "refused to boot", "extra": {"formula": {
        "mem_fraction_static": 0.15, "fraction_source": "explicit"}},
}  # fmt: skip


def run(logs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The script on a file of logs."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--logs", str(logs), *words],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    path = tmp_path / "logs.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in (BOOT, STRANGER, DEAD)) + "\n")
    return path


def test_three_boots(logs: Path, tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    done = run(logs, "--json", "--write", str(page))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    known, stranger, dead = data["boots"]
    assert abs(known["printed_error"]) < 0.001
    assert abs(known["own_error"]) < 0.01
    assert known["own_requests"] == 2049
    assert stranger["geometry"] == "log"
    assert abs(stranger["printed_error"]) < 0.001
    assert stranger["own_error"] is None
    assert dead["dies"] is True
    assert data["exact"]["bytes per token"] == {"right": 1, "of": 1}
    assert "## Misses, explained" in page.read_text()


def test_a_table_for_people(logs: Path) -> None:
    done = run(logs)
    assert done.returncode == 0
    assert "tokens from printed free memory" in done.stdout


@pytest.mark.skipif(not LOGS.is_file(), reason="no shared boot logs beside the repository")
def test_goals_on_public_boots() -> None:
    done = run(LOGS, "--json")
    assert done.returncode == 0, done.stdout[-2000:]
    data = json.loads(done.stdout)
    goals = [line for line in data["summary"] if line["target"]]
    assert len(goals) == 3
    assert all(line["met"] for line in goals)
    exact = data["exact"]
    assert exact["running requests"]["right"] == exact["running requests"]["of"]
    assert exact["deaths foreseen"]["right"] == exact["deaths foreseen"]["of"] > 0
