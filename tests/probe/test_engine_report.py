"""The command line with a fake engine: a difference from the rules is saved, agreement is not."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from kvtui.cli import main
from kvtui.exit_codes import ExitCode

FAKE = Path(__file__).parent / "fake_engine"
ENGINE = shlex.join(["env", f"PYTHONPATH={FAKE}", sys.executable])
SECRET = "sk-not-for-files"


def check(report: Path, *words: str, more: tuple[str, ...] = ()) -> int:
    """`kvtui check` of a launch with the fake engine."""
    return int(
        main(
            ["check", "--gpu", "h100", "--engine", ENGINE, "--report", str(report), *more, "--",
             "--model-path", "Qwen/Qwen3-8B", *words]
        )
    )  # fmt: skip


def test_a_difference_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my reports" / "difference.json"
    # The fake takes --mode, which no SGLang has.
    assert check(path, "--mode", "any", "--api-key", SECRET) == ExitCode.STARTS
    assert "rules and engine differ" in capsys.readouterr().err
    text = path.read_text(encoding="utf-8")
    assert SECRET not in text
    data = json.loads(text)
    assert data["argv"][-2:] == ["--mode", "any"]
    assert data["rules"]["findings"][0]["stage"] == "parse"
    assert (data["engine"]["version"], data["engine"]["accepted"]) == ("9.9.9", True)
    assert data["config"]["Qwen/Qwen3-8B"]["model_type"] == "qwen3"


def test_agreement_is_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "difference.json"
    assert check(path, "--kv-cache-dtype", "fp8_e5m2") == ExitCode.STARTS
    assert "agree" in capsys.readouterr().err
    assert not path.exists()


def test_without_an_engine_nothing_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "difference.json"
    main(["check", "--gpu", "h100", "--report", str(path), "--", "--model-path", "Qwen/Qwen3-8B"])
    assert "can't be compared" in capsys.readouterr().err
    assert not path.exists()
