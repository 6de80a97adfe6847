"""`kvtui check`: JSON of the contract, exit codes, batch mode, and stdout kept clean."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.core.facts import GpuFacts
from kvtui.probe import gpu as gpu_probe

QWEN = ["--model-path", "Qwen/Qwen3-8B"]
OFFLOAD = ["--disaggregation-mode", "decode", "--disaggregation-decode-enable-offload-kvcache",
           "--hicache-storage-backend", "file"]  # fmt: skip


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    """(exit code, JSON answer, stderr) of one check."""
    code = main(["check", "--json", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_a_launch_that_starts(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer, err = check(capsys, "--gpu", "h100", "--", *QWEN)
    assert code == 0
    assert err == ""
    assert answer["schema"] == 1
    assert answer["verdict"] == "starts"
    assert answer["engine_version"] == "0.5.23"
    effective = answer["effective"]
    assert effective["prefill_attention_backend"] == "fa3"
    assert effective["decode_attention_backend"] == "fa3"
    assert effective["page_size"] == 1
    assert effective["chunked_prefill_size"] == 8192
    assert effective["cuda_graph_max_bs_decode"] == 256
    pool = answer["pool"]
    assert pool["class"] == "MHATokenToKVPool"
    assert pool["bytes_per_token"] == 147456
    assert pool["decode_offload"] is True
    assert answer["capacity"]["max_total_num_tokens"] > 100_000
    assert answer["checked"] == {"rules": True, "pool": None, "engine": None}
    assert answer["command"] == ["sglang", "serve", *QWEN]


def test_a_launch_that_fails_names_rule_option_and_fix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--gpu", "h100", "--", "--model-path", "openai/gpt-oss-20b", *OFFLOAD]
    code, answer, _ = check(capsys, *words)
    assert code == 1
    assert answer["verdict"] == "fails"
    (error,) = [f for f in answer["findings"] if f["severity"] == "error"]
    assert error["stage"] == "offload"
    assert error["option"] == "--disaggregation-decode-enable-offload-kvcache"
    assert "SWAKVPool" in error["message"]
    assert error["fix"]


def test_a_silent_rewrite_is_a_warning_with_both_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--gpu", "h100", "--", *QWEN, "--attention-backend", "fa3"]
    code, answer, _ = check(capsys, *words, "--kv-cache-dtype", "fp8_e5m2")
    assert code == 0
    (warning,) = [f for f in answer["findings"] if f["option"] == "--attention-backend"]
    assert warning["severity"] == "warning"
    assert "fa3" in warning["message"]
    assert "triton" in warning["message"]
    assert answer["effective"]["prefill_attention_backend"] == "triton"


def test_no_gpu_is_unknown_with_a_way_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = gpu_probe.LocalGpus((), "no NVIDIA driver on this machine")
    monkeypatch.setattr(gpu_probe, "read_gpus", lambda: empty)
    code, answer, _ = check(capsys, "--", *QWEN)
    assert code == 3
    assert answer["verdict"] == "unknown"
    assert any("--gpu" in reason for reason in answer["unknown"])


def test_the_local_gpu_is_taken_where_none_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = GpuFacts("l4", "NVIDIA L4", "nvidia", (8, 9), 23034, free_mib=22000, local=True)
    monkeypatch.setattr(gpu_probe, "read_gpus", lambda: gpu_probe.LocalGpus((gpu,)))
    code, answer, _ = check(capsys, "--", *QWEN)
    assert answer["effective"]["prefill_attention_backend"] == "flashinfer"
    assert code in (0, 1)


def test_an_unknown_model_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer, _ = check(capsys, "--gpu", "h100", "--", "--model-path", "who/knows")
    assert code == 3
    assert answer["verdict"] == "unknown"
    assert "who/knows" in answer["unknown"][0]


def test_an_unknown_architecture_is_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = {"architectures": ["NeverHeardOfForCausalLM"], "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, answer, _ = check(capsys, "--gpu", "h100", "--", "--model-path", str(tmp_path))
    assert answer["verdict"] == "unknown", answer["findings"]
    assert code == 3
    assert "NeverHeardOfForCausalLM" in " ".join(answer["unknown"])


def test_require_pool_without_a_pool_is_not_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--gpu", "h100", "--require", "engine", "--engine", "off", "--", *QWEN]
    code, answer, _ = check(capsys, *words)
    assert answer["verdict"] == "starts"
    assert code == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["check"], "no launch was given"),
        (["check", "--gpu", "h9000", "--", *QWEN], "not in the catalogue"),
        (["check", "--nonsense", "--", *QWEN], "unrecognized arguments"),
        (["check", "no-such-preset"], "no such preset"),
        (["check", "a", "--", *QWEN], "both a preset"),
        (["check", "--env", "A", "--", *QWEN], "NAME=VALUE"),
        (["check", "--gpu-count", "0", "--", *QWEN], "1 to 4096"),
        (["check", "--batch", "/nowhere.jsonl"], "no such file"),
        (["check", "--pool-limit", "much", "--pool", "--gpu", "h100", "--", *QWEN], "8G"),
        (["fit", "--requests", "0", "--context", "1", "--", *QWEN], "above zero"),
        (["matrix", "--page-sizes", "x", "--gpu", "h100", "--", *QWEN], "comma-separated"),
        (["rules", "KV999999"], "no rule"),
        (["options", "zzzzzz"], "no option like"),
        (["preset", "what"], "no such action"),
        (["engine", "what"], "no such question"),
        (["import", "/nowhere"], "no such file"),
        (["compare", "a", "b"], "no such preset"),
    ],
)
def test_unusable_input_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kvtui: ")
    assert text in err
    assert len(err.strip().splitlines()) == 1


def test_batch_echoes_ids_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"id": "a", "argv": QWEN, "gpu": "h100", "tokens": 4096},
        {"id": "b", "argv": [*QWEN, "--kv-cache-dtype", "no"], "gpu": "h100"},
        "not json",
        {"id": "c", "argv": "text"},
        {"id": "d", "argv": QWEN, "gpu": "h100", "colour": "red"},
    ]
    text = "\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    code = main(["check", "--batch", "-", "--json"])
    out, err = capsys.readouterr()
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 2
    assert [a["id"] for a in answers[:2]] == ["a", "b"]
    assert [a["verdict"] for a in answers] == ["starts", "fails", "unknown", "unknown", "unknown"]
    shapes = {tuple(b["shape"]) for b in answers[0]["pool"]["buffers"]}
    assert shapes == {(4097, 8, 128)}
    assert len(err.splitlines()) == 3
    assert "line 3: not JSON" in err
    assert "line 5: unknown key 'colour'" in err


def test_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--gpu", "h100", "--", *QWEN]) == 0
    out = capsys.readouterr().out
    assert out.startswith("✓ STARTS by rules · pool not run · engine not asked\n")
    assert "MHATokenToKVPool" in out


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m kvtui rules | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("ADV001")


def test_check_with_the_pool_built_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--gpu", "h100", "--pool", "--pool-limit", "64M", "--require", "pool", "--", *QWEN]
    code, answer, err = check(capsys, *words)
    assert code == 0, err
    assert answer["checked"]["pool"]["ok"] is True


def test_secrets_stay_out_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--gpu", "h100", "--", *QWEN, "--api-key", "s3cret", "--admin-api-key", "s3cret"]
    code, answer, _ = check(capsys, *words)
    assert code == 0
    assert "s3cret" not in json.dumps(answer)
    assert answer["effective"]["api_key"] == "***"
    assert answer["command"][-4:] == ["--api-key", "${SGLANG_API_KEY}", "--admin-api-key",
                                      "${SGLANG_ADMIN_API_KEY}"]  # fmt: skip
