"""Screen tests: no real home, no colours from outside, a steady clock, pictures as SVG."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension
from textual.pilot import Pilot

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from kvtui.tui import base
from kvtui.tui.app import KvtuiApp, make_app
from kvtui.tui.base import BROKE
from kvtui.tui.screens import explain, fit, setup_view
from kvtui.tui.session import Judge
from kvtui.tui.settings import Settings
from tests.tui.canned import FakeProber, draft_of, facts_for, judge

Running = Callable[..., AbstractAsyncContextManager[Pilot[None]]]


@pytest.fixture(autouse=True)
def _own_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal is always the same, and nothing waits."""
    monkeypatch.setenv("LANG", "C.UTF-8")
    for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(base, "KEEP_AFTER", 0.0)
    monkeypatch.setattr(setup_view, "JUDGE_AFTER", 0.0)
    monkeypatch.setattr(explain, "SETTLE", 0.0)
    monkeypatch.setattr(fit, "SETTLE", 0.0)


@asynccontextmanager
async def _running(
    draft: Draft | None = None,
    *,
    facts: Facts | None = None,
    prober: FakeProber | None = None,
    size: tuple[int, int] = (80, 24),
    settings: Settings | None = None,
    rules: Judge = judge,
    **options: Any,
) -> AsyncIterator[Pilot[None]]:
    """A running app on the canned world; options build the draft where none is given."""
    app = make_app(
        draft if draft is not None else draft_of(**options),
        facts if facts is not None else facts_for(),
        prober or FakeProber(),
        settings=settings or Settings(glyphs="unicode"),
        judge=rules,
        clock=lambda: 100.0,
    )
    app.today = lambda: datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield pilot
        assert BROKE not in said(pilot)


async def settle(pilot: Pilot[None], *, waits: tuple[str, ...] = ("pool",)) -> None:
    """Let messages and workers come to rest, except groups that a test holds."""
    await pilot.pause()
    for _ in range(50):
        open_ = [w for w in pilot.app.workers if w.group not in waits and not w.is_finished]
        if not open_:
            break
        await pilot.app.workers.wait_for_complete(open_)
        await pilot.pause()
    await pilot.pause()


@pytest.fixture
def running() -> Running:
    """Opens an app: `async with running(kv_cache_dtype="fp8_e4m3") as pilot`."""
    return _running


def app_of(pilot: Pilot[None]) -> KvtuiApp:
    """The app, typed."""
    assert isinstance(pilot.app, KvtuiApp)
    return pilot.app


def screen_text(pilot: Pilot[None]) -> str:
    """What is on screen, as lines of text."""
    width, height = pilot.app.size
    lines = pilot.app.screen._compositor.render_strips(pilot.app.size)
    del width
    return "\n".join(strip.text.rstrip() for strip in lines[:height])


def said(pilot: Pilot[None]) -> str:
    """Everything that the app notified so far."""
    return "\n".join(note.message for note in pilot.app._notifications)


class SvgExtension(SingleFileSnapshotExtension):
    """One .svg file a picture."""

    file_extension = "svg"


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> Callable[[Pilot[None]], None]:
    """Compares the screen with its stored picture."""
    stored = snapshot.use_extension(SvgExtension)

    def compare(pilot: Pilot[None]) -> None:
        svg = pilot.app.export_screenshot(title="kvtui", simplify=True)
        svg = re.sub(r"terminal-\d+", "terminal", svg)
        assert svg.encode() == stored

    return compare
