"""Pool check and engine question: progress, result, failure, cancelling, staleness."""

from __future__ import annotations

import asyncio

from kvtui.core.findings import Outcome
from tests.tui.canned import FakeProber
from tests.tui.conftest import Running, app_of, said, screen_text, settle


async def test_a_pool_check_passes_and_goes_stale_with_an_edit(running: Running) -> None:
    async with running(size=(140, 40)) as pilot:
        await pilot.press("p")
        await settle(pilot, waits=())
        assert "✓ MHATokenToKVPool · cuda:0" in screen_text(pilot)
        app_of(pilot).screen.goto("page_size")  # type: ignore[attr-defined]
        await pilot.press("space")
        await settle(pilot)
        assert "last run was for other settings" in screen_text(pilot)
        await pilot.press("u")
        await settle(pilot)
        assert "✓ MHATokenToKVPool · cuda:0" in screen_text(pilot)


async def test_progress_is_shown_and_a_second_press_cancels(running: Running) -> None:
    prober = FakeProber(hold=asyncio.Event())
    async with running(prober=prober, size=(140, 40)) as pilot:
        await pilot.press("p")
        await settle(pilot)
        assert "2/5 writing 4,096 slots" in screen_text(pilot)
        await pilot.press("4", "down")  # keys go on working meanwhile
        await settle(pilot)
        await pilot.press("p")
        await settle(pilot, waits=())
        assert prober.cancelled
        assert "not run" in screen_text(pilot)
        assert "nothing stays allocated" in said(pilot)


async def test_a_pool_that_can_not_be_built_says_why(running: Running) -> None:
    async with running(prober=FakeProber(pool_ok=False), size=(140, 40)) as pilot:
        await pilot.press("p")
        await settle(pilot, waits=())
        text = screen_text(pilot)
        assert "✗ MHATokenToKVPool" in text
        assert "pool could not be built" in text


async def test_leaving_ends_a_running_check(running: Running) -> None:
    prober = FakeProber(hold=asyncio.Event())
    async with running(prober=prober) as pilot:
        await pilot.press("p")
        await settle(pilot)
        await pilot.press("q")
    assert prober.cancelled
    assert prober.closed


async def test_an_engine_that_refuses_decides_and_the_difference_is_said(
    running: Running,
) -> None:
    prober = FakeProber(engine_error="ValueError: no")
    async with running(prober=prober, size=(140, 40)) as pilot:
        await pilot.press("g")
        await settle(pilot)
        assert app_of(pilot).report.outcome is Outcome.FAILS
        assert "refuses" in screen_text(pilot)


async def test_an_engine_that_agrees_is_shown_with_place(running: Running) -> None:
    async with running(size=(140, 40)) as pilot:
        await pilot.press("g")
        await settle(pilot)
        assert "✓ 0.5.23 accepts · ~/venv" in screen_text(pilot)


async def test_no_engine_is_one_clear_line(running: Running) -> None:
    async with running(prober=FakeProber(engine_version=None), size=(140, 40)) as pilot:
        await pilot.press("g")
        await settle(pilot)
        assert "no SGLang was found" in screen_text(pilot)
        assert "STARTS" in screen_text(pilot)


async def test_a_broken_prober_never_brings_the_app_down(running: Running) -> None:
    class Broken(FakeProber):
        async def machine(self) -> object:  # type: ignore[override]
            raise RuntimeError("NVML went away")

        async def models(self) -> object:  # type: ignore[override]
            raise OSError("disk")

        async def checkpoint(self, path: str) -> object:  # type: ignore[override]
            raise RuntimeError("boom")

    async with running(model="a/b", prober=Broken(), size=(140, 40)) as pilot:
        text = screen_text(pilot)
        assert "boom" in text
        assert "NOT KNOWN" in text
