"""The screen over the real rules, catalogue and presets: flows that canned rules can't show."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from kvtui.core.draft import Draft
from kvtui.core.evaluate import evaluate
from kvtui.core.facts import Facts
from kvtui.core.findings import Outcome
from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find
from kvtui.tui.catalogues import known_models
from kvtui.tui.difference import save_difference
from kvtui.tui.screens.setup import SetupScreen
from tests.tui.canned import FakeProber
from tests.tui.conftest import Running, app_of, said, screen_text, settle


class CatalogueProber(FakeProber):
    """Models come from the catalogue."""

    async def checkpoint(self, path: str) -> object:  # type: ignore[override]
        found = find(path)
        assert found is not None, path
        return found


def launch(model: str, gpu: str = "h100", **options: object) -> tuple[Draft, Facts]:
    checkpoint = find(model)
    assert checkpoint is not None
    facts = Facts(checkpoints={model: checkpoint}, gpu=find_gpu(gpu), gpu_count=8)
    return Draft(options={"model_path": model, **options}, gpu=gpu, gpu_count=8), facts


async def test_the_failure_that_the_product_exists_for_is_explained_and_fixed(
    running: Running,
) -> None:
    draft, facts = launch(
        "openai/gpt-oss-20b",
        disaggregation_mode="decode",
        disaggregation_decode_enable_offload_kvcache=True,
        hicache_storage_backend="file",
    )
    async with running(draft, facts=facts, rules=evaluate, size=(140, 40)) as pilot:
        text = screen_text(pilot)
        assert "WILL FAIL" in text
        assert "SWAKVPool" in text
        await pilot.press("w")
        await settle(pilot)
        text = screen_text(pilot)
        assert "What it looked at" in text
        assert "--disaggregation-mode" in text
        await pilot.press("escape", "F", "a")
        await settle(pilot)
        assert app_of(pilot).report.outcome is not Outcome.FAILS


async def test_every_violated_condition_of_prefill_only_is_fixed_by_one_key(
    running: Running,
) -> None:
    draft, facts = launch("Qwen/Qwen3-8B", prefill_only_disable_kv_cache=True)
    async with running(draft, facts=facts, rules=evaluate, size=(140, 40)) as pilot:
        assert app_of(pilot).report.outcome is Outcome.FAILS
        await pilot.press("F", "a")
        await settle(pilot)
        report = app_of(pilot).report
        assert report.outcome is Outcome.STARTS, [f.message for f in report.errors]
        await pilot.press("u")
        await settle(pilot)
        assert app_of(pilot).report.draft == draft


async def test_a_capacity_is_reached_by_one_of_the_ways(running: Running) -> None:
    draft, facts = launch("Qwen/Qwen3-8B")
    async with running(draft, facts=facts, rules=evaluate, size=(110, 34)) as pilot:
        await pilot.press("t")
        await settle(pilot)
        assert "fit as it is" in screen_text(pilot)
        pilot.app.screen.query_one("#fit-requests", Input).value = "0"
        await settle(pilot)
        assert "two numbers above zero" in screen_text(pilot)
        pilot.app.screen.query_one("#fit-requests", Input).value = "40"
        await settle(pilot)
        await pilot.press("down", "enter")
        await settle(pilot)
        after = app_of(pilot).report
        assert after.draft != draft
        assert after.capacity is not None
        assert after.capacity.max_total_num_tokens >= 40 * 32768


async def test_a_preset_is_compared_and_taken(running: Running) -> None:
    draft, facts = launch("Qwen/Qwen3-8B")
    async with running(
        draft, facts=facts, rules=evaluate, prober=CatalogueProber(), size=(110, 34)
    ) as pilot:
        await pilot.press("d")
        await settle(pilot)
        await pilot.press(*"gpt", "minus", *"oss")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        text = screen_text(pilot)
        assert "this launch" in text
        assert "SWAKVPool" in text
        await pilot.press("enter")
        await settle(pilot)
        assert app_of(pilot).report.draft.model_path == "openai/gpt-oss-20b"
        await pilot.press("u")
        await settle(pilot)
        assert app_of(pilot).report.draft == draft


async def test_shipped_presets_open_and_start(running: Running) -> None:
    async with running(
        Draft(), facts=Facts(gpu_count=0), rules=evaluate, prober=CatalogueProber()
    ) as pilot:
        await pilot.press("o")
        await settle(pilot)
        await pilot.press(*"hybrid", "enter")
        await settle(pilot)
        assert isinstance(pilot.app.screen, SetupScreen)
        assert app_of(pilot).report.outcome is Outcome.STARTS


async def test_a_broken_preset_is_one_clear_line(running: Running, private_home: Path) -> None:
    folder = private_home / ".config" / "kvtui" / "presets"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("launch = 3")
    async with running() as pilot:
        await pilot.press("o")
        await settle(pilot)
        assert "launch: expected a table" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "launch: expected a table" in said(pilot)
    shutil.rmtree(folder)


async def test_a_difference_is_written_without_secrets(running: Running, tmp_path: Path) -> None:
    from kvtui.core.facts import EngineFact

    draft, facts = launch("Qwen/Qwen3-8B", api_key="hush")
    report = evaluate(draft, facts)
    refused = EngineFact(report.key, False, "0.5.23", "~/venv", error="ValueError: no")
    report = evaluate(draft, replace(facts, engine=refused))
    assert report.disagrees
    path = save_difference(report, tmp_path, "2026-12-01T12:00:00+00:00")
    text = path.read_text()
    assert "ValueError: no" in text
    assert "hush" not in text


def test_the_catalogue_has_the_models_that_the_picker_shows() -> None:
    assert len(known_models()) >= 40
    assert all(find(model.name) is not None for model in known_models())


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_any_catalogue_model_can_be_set_up(running: Running, size: tuple[int, int]) -> None:
    for model in known_models()[::18]:
        draft, facts = launch(model.name, "h200", tp_size=8)
        async with running(draft, facts=facts, rules=evaluate, size=size) as pilot:
            text = screen_text(pilot)
            assert any(word in text for word in ("STARTS", "WILL FAIL", "NOT KNOWN"))
            await pilot.press("v", "4", "down", "m")
            await settle(pilot)
            assert type(pilot.app.screen).__name__ == "MatrixScreen"
