"""The other words, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtui import __version__
from kvtui.cli import WORDS, main
from kvtui.core.findings import Outcome
from kvtui.core.matrix import build_matrix
from tests.support import draft_of, facts_for

QWEN = ["--model-path", "Qwen/Qwen3-8B"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_help_names_every_word(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for word in WORDS:
        assert f"  {word.name}" in out
    assert run(capsys, "--version")[1] == f"kvtui {__version__}\n"


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_every_word_has_help_with_a_usage_line(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([word, "--help"])
    except SystemExit as end:
        code = int(end.code or 0)
    out = capsys.readouterr().out
    assert code == 0
    assert f"usage: kvtui {word}" in out
    assert "kvtui_" not in out


def test_the_screen_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--", *QWEN)
    assert code == 2
    assert out == ""
    assert "needs a terminal" in err


def test_matrix_in_all_forms(capsys: pytest.CaptureFixture[str]) -> None:
    base = ["matrix", "--gpu", "h200"]
    code, out, _ = run(capsys, *base, "--", *QWEN)
    assert code == 0
    assert {"auto", "bfloat16", "fp8_e4m3", "nvfp4"} <= set(out.splitlines()[1].split())
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert "✓" in rows["fa3"]
    assert "✗" in rows["fa3"]
    _, markdown, _ = run(capsys, *base, "--markdown", "--", *QWEN)
    assert markdown.startswith("| backend | auto |")
    _, text, _ = run(capsys, *base, "--json", "--page-sizes", "auto,64", "--", *QWEN)
    cells = json.loads(text)
    assert {cell["page_size"] for cell in cells} == {None, 64}
    fa3 = next(c for c in cells if c["attention_backend"] == "fa3"
               and c["kv_cache_dtype"] == "fp8_e5m2" and c["page_size"] is None)  # fmt: skip
    assert fa3["verdict"] == "starts"
    assert fa3["effective"]["prefill_attention_backend"] == "triton"


def test_a_matrix_cell_can_be_taken() -> None:
    draft = draft_of(QWEN, gpu="h200")
    facts = facts_for(draft)
    matrix = build_matrix(draft, facts)
    cell = matrix.cells["triton", "fp8_e5m2"]
    assert cell.outcome is Outcome.STARTS
    taken = draft.with_changes(cell.changes)
    assert taken.options["attention_backend"] == "triton"
    assert taken.options["kv_cache_dtype"] == "fp8_e5m2"


def test_fit_finds_judged_changes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "--gpu", "h100", "--requests", "24", "--context", "32768", "--json"]
    code, out, _ = run(capsys, *words, "--", *QWEN, "--tp-size", "1")
    found = json.loads(out)
    assert found["now"] < 24
    assert code == 0
    assert found["options"]
    for option in found["options"]:
        assert option["reaches"]
        assert option["requests"] >= 24
        argv = option["command"][2:]
        assert main(["check", "--gpu", "h100", "--", *argv]) == 0
    capsys.readouterr()


def test_fit_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "--gpu", "h200", "--requests", "2", "--context", "4096", "--", *QWEN]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert out.startswith("✓ 2 requests")


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("Unsupported KV cache type for decode offload",
         "--disaggregation-decode-enable-offload-kvcache"),
        ("ValueError: --prefill-only-disable-kv-cache expected NoOpMHATokenToKVPool but the "
         "runtime pool is MHATokenToKVPool", "--prefill-only-disable-kv-cache"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
         "--mem-fraction-static"),
    ],
)  # fmt: skip
def test_explain_the_three_that_this_exists_for(
    text: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "explain", text)
    assert code == 0
    assert option in out
    assert "change:" in out


def test_explain_a_log_with_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "boot.log"
    log.write_bytes(
        b"[2026-10-31 10:00:00 TP0] Load weight begin. avail mem=78.50 GB\n\xff\xfe garbage\n"
        b'Traceback (most recent call last):\n  File "x.py", line 1\n'
        b"ValueError: Unsupported KV cache type for decode offload\n"
    )
    code, out, _ = run(capsys, "explain", str(log))
    assert code == 0
    assert "died after" in out
    assert "decode offload" in out.lower()


def test_explain_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "explain", "a fine day in the hills")
    assert code == 1
    assert "nothing in there" in err


def test_preset_round_trip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "mine.toml")
    save = ["preset", "save", path, "--gpu", "h200", "--title", "Mine", "--", *QWEN]
    assert run(capsys, *save, "--api-key", "s3cret")[0] == 0
    text = Path(path).read_text()
    assert "s3cret" not in text
    assert "[proof]" in text
    assert run(capsys, *save)[0] == 2, "a file is not replaced unasked"
    assert run(capsys, "preset", "show", path)[0] == 0
    assert run(capsys, "preset", "verify", path)[0] == 0
    code, share, _ = run(capsys, "preset", "share", path)
    assert code == 0
    code, out, _ = run(capsys, "preset", "import", share.strip())
    assert code == 0
    assert "STARTS" in out
    Path(path).write_text(text.replace("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"))
    assert "proof is stale" in run(capsys, "preset", "verify", path)[1]
    other = str(tmp_path / "other.toml")
    assert run(capsys, *[w.replace(path, other) for w in save], "--tp-size", "2")[0] == 0
    code, out, _ = run(capsys, "preset", "diff", path, other)
    assert code == 1
    assert "+tp_size = 2" in out
    code, out, _ = run(capsys, "compare", path, other)
    assert code == 0
    assert "--tp-size" in out


def test_shipped_presets_start_for_their_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "preset", "verify", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) >= 6
    assert {row["name"]: row["text"] for row in rows if row["verdict"] != "starts"} == {}
    assert code == 0


def test_export_writes_a_script_and_refuses_a_launch_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "serve.sh"
    words = ["export", "--gpu", "h100", "--format", "bash", "-o", str(path)]
    assert run(capsys, *words, "--", *QWEN)[0] == 0
    assert path.stat().st_mode & 0o111
    assert "Not checked: the pool was not built" in path.read_text()
    assert run(capsys, *words, "--", *QWEN)[0] == 2
    bad = ["--", *QWEN, "--enable-hierarchical-cache", "--disable-radix-cache"]
    code, out, err = run(capsys, "export", "--gpu", "h100", *bad)
    assert code == 1
    assert out == ""
    assert "nothing was written" in err
    code, out, _ = run(capsys, "export", "--gpu", "h100", "--force", *bad)
    assert "--disable-radix-cache" in out


def test_import_a_script_with_a_blank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.sh"
    path.write_text('#!/bin/sh\npython3 -m sglang.launch_server --model-path "$MODEL_PATH" \\\n'
                    "  --tp 2\n")  # fmt: skip
    code, out, _ = run(capsys, "import", str(path), "--gpu", "h100", "--json")
    (row,) = json.loads(out)
    assert row["blanks"] == [{"option": "model_path", "text": "${MODEL_PATH}"}]
    code, out, _ = run(capsys, "import", str(path), "--gpu", "h100", "--set",
                       "MODEL_PATH=Qwen/Qwen3-8B", "--json")  # fmt: skip
    (row,) = json.loads(out)
    assert code == 0
    assert row["command"][2:4] == QWEN
    assert row["verdict"] == "starts"


def test_catalogues(capsys: pytest.CaptureFixture[str]) -> None:
    assert "rtx4090" in run(capsys, "gpus", "4090")[1]
    assert len(json.loads(run(capsys, "gpus", "--json")[1])) >= 20
    assert len(json.loads(run(capsys, "models", "--json")[1])) >= 40
    assert "--kv-cache-dtype" in run(capsys, "options", "kv-cache-dtype")[1]
    rules = json.loads(run(capsys, "rules", "--json")[1])
    assert len(rules) > 100
    page = run(capsys, "rules", rules[0]["id"].lower())[1]
    assert page.startswith(rules[0]["id"])


def test_doctor_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    assert code == 0
    names = {line["name"] for line in json.loads(out)}
    assert {"kvtui", "host", "torch", "SGLang", "models", "terminal", "presets"} <= names


def test_completion_for_each_shell(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = run(capsys, "completion", shell)
        assert code == 0
        assert "kv-cache-dtype" in out
        assert "check" in out
