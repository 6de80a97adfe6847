"""The engine probe against a real SGLang: KVTUI_ENGINE names its Python (`make engine-test`).

No GPU is needed: GPUs are claimed. All questions of one claim are asked of one warm probe.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find
from kvtui.core.options import NEWEST, stored_versions
from kvtui.probe.engine.client import ask_once
from kvtui.probe.engine.discover import EnginePython, find_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.xdist_group("engine")]

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "core" / "recorded"
SECRET = "sk-very-secret-0123"
SAMPLE = 30
NAMES = {"graph_decode_max_bs": "cuda_graph_max_bs_decode"}

POOLS = {
    "dense": ("Qwen/Qwen3-8B", "", "MHATokenToKVPool", True),
    "latent": ("deepseek-ai/DeepSeek-V3", "--tp-size 8", "MLATokenToKVPool", True),
    "window": ("openai/gpt-oss-20b", "", "SWAKVPool", False),
    "state": ("Qwen/Qwen3.5-27B", "", "HybridLinearKVPool", False),
}
"""Model, words, pool class, and whether decode offload takes it."""


def wanted() -> EnginePython:
    """The engine to ask; skips where none is named."""
    named = os.environ.get("KVTUI_ENGINE")
    if not named:
        pytest.skip("KVTUI_ENGINE names no Python with SGLang")
    found = find_engine(named)
    assert found is not None
    return found


def question(ask: str, model: str, words: str = "", **more: Any) -> dict[str, Any]:
    """A question about a catalogue model; its files travel along."""
    checkpoint = find(model)
    assert checkpoint is not None, model
    files: dict[str, Any] = {"config.json": dict(checkpoint.config)}
    if checkpoint.quant_config:
        files["hf_quant_config.json"] = dict(checkpoint.quant_config)
    return {"ask": ask, "argv": ["--model-path", model, *words.split()], "files": {model: files},
            **more}  # fmt: skip


def recorded_cases(gpu: str) -> list[dict[str, Any]]:
    """A drawn sample of the recorded launches for one GPU."""
    rows = [
        json.loads(line)
        for path in sorted(RECORDED.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    rows = [row for row in rows if row["gpu"] == gpu and row.get("ask", "resolve") == "resolve"]
    return random.Random(gpu).sample(rows, min(SAMPLE, len(rows)))


def questions_for(gpu: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that is asked with one claimed GPU, by a name of our own."""
    yield "hello", {"ask": "hello"}
    yield "schema", {"ask": "schema"}
    yield "plain", question("resolve", "Qwen/Qwen3-8B")
    yield "secret", question(
        "resolve", "Qwen/Qwen3-8B", f"--api-key {SECRET} --admin-api-key {SECRET}-admin"
    )  # fmt: skip
    yield "parse", question("resolve", "Qwen/Qwen3-8B", "--kv-cache-dtype nonsense")
    yield "refused", question("resolve", "Qwen/Qwen3-8B", "--attention-backend trtllm_mla")
    yield "here", {"ask": "resolve", "argv": ["--model-path", "/nonexistent/model"]}
    for name, (model, words, _, _) in POOLS.items():
        yield name, question("pool", model, words, tokens=8192, budget_bytes=[10 << 30])
    yield "offload", question(
        "pool", "openai/gpt-oss-20b",
        "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache "
        "--hicache-storage-backend file", tokens=8192,
    )  # fmt: skip
    for number, case in enumerate(recorded_cases(gpu)):
        more = {"env": case["env"]} if case.get("env") else {}
        asked = question("resolve", case["model"], **more)
        yield f"case-{number}", {**asked, "argv": [*asked["argv"], *case["argv"]]}


@cache
def answers(gpu: str) -> Mapping[str, dict[str, Any]]:
    """All answers of one claimed GPU, asked once."""
    engine, found = wanted(), find_gpu(gpu)
    assert found is not None
    claim = {"name": found.name, "capability": list(found.capability),
             "memory_mib": found.memory_mib}  # fmt: skip
    named = dict(questions_for(gpu))
    return dict(zip(named, ask_once(engine, list(named.values()), claim=claim, limit_s=180),
                    strict=True))  # fmt: skip


@pytest.fixture(params=["h100", "b200", "rtx4090"])
def gpu(request: pytest.FixtureRequest) -> str:
    """A claimed GPU."""
    wanted()
    return str(request.param)


def test_hello(gpu: str) -> None:
    hello, claimed = answers(gpu)["hello"], find_gpu(gpu)
    assert claimed is not None
    assert hello["version"].count(".") >= 2
    assert hello["torch"]
    assert hello["gpus"][0] == {
        "name": claimed.name,
        "capability": list(claimed.capability),
        "memory_mib": claimed.memory_mib,
    }
    assert hello["backends"]["triton"] is True


def test_schema_is_the_stored_table(gpu: str) -> None:
    schema = answers(gpu)["schema"]
    version = schema["engine_version"]
    if version not in stored_versions():
        pytest.skip(f"no table of {version} is stored")
    path = ROOT / "src" / "kvtui" / "core" / "tables" / f"options-{version}.json"
    assert schema["options"] == json.loads(path.read_text(encoding="utf-8"))["options"]


def test_accepted_with_all_values(gpu: str) -> None:
    answer = answers(gpu)["plain"]
    assert answer["accepted"] is True, answer
    values = answer["resolved"]
    assert values["kv_cache_dtype"] == "auto"
    assert None not in values["backends"]
    assert 0.3 < values["mem_fraction_static"] < 1
    assert values["cuda_graph_max_bs_decode"] > 0
    assert len(values) > 300


def test_claims_decide() -> None:
    wanted()
    backends = {gpu: answers(gpu)["plain"]["resolved"]["backends"] for gpu in ("h100", "b200")}
    assert backends == {"h100": ["fa3", "fa3"], "b200": ["trtllm_mha", "trtllm_mha"]}


def test_secrets_stay_there(gpu: str) -> None:
    answer = answers(gpu)["secret"]
    assert answer["accepted"] is True
    assert SECRET not in json.dumps(answer)


def test_refusals(gpu: str) -> None:
    parse = answers(gpu)["parse"]
    assert (parse["accepted"], parse["stage"]) == (False, "parse")
    assert "invalid choice: 'nonsense'" in parse["error"]
    refused = answers(gpu)["refused"]
    if gpu != "b200":
        assert (refused["accepted"], refused["stage"]) == (False, "resolve"), refused
        assert refused["error_type"] in ("ValueError", "AssertionError")
        assert refused["at"].partition(".py:")[2].isdigit()
    assert answers(gpu)["here"]["accepted"] is False


@pytest.mark.parametrize("family", POOLS)
def test_pools(gpu: str, family: str) -> None:
    _, _, kind, offload = POOLS[family]
    answer = answers(gpu)[family]
    assert answer["accepted"] is True, answer
    assert "pool_error" not in answer
    built = answer["pool"]
    assert built["class"] == kind
    assert built["decode_offload"] is offload
    assert built["hicache"] is True
    assert built["tokens"] == 8192
    assert built["bytes"] == sum(row["bytes"] for row in built["buffers"]) > 0
    assert built["capacity"][0]["max_total_num_tokens"] > 8192


def test_decode_offload_is_refused_in_the_engines_words(gpu: str) -> None:
    answer = answers(gpu)["offload"]
    assert (answer["accepted"], answer["stage"]) == (False, "offload"), answer
    assert "decode offload" in answer["error"]
    assert answer["at"].startswith("decode_kvcache_offload_manager.py:")


def test_recorded_launches_come_out_the_same(gpu: str) -> None:
    if answers(gpu)["hello"]["version"] != NEWEST:
        pytest.skip(f"what is recorded is {NEWEST}'s word")
    different = []
    for number, case in enumerate(recorded_cases(gpu)):
        answer = answers(gpu)[f"case-{number}"]
        verdict = "starts" if answer["accepted"] else "fails"
        if verdict != case["verdict"]:
            different.append((case, answer.get("error")))
        for name, value in (case.get("resolved") or {}).items():
            got = (answer.get("resolved") or {}).get(NAMES.get(name, name))
            if isinstance(value, float):
                got = pytest.approx(got, abs=0.0011)  # what is recorded is rounded
            if got != value:
                different.append((case, f"{name}: {got!r}"))
        fragment = case.get("error_fragment")
        if fragment and fragment not in str(answer.get("error")):
            different.append((case, answer.get("error")))
    assert not different
