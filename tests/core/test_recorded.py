"""The rules against what a released engine answered: recorded launches of our own.

`tests/core/recorded/*.jsonl` holds one launch a line with the engine's answer; it is written by
`scripts/record.py` from an installed SGLang. Models are the catalogue's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvtui.core.evaluate import Report
from kvtui.core.render import effective
from tests.support import judge

FOLDER = Path(__file__).parent / "recorded"
CASES = [
    (f"{path.stem}-{number}", json.loads(line))
    for path in sorted(FOLDER.glob("*.jsonl"))
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    if line.strip()
]
NAMES = {"graph_decode_max_bs": "cuda_graph_max_bs_decode"}
"""Names of the record that differ from ours."""


def report_of(case: dict[str, Any]) -> Report:
    """Our report on a recorded launch."""
    argv = ["--model-path", case["model"], *case["argv"]]
    return judge(argv, case["gpu"], env=case.get("env"))


@pytest.mark.parametrize("case", [c for _, c in CASES], ids=[name for name, _ in CASES])
def test_verdict_and_values(case: dict[str, Any]) -> None:
    report = report_of(case)
    early = [f for f in report.errors if not f.stage.is_late]
    mine = "fails" if early else "starts"
    assert not report.unknowns, report.unknowns
    assert mine == case["verdict"], [f"{f.rule} {f.message}" for f in report.findings]
    values = effective(report)
    for name, value in (case.get("resolved") or {}).items():
        if name == "backends":
            assert list(report.plan.backends) == value
            continue
        got = values.get(NAMES.get(name, name), report.plan.values.get(name))
        if isinstance(value, float):
            assert got == pytest.approx(value, abs=0.0011), name
        else:
            assert got == value, name
