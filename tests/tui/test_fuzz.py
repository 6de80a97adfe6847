"""Random keys and sizes never bring the app down."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from tests.tui.conftest import Running, settle

KEYS = (
    *"123456fFwpgemuUsoxycbvnrRhjklaz/q!?", "up", "down", "left", "right", "enter", "escape",
    "tab", "shift+tab", "space", "home", "end", "pageup", "pagedown", "slash", "question_mark",
    "ctrl+n", "ctrl+p", "backspace", "delete",
)  # fmt: skip
SIZES = ((80, 24), (140, 40), (200, 60), (40, 10), (20, 5), (120, 30), (96, 24))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random keys reach the export screen, which writes where the app was started."""
    monkeypatch.chdir(tmp_path)


async def mash(running: Running, seed: int, count: int, draft: Draft | None) -> None:
    rng = random.Random(seed)
    facts = Facts(gpu_count=0) if draft is not None else None
    async with running(draft, facts=facts, size=rng.choice(SIZES)) as pilot:
        for number in range(count):
            key = rng.choice(KEYS)
            if key == "q" or (key == "w" and rng.random() < 0.5):
                continue
            if rng.random() < 0.03:
                await pilot.resize_terminal(*rng.choice(SIZES))
            else:
                await pilot.press(key)
            if number % 50 == 49:
                await settle(pilot)
        assert pilot.app.is_running


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_few_hundred_random_keys(running: Running, seed: int) -> None:
    await mash(running, seed, 150, None if seed % 2 else Draft())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_ten_thousand_random_keys(running: Running, seed: int) -> None:
    await mash(running, 100 + seed, 1000, None if seed % 2 else Draft())
