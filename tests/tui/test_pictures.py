"""Pictures of the screens; the state is asserted elsewhere first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from kvtui.tui.settings import Settings
from tests.tui.conftest import Running, settle

Picture = Callable[[Pilot[None]], None]
FAILS: dict[str, Any] = {
    "model": "Qwen/Qwen3.5-27B",
    "kv_cache_dtype": "fp8_e5m2",
    "disaggregation_mode": "decode",
    "disaggregation_decode_enable_offload_kvcache": True,
}


async def take(
    running: Running, picture: Picture, *keys: str, size: tuple[int, int], **options: Any
) -> None:
    """Open, press, settle, compare."""
    async with running(size=size, **options) as pilot:
        for key in keys:
            await pilot.press(key)
            await settle(pilot)
        await settle(pilot, waits=())
        picture(pilot)


async def test_welcome(running: Running, picture: Picture) -> None:
    await take(
        running, picture, size=(80, 24), draft=Draft(), facts=Facts(gpu_count=0)
    )  # fmt: skip


async def test_setup_small(running: Running, picture: Picture) -> None:
    await take(running, picture, "4", "down", size=(80, 24), kv_cache_dtype="fp8_e4m3")


async def test_editor_small(running: Running, picture: Picture) -> None:
    await take(running, picture, "4", "down", "enter", size=(80, 24))


async def test_verdict_small(running: Running, picture: Picture) -> None:
    await take(running, picture, "v", size=(80, 24), **FAILS)


@pytest.mark.parametrize("theme", ["kvtui-dark", "kvtui-light", "ansi-dark"])
async def test_setup_wide(running: Running, picture: Picture, theme: str) -> None:
    settings = Settings(theme=theme, glyphs="unicode")
    await take(running, picture, "4", "down", size=(140, 40), settings=settings, **FAILS)


async def test_setup_huge(running: Running, picture: Picture) -> None:
    await take(running, picture, "5", "p", size=(200, 60))


async def test_no_color(
    running: Running, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    await take(running, picture, "4", "down", size=(80, 24), **FAILS)


async def test_ascii(running: Running, picture: Picture) -> None:
    settings = Settings(glyphs="ascii")
    await take(running, picture, "4", "down", size=(80, 24), settings=settings, **FAILS)


@pytest.mark.parametrize(("name", "key"), [("fixes", "F"), ("why", "w"), ("matrix", "m")])
async def test_sheet(running: Running, picture: Picture, name: str, key: str) -> None:
    del name
    await take(running, picture, key, size=(100, 30), **FAILS)
