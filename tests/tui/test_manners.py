"""Keymap and theme of the user; faults of our own; glyphs; nothing heavy is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widget import Widget

from kvtui.tui.base import BROKE
from kvtui.tui.settings import Settings
from tests.tui.canned import FakeProber, draft_of, facts_for, judge
from tests.tui.conftest import Running, app_of, said, screen_text, settle


async def test_a_key_can_be_moved_and_the_key_bar_shows_it(running: Running) -> None:
    settings = Settings(glyphs="unicode", keymap={"pool.run": "ctrl+t"})
    async with running(settings=settings, size=(160, 40)) as pilot:
        assert "^t pool check" in screen_text(pilot)
        await pilot.press("ctrl+t")
        await settle(pilot, waits=())
        assert "✓ MHATokenToKVPool" in screen_text(pilot)


async def test_a_theme_chosen_in_the_app_is_kept_but_the_config_file_wins(
    running: Running, tmp_path: Path
) -> None:
    async with running(settings=Settings(state=tmp_path)) as pilot:
        assert pilot.app.theme == "kvtui-dark"
        pilot.app.theme = "kvtui-light"
        await settle(pilot)
    async with running(settings=Settings(state=tmp_path)) as pilot:
        assert pilot.app.theme == "kvtui-light"
    async with running(settings=Settings(theme="nord", state=tmp_path)) as pilot:
        assert pilot.app.theme == "nord"
    async with running(settings=Settings(theme="no such")) as pilot:
        assert pilot.app.theme == "kvtui-dark"


@pytest.mark.parametrize("theme", ["kvtui-light", "nord", "ansi-light", "ansi-dark", "dracula"])
async def test_every_theme_draws(running: Running, theme: str) -> None:
    async with running(settings=Settings(theme=theme), kv_cache_dtype="nvfp4") as pilot:
        assert "WILL FAIL" in screen_text(pilot)


async def test_ascii_terminals_get_ascii_only(running: Running) -> None:
    async with running(settings=Settings(glyphs="ascii"), size=(140, 40)) as pilot:
        await pilot.press("4", "down", "p")
        await settle(pilot, waits=())
        for strip in pilot.app.screen._compositor.render_strips(pilot.app.size):
            for line_filter in pilot.app.get_line_filters():
                strip = strip.apply_filter(line_filter, pilot.app.screen.background_colors[1])
            assert strip.text.isascii(), strip.text


async def test_a_fault_of_our_own_is_said_and_survived() -> None:
    from kvtui.tui.app import make_app

    app = make_app(draft_of(), facts_for(), FakeProber(), judge=judge)
    async with app.run_test() as pilot:
        await settle(pilot)

        async def broken() -> None:
            raise RuntimeError("oops")

        app.run_worker(broken(), exit_on_error=False, name="test")
        await settle(pilot)
        assert f"{BROKE} RuntimeError: oops" in said(pilot)
        assert app.is_running


def regions(pilot: Pilot[None]) -> dict[str, Region]:
    widgets = pilot.app.screen.query(Widget)
    return {widget.id: widget.region for widget in widgets if widget.id}


async def test_edits_are_redrawn_without_a_new_layout(running: Running) -> None:
    """Calm and fast: an edit that changes no heights moves nothing."""
    async with running(size=(140, 40)) as pilot:
        await pilot.press("4", "down", "down")
        await settle(pilot)
        app = app_of(pilot)
        before = regions(pilot)
        await pilot.press("space", "space")
        await settle(pilot)
        assert app.report.draft.options["page_size"] == 16
        after = regions(pilot)
        moved = {name for name in before if before[name] != after.get(name)}
        assert moved <= {"editor-about", "editor-text", "command", "body"}


def test_the_screen_imports_neither_torch_nor_the_rules_before_they_are_needed() -> None:
    program = (
        "import sys; import kvtui.tui.app, kvtui.tui.screens.home;"
        "print([n for n in ('torch', 'pydantic', 'huggingface_hub', 'kvtui.core.pipeline', 'yaml')"
        " if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_page_of_keys_is_fresh_and_ids_are_unique() -> None:
    from kvtui.tui.keys import PLACES, as_markdown, bindings_of

    page = Path(__file__).resolve().parents[2] / "docs" / "keys.md"
    assert page.read_text(encoding="utf-8") == as_markdown(), "run: python -m kvtui.tui.keys"
    for _, place in PLACES:
        ids = [binding.id for binding in bindings_of(place)]
        assert len(ids) == len(set(ids))
