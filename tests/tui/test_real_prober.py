"""The prober behind the running app: real probes, a real pool child on the CPU."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.facts import Facts, PoolFact
from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find
from kvtui.errors import InputError
from kvtui.probe.engine.discover import EnginePython
from kvtui.tui.prober import PoolStep
from kvtui.tui.real_prober import RealProber, engine_version
from kvtui.tui.settings import Settings

MODEL = "Qwen/Qwen3-8B"


def report_of(**options: object) -> Report:
    checkpoint = find(MODEL)
    assert checkpoint is not None
    facts = Facts(checkpoints={MODEL: checkpoint}, gpu=find_gpu("h100"), gpu_count=1)
    return evaluate(Draft(options={"model_path": MODEL, **options}, gpu="h100"), facts)


async def test_the_machine_names_what_is_missing() -> None:
    machine = await RealProber().machine()
    assert machine.host is not None
    assert machine.torch is not None
    if machine.gpu is None:
        assert machine.missing["gpu"]


async def test_models_of_configured_folders_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    prober = RealProber(Settings(model_folders=(str(tmp_path / "models"),)))
    assert [model.path for model in await prober.models()] == [str(folder)]
    assert (await prober.checkpoint(str(folder))).config["architectures"] == ["X"]


async def test_a_model_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="no such folder"):
        await RealProber().checkpoint("/no/such/model")


async def test_a_pool_is_built_and_its_fact_belongs_to_the_report() -> None:
    prober = RealProber(Settings(pool_limit=64 << 20))
    report = report_of()
    events = [event async for event in prober.pool(report)]
    steps = [event for event in events if isinstance(event, PoolStep)]
    fact = events[-1]
    assert isinstance(fact, PoolFact)
    assert fact.ok, fact.report
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert steps[-1].total == len(steps)
    again = evaluate(report.draft, replace(report.facts, pool=fact))
    assert again.pool_fact is fact


async def test_leaving_early_takes_the_child_down() -> None:
    prober = RealProber(Settings(pool_limit=64 << 20))
    events = prober.pool(report_of())
    first = await anext(events)
    assert isinstance(first, PoolStep)
    await events.aclose()
    assert [task for task in asyncio.all_tasks() if "check_pool" in repr(task)] == []


async def test_a_python_that_is_not_there_is_said_in_the_fact() -> None:
    prober = RealProber(Settings(pool_python=("/no/such/python",)))
    events = [event async for event in prober.pool(report_of())]
    fact = events[-1]
    assert isinstance(fact, PoolFact)
    assert not fact.ok
    assert "/no/such/python" in str(fact.report["error"])


async def test_no_engine_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    prober = RealProber()
    if (await prober.machine()).engine is not None:
        pytest.skip("an SGLang is installed beside kvtui")
    with pytest.raises(InputError, match="no SGLang was found"):
        await prober.engine(report_of(), lambda text: None)
    await prober.close()


def test_an_engines_release_is_told_from_its_folders(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages" / "sglang-0.5.22.dist-info"
    site.mkdir(parents=True)
    engine = EnginePython((str(tmp_path / "bin" / "python"),), str(tmp_path))
    assert engine_version(engine) == "0.5.22"
    assert engine_version(EnginePython(("docker", "run"), "docker")) is None
