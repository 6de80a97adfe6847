"""The engine probe against a fake engine that crashes, hangs and talks nonsense on request."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from kvtui.core.evaluate import evaluate
from kvtui.core.findings import Outcome
from kvtui.errors import InputError
from kvtui.probe.engine.client import EngineError, EngineProbe, ask_once
from kvtui.probe.engine.discover import EnginePython, find_engine
from kvtui.probe.engine.facts import ask_engine, claim_of, fact_of, question_of
from tests.support import draft_of, facts_for

FAKE = Path(__file__).parent / "fake_engine"
MODEL = ["--model-path", "m"]


def fake_engine(**env: str) -> EnginePython:
    """A Python whose torch and SGLang are the fakes."""
    words = ["env", f"PYTHONPATH={FAKE}", *(f"{k}={v}" for k, v in env.items()), sys.executable]
    return EnginePython(tuple(words), "the fake")


@pytest_asyncio.fixture
async def probe() -> AsyncIterator[EngineProbe]:
    """A warm fake engine."""
    one = EngineProbe(fake_engine())
    yield one
    await one.close()


def resolve(*argv: str, **more: object) -> dict[str, object]:
    """A resolve question."""
    return {"ask": "resolve", "argv": [*MODEL, *argv], **more}


async def test_hello_and_schema(probe: EngineProbe) -> None:
    steps: list[str] = []
    assert await probe.start(steps.append) == "9.9.9"
    assert any("torch" in step for step in steps)
    hello = await probe.ask({"ask": "hello"})
    assert hello["version"] == "9.9.9"
    assert hello["gpus"] == []
    schema = await probe.ask({"ask": "schema"})
    by_name = {row["name"]: row for row in schema["options"]}
    assert by_name["model_path"]["flags"] == ["--model-path", "--model"]
    assert by_name["kv_cache_dtype"]["choices"] == ["auto", "fp8_e5m2"]


async def test_accepts_with_resolved_values_and_keeps_secrets(probe: EngineProbe) -> None:
    answer = await probe.ask(resolve("--kv-cache-dtype", "fp8_e5m2", "--api-key", "s3cret"))
    assert answer["accepted"] is True
    assert answer["resolved"]["backends"] == ["triton", "triton"]
    assert "s3cret" not in str(answer)


@pytest.mark.parametrize(
    ("argv", "stage", "kind", "text"),
    [
        (["--mode", "refuse"], "resolve", "ValueError", "do not go together"),
        (["--page-size", "3"], "check", "AssertionError", "page size 3"),
        (["--nonsense"], "parse", "SystemExit", "unrecognized arguments"),
        (["--kv-cache-dtype", "x"], "parse", "SystemExit", "invalid choice"),
    ],
)
async def test_refusals(
    probe: EngineProbe, argv: list[str], stage: str, kind: str, text: str
) -> None:
    answer = await probe.ask(resolve(*argv))
    assert answer["accepted"] is False
    assert (answer["stage"], answer["error_type"]) == (stage, kind)
    assert text in answer["error"]
    if kind != "SystemExit":
        assert answer["at"].startswith("server_args.py:")


async def test_a_crash_is_an_answer_and_the_next_question_works(probe: EngineProbe) -> None:
    answer = await probe.ask(resolve("--mode", "crash"))
    assert answer["error_type"] == "Crash"
    assert "signal 11" in answer["error"]
    assert (await probe.ask(resolve()))["accepted"] is True


async def test_a_hang_ends_at_its_limit_without_delaying_others(probe: EngineProbe) -> None:
    await probe.start()
    hang = asyncio.create_task(probe.ask(resolve("--mode", "hang"), limit_s=1.5))
    await asyncio.sleep(0)
    before = time.monotonic()
    assert (await probe.ask(resolve()))["accepted"] is True
    assert not hang.done(), "an answer must not wait for another question"
    assert time.monotonic() - before < 1.5
    assert (await hang)["error_type"] == "Timeout"


async def test_noise_on_stdout_does_no_harm(probe: EngineProbe) -> None:
    assert (await probe.ask(resolve("--mode", "noise")))["accepted"] is True


async def test_state_does_not_leak_between_questions(probe: EngineProbe) -> None:
    first = await probe.ask(resolve("--mode", "env", env={"SGLANG_TEST": "one"}))
    second = await probe.ask(resolve("--mode", "env"))
    assert first["resolved"]["mode"] == "one"
    assert second["resolved"]["mode"] == "unset"


async def test_a_model_that_is_not_over_there_travels_with_the_question(
    probe: EngineProbe,
) -> None:
    files = {"m": {"config.json": {"hidden_size": 7}, "../escape.json": {}}}
    answer = await probe.ask(resolve("--mode", "files", files=files))
    assert answer["resolved"]["mode"] == '{"hidden_size": 7}'
    assert not Path("escape.json").exists()


async def test_a_killed_probe_starts_again(probe: EngineProbe) -> None:
    await probe.start()
    assert probe._process is not None
    os.kill(probe._process.pid, signal.SIGKILL)
    assert (await probe.ask(resolve()))["accepted"] is True


async def test_closing_leaves_no_process() -> None:
    one = EngineProbe(fake_engine())
    await one.start()
    assert one._process is not None
    pid = one._process.pid
    hang = asyncio.create_task(one.ask(resolve("--mode", "hang")))
    await asyncio.sleep(0.3)
    hang.cancel()
    await asyncio.gather(hang, return_exceptions=True)
    await one.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


async def test_an_engine_that_does_not_import_says_why() -> None:
    one = EngineProbe(fake_engine(FAKE_BROKEN="1"))
    with pytest.raises(EngineError, match=r"can't be imported .*no kernels for this machine\)"):
        await one.start()
    assert not one.alive


async def test_an_engine_that_imports_too_long_is_given_up() -> None:
    one = EngineProbe(fake_engine(FAKE_SLOW_IMPORT="1"), start_limit_s=0.8)
    with pytest.raises(EngineError, match="not imported within"):
        await one.start()
    assert not one.alive


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("false",), "ended with status 1"),
        (("/nonexistent/python",), "no such file"),
        (("echo", "hello"), "the probe"),
    ],
)
async def test_things_that_are_no_python(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(EngineError, match=text):
        await EngineProbe(EnginePython(words, "x"), start_limit_s=10).start()


def test_ask_once_for_the_command_line() -> None:
    answers = ask_once(fake_engine(), [{"ask": "hello"}, {"ask": "what"}])
    assert answers[0]["version"] == "9.9.9"
    assert "unknown question" in answers[1]["error"]


def test_paths_with_blanks(tmp_path: Path) -> None:
    folder = tmp_path / "my engine" / "bin"
    folder.mkdir(parents=True)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{FAKE}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    for wanted in (str(python), str(tmp_path / "my engine")):
        engine = find_engine(wanted)
        assert engine is not None
        assert ask_once(engine, [{"ask": "hello"}])[0]["version"] == "9.9.9"


@pytest.mark.parametrize("wanted", ["/nonexistent", "no-such-program-here x", "'", " "])
def test_engines_that_can_not_be(wanted: str) -> None:
    with pytest.raises(InputError):
        find_engine(wanted)


async def test_the_engine_decides_over_the_rules(probe: EngineProbe) -> None:
    draft = draft_of("--model-path Qwen/Qwen3-8B", gpu="h100")
    report = evaluate(draft, facts_for(draft))
    assert report.outcome is Outcome.STARTS
    question = question_of(report)
    assert question["argv"] == ["--model-path", "Qwen/Qwen3-8B"]
    assert question["files"]["Qwen/Qwen3-8B"]["config.json"]["model_type"] == "qwen3"
    claim = claim_of(report.facts)
    assert claim is not None
    assert claim["capability"] == [9, 0]
    fact = await ask_engine(probe, report)
    agreed = evaluate(draft, replace(report.facts, engine=fact))
    assert agreed.engine_fact is not None
    assert not agreed.disagrees
    refused = replace(fact, accepted=False, error="no", stage="check")
    judged = evaluate(draft, replace(report.facts, engine=refused))
    assert judged.outcome is Outcome.FAILS
    assert judged.disagrees
    stale = replace(fact, request_key="another")
    assert evaluate(draft, replace(report.facts, engine=stale)).engine_fact is None


def test_answers_that_are_no_verdict(probe: EngineProbe) -> None:
    bad: list[dict[str, object]] = [
        {"error_type": "Crash", "error": "died", "accepted": False},
        {"accepted": "yes"},
        {},
        {"accepted": False, "error_type": "OSError", "error": "We couldn't connect to the hub"},
    ]
    for answer in bad:
        with pytest.raises(EngineError):
            fact_of(answer, "key", probe)


def test_a_short_configuration_is_no_refusal(probe: EngineProbe) -> None:
    answer = {"accepted": False, "error_type": "KeyError", "error": "rope_theta", "foreign": True}
    assert fact_of(answer, "key", probe).accepted is False
    with pytest.raises(EngineError, match="too short"):
        fact_of(answer, "key", probe, abridged=True)
    ours = {**answer, "foreign": False}
    assert fact_of(ours, "key", probe, abridged=True).accepted is False


async def test_answers_name_the_model_and_not_the_place_of_its_files(probe: EngineProbe) -> None:
    files: dict[str, object] = {"m": {"config.json": {}}}
    answer = await probe.ask(resolve("--page-size", "4", files=files))
    assert answer["resolved"]["model_path"] == "m"
    assert "kvtui-" not in str(answer)
    assert answer["took_s"] >= 0
