"""The set-up: walking, editing, undoing, filtering, and what follows on screen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.widgets import Input

from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report
from kvtui.core.facts import Facts
from kvtui.core.findings import Outcome
from kvtui.tui.screens.setup import SetupScreen
from kvtui.tui.screens.setup_rows import STEP
from tests.tui.canned import FakeProber, draft_of, facts_for, judge
from tests.tui.conftest import Running, app_of, said, screen_text, settle

SIZES = [(80, 24), (110, 30), (140, 40), (200, 60)]


def setup_of(pilot: object) -> SetupScreen:
    screen = pilot.app.screen  # type: ignore[attr-defined]
    assert isinstance(screen, SetupScreen)
    return screen


@pytest.mark.parametrize("size", SIZES)
async def test_verdict_command_and_keys_are_always_in_sight(
    running: Running, size: tuple[int, int]
) -> None:
    async with running(size=size, kv_cache_dtype="fp8_e4m3") as pilot:
        text = screen_text(pilot)
        assert "STARTS" in text
        assert "--kv-cache-dtype fp8_e4m3" in text
        assert "? help" in text
        assert "Qwen/Qwen3-8B" in text
        assert all(len(line) <= size[0] for line in text.splitlines())


@pytest.mark.parametrize("size", SIZES)
async def test_an_option_is_changed_with_the_keyboard(
    running: Running, size: tuple[int, int]
) -> None:
    async with running(size=size) as pilot:
        await pilot.press("4", "down", "enter")
        await settle(pilot)
        screen = setup_of(pilot)
        assert screen.editor.values.has_focus
        screen.editor.values.select("nvfp4")
        await settle(pilot)
        assert "SM100" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert app_of(pilot).report.outcome is Outcome.FAILS
        assert "WILL FAIL" in screen_text(pilot)
        await pilot.press("escape", "u")
        await settle(pilot)
        assert "STARTS" in screen_text(pilot)


async def test_a_number_is_typed_and_judged_while_typing(running: Running) -> None:
    async with running() as pilot:
        await pilot.press("4", "down", "down", "enter")
        await settle(pilot)
        await pilot.press("end", "enter")
        field = pilot.app.screen.query_one("#editor-field", Input)
        assert field.has_focus
        await pilot.press("x")
        await settle(pilot)
        assert "whole number" in screen_text(pilot)
        await pilot.press("backspace", "4", "8")
        await settle(pilot)
        assert "per token" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert app_of(pilot).report.draft.options["page_size"] == 48
        assert setup_of(pilot).steps.has_focus


async def test_letters_typed_into_a_field_are_no_commands(running: Running) -> None:
    async with running() as pilot:
        setup_of(pilot).goto("served_model_name")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        await pilot.press(*"fpgemuq")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert app_of(pilot).report.draft.options["served_model_name"] == "fpgemuq"


async def test_space_steps_through_values_and_reset_takes_them_out(running: Running) -> None:
    async with running() as pilot:
        setup_of(pilot).goto("disable_radix_cache")
        await settle(pilot)
        await pilot.press("space")
        await settle(pilot)
        assert app_of(pilot).report.draft.options["disable_radix_cache"] is True
        await pilot.press("r")
        await settle(pilot)
        assert "disable_radix_cache" not in app_of(pilot).report.draft.options
        await pilot.press("u", "u", "U")
        await settle(pilot)
        assert app_of(pilot).report.draft.options["disable_radix_cache"] is True


async def test_reset_all_keeps_model_and_can_be_undone(running: Running) -> None:
    async with running(page_size=16, kv_cache_dtype="fp8_e4m3") as pilot:
        await pilot.press("R")
        await settle(pilot)
        assert dict(app_of(pilot).report.draft.options) == {"model_path": "Qwen/Qwen3-8B"}
        await pilot.press("u")
        await settle(pilot)
        assert app_of(pilot).report.draft.options["page_size"] == 16


async def test_steps_open_by_number_and_by_walking(running: Running) -> None:
    async with running() as pilot:
        screen = setup_of(pilot)
        for number, key in enumerate(("model", "hardware", "attention", "kv", "offload"), 1):
            await pilot.press(str(number))
            await settle(pilot)
            assert screen.opened == key
        await pilot.press("n")
        await settle(pilot)
        assert screen.opened == "review"
        await pilot.press("home", "down", "enter")
        await settle(pilot)
        assert screen.opened == "hardware"
        assert screen.steps.current is not None
        assert screen.steps.current.key == "@gpu"
        await pilot.press("left")
        assert screen.steps.current.key == f"{STEP}hardware"


async def test_filters_show_only_changed_or_only_problems(running: Running) -> None:
    async with running(kv_cache_dtype="nvfp4", page_size=16) as pilot:
        await pilot.press("c")
        await settle(pilot)
        keys = [row.key for row in setup_of(pilot).steps.rows if not row.key.startswith(STEP)]
        assert keys == ["model_path", "kv_cache_dtype", "page_size"]
        await pilot.press("b")
        await settle(pilot)
        keys = [row.key for row in setup_of(pilot).steps.rows if not row.key.startswith(STEP)]
        assert keys == ["kv_cache_dtype"]
        await pilot.press("escape")
        await settle(pilot)
        assert len(setup_of(pilot).steps.rows) > 6


async def test_the_first_fix_is_one_key(running: Running) -> None:
    async with running(kv_cache_dtype="nvfp4") as pilot:
        await pilot.press("f")
        await settle(pilot)
        assert app_of(pilot).report.draft.options["kv_cache_dtype"] == "fp8_e4m3"
        assert app_of(pilot).report.outcome is Outcome.STARTS
        await pilot.press("f")
        await settle(pilot)
        assert "nothing to fix" in said(pilot)


async def test_the_panel_opens_in_place_where_it_has_none(running: Running) -> None:
    async with running(kv_cache_dtype="nvfp4") as pilot:
        assert "needs SM100" not in screen_text(pilot)
        await pilot.press("v")
        await settle(pilot)
        assert "needs SM100" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        screen = setup_of(pilot)
        assert screen.opened == "kv"
        assert screen.steps.current is not None
        assert screen.steps.current.key == "kv_cache_dtype"


async def test_a_resize_keeps_the_place(running: Running) -> None:
    async with running(size=(140, 40)) as pilot:
        await pilot.press("4", "down", "down")
        for width, height in ((80, 24), (200, 60), (60, 15), (140, 40)):
            await pilot.resize_terminal(width, height)
            await settle(pilot)
            current = setup_of(pilot).steps.current
            assert current is not None
            assert current.key == "page_size"
            assert "STARTS" in screen_text(pilot)


async def test_the_mouse_reaches_the_same(running: Running) -> None:
    async with running(size=(140, 40)) as pilot:
        screen = setup_of(pilot)
        row = next(i for i, r in enumerate(screen.steps.rows) if r.key == f"{STEP}kv")
        await pilot.click("#steps", offset=(6, row))
        await pilot.click("#steps", offset=(6, row))
        await settle(pilot)
        assert screen.opened == "kv"
        await pilot.click("#command")
        await settle(pilot)
        assert app_of(pilot).clipboard == "sglang serve --model-path Qwen/Qwen3-8B"
        keys = pilot.app.screen.query_one("#keys")
        x = keys.render().plain.index("matrix")  # type: ignore[union-attr]
        await pilot.click("#keys", offset=(x + 1, 0))
        await settle(pilot)
        assert type(pilot.app.screen).__name__ == "MatrixScreen"


async def test_the_verdict_line_opens_the_panel_by_mouse(running: Running) -> None:
    async with running(kv_cache_dtype="nvfp4") as pilot:
        await pilot.click("#verdict-line")
        await settle(pilot)
        assert "needs SM100" in screen_text(pilot)


async def test_a_model_that_is_not_there_leads_to_unknown_with_the_reason(
    running: Running,
) -> None:
    async with running(model="who/knows") as pilot:
        assert "NOT KNOWN" in screen_text(pilot)
        await pilot.press("v")
        await settle(pilot)
        assert "who/knows: not a folder, not in the local hub cache" in screen_text(pilot)


async def test_no_gpu_is_an_open_question_not_a_crash(running: Running) -> None:
    async with running(facts=facts_for(None), prober=FakeProber(gpu=None)) as pilot:
        text = screen_text(pilot)
        assert "NOT KNOWN" in text
        assert "no NVIDIA driver" in text
        await pilot.press("p")
        await settle(pilot)
        assert "choose a model and a GPU first" in said(pilot)


async def test_environment_variables_are_shown_and_edited(running: Running) -> None:
    draft = Draft(options={"model_path": "Qwen/Qwen3-8B"}, env={"SGLANG_X": "1"})
    async with running(draft) as pilot:
        assert "SGLANG_X=1 sglang serve" in screen_text(pilot)
        await pilot.press("6")
        await settle(pilot)
        setup_of(pilot).steps.select("env:SGLANG_X")
        await pilot.press("r")
        await settle(pilot)
        assert app_of(pilot).report.draft.env == {}


async def test_forty_findings_and_long_names_fit(running: Running) -> None:
    one = judge(draft_of(kv_cache_dtype="nvfp4"), facts_for()).errors[0]

    def many(draft: Draft, facts: Facts) -> Report:
        findings = tuple(replace(one, rule=f"CN{i:03}") for i in range(40))
        report = judge(draft, facts)
        return replace(
            report, findings=findings, outcome=Outcome.FAILS, rules_outcome=Outcome.FAILS
        )

    async with running(served_model_name="n" * 300, rules=many) as pilot:
        await pilot.press("v", "end")
        await settle(pilot)
        text = screen_text(pilot)
        assert "CN039" in text
        assert all(len(line) <= 80 for line in text.splitlines())


async def test_the_review_lists_what_was_set_and_the_ways_out(running: Running) -> None:
    async with running(kv_cache_dtype="fp8_e4m3", page_size=16) as pilot:
        await pilot.press("6")
        await settle(pilot)
        keys = [row.key for row in setup_of(pilot).steps.rows if not row.key.startswith(STEP)]
        assert keys[:3] == ["model_path", "kv_cache_dtype", "page_size"]
        setup_of(pilot).steps.select("do:app.export")
        await pilot.press("enter")
        await settle(pilot)
        assert type(pilot.app.screen).__name__ == "ExportSheet"
