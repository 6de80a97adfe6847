"""A newcomer gets to a judged, pool-checked, exported command without reading anything."""

from __future__ import annotations

from pathlib import Path

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from kvtui.core.findings import Outcome
from kvtui.tui.settings import Settings
from tests.tui.canned import FakeProber, draft_of
from tests.tui.conftest import Running, app_of, screen_text, settle

NOTHING = Facts(gpu_count=0)


async def test_from_nothing_to_an_exported_command_at_80x24(running: Running) -> None:
    async with running(Draft(), facts=NOTHING, size=(80, 24)) as pilot:
        text = screen_text(pilot)
        for words in ("2× H200", "torch", "SGLang", "Qwen/Qwen3-8B", "⏎ start"):
            assert words in text
        await pilot.press("enter")
        await settle(pilot)
        assert "✓ STARTS" in screen_text(pilot)
        await pilot.press("p")
        await settle(pilot, waits=())
        assert "pool ✓" in screen_text(pilot)
        await pilot.press("e")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "sglang serve" in app_of(pilot).clipboard
        assert app_of(pilot).report.outcome is Outcome.STARTS


async def test_without_a_gpu_the_hardware_is_asked_next(running: Running) -> None:
    async with running(Draft(), facts=NOTHING, prober=FakeProber(gpu=None)) as pilot:
        assert "no NVIDIA driver" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert type(pilot.app.screen).__name__ == "GpuSheet"
        await pilot.press(*"h100", "enter")
        await settle(pilot)
        assert app_of(pilot).report.facts.gpu is not None
        assert "STARTS" in screen_text(pilot)


async def test_without_models_another_one_is_one_key_away(running: Running) -> None:
    async with running(Draft(), facts=NOTHING, prober=FakeProber(local=())) as pilot:
        await pilot.press("enter")
        await settle(pilot)
        assert type(pilot.app.screen).__name__ == "ModelSheet"


async def test_unsaved_work_is_offered_at_the_next_start(running: Running, tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, glyphs="unicode")
    async with running(page_size=32, settings=settings) as pilot:
        await pilot.press("4", "down", "space")
        await settle(pilot)
        before = app_of(pilot).report.draft
    again = Settings(state=tmp_path, glyphs="unicode")
    async with running(Draft(), facts=NOTHING, settings=again) as pilot:
        assert "continue" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert app_of(pilot).report.draft == before


async def test_a_new_launch_goes_back_to_the_welcome(running: Running) -> None:
    async with running(page_size=32) as pilot:
        await pilot.press("ctrl+n")
        await settle(pilot)
        assert type(pilot.app.screen).__name__ == "HomeScreen"
        assert "continue" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert app_of(pilot).report.draft == draft_of(page_size=32)
