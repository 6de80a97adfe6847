"""Pickers, search, fixes, why, matrix, export, presets, explain, help, palette."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from kvtui.core.findings import Outcome
from kvtui.tui.screens.matrix import MatrixScreen
from kvtui.tui.screens.setup import SetupScreen
from kvtui.tui.screens.sheet import PickSheet
from tests.tui.canned import FakeProber
from tests.tui.conftest import Running, app_of, said, screen_text, settle

HYBRID = {
    "model": "Qwen/Qwen3.5-27B",
    "disaggregation_mode": "decode",
    "disaggregation_decode_enable_offload_kvcache": True,
}


def name_of(pilot: object) -> str:
    return type(pilot.app.screen).__name__  # type: ignore[attr-defined]


async def test_the_model_is_picked_by_typing(running: Running) -> None:
    async with running() as pilot:
        await pilot.press("1", "down", "enter")
        await settle(pilot)
        assert name_of(pilot) == "ModelSheet"
        await pilot.press(*"3.5")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert app_of(pilot).report.draft.model_path == "Qwen/Qwen3.5-27B"
        assert name_of(pilot) == "SetupScreen"


async def test_a_path_can_be_typed_and_its_reason_is_shown(running: Running) -> None:
    prober = FakeProber()
    async with running(prober=prober) as pilot:
        await pilot.press("1", "down", "enter")
        await settle(pilot)
        await pilot.press(*"/no/such")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert prober.asked[-1] == "/no/such"
        await pilot.press("v")
        await settle(pilot)
        assert "/no/such: not a folder" in screen_text(pilot)


async def test_the_hardware_is_picked_with_its_count(running: Running) -> None:
    async with running() as pilot:
        await pilot.press("2", "down", "enter")
        await settle(pilot)
        assert "this machine" in screen_text(pilot)
        await pilot.press(*"b200")
        await settle(pilot)
        await pilot.press("left")
        await settle(pilot)
        assert "4× NVIDIA B200" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        draft = app_of(pilot).report.draft
        assert (draft.gpu, draft.gpu_count) == ("b200", 4)
        await pilot.press("u")
        await settle(pilot)
        assert app_of(pilot).report.draft.gpu is None


async def test_escape_leaves_a_picker_without_a_change(running: Running) -> None:
    async with running() as pilot:
        before = app_of(pilot).report.draft
        await pilot.press("2", "down", "enter", "down", "escape")
        await settle(pilot)
        assert name_of(pilot) == "SetupScreen"
        assert app_of(pilot).report.draft == before


@pytest.mark.parametrize(
    ("text", "option"),
    [("page-size", "page_size"), ("gpu-memory", "mem_fraction_static"), ("enable hicache",
      "enable_hierarchical_cache")],
)  # fmt: skip
async def test_search_lands_on_the_option(running: Running, text: str, option: str) -> None:
    async with running() as pilot:
        await pilot.press("slash")
        await settle(pilot)
        await pilot.press(*["space" if c == " " else "minus" if c == "-" else c for c in text])
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, SetupScreen)
        assert screen.steps.current is not None
        assert screen.steps.current.key == option


async def test_any_option_is_reached_by_search_even_if_no_step_lists_it(running: Running) -> None:
    async with running() as pilot:
        await pilot.press("slash", *"stream", "minus", *"interval", "enter")
        await settle(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, SetupScreen)
        assert screen.steps.current is not None
        assert screen.steps.current.key == "stream_interval"


async def test_all_errors_are_fixed_by_one_key_and_undone_by_one(running: Running) -> None:
    async with running(**HYBRID, kv_cache_dtype="nvfp4") as pilot:
        await pilot.press("F")
        await settle(pilot)
        text = screen_text(pilot)
        assert "fix all errors" in text
        assert "starts" in text
        await pilot.press("a")
        await settle(pilot)
        assert app_of(pilot).report.outcome is Outcome.STARTS
        assert name_of(pilot) == "SetupScreen"
        await pilot.press("u")
        await settle(pilot)
        assert len(app_of(pilot).report.errors) == 2


async def test_a_fix_is_previewed_before_it_is_applied(running: Running) -> None:
    async with running(kv_cache_dtype="nvfp4") as pilot:
        await pilot.press("F")
        await settle(pilot)
        assert "--kv-cache-dtype fp8_e4m3" in screen_text(pilot)
        await pilot.press("down")
        await settle(pilot)
        assert "drop --kv-cache-dtype" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "kv_cache_dtype" not in app_of(pilot).report.draft.options


async def test_why_shows_the_finding_and_leads_to_its_option(running: Running) -> None:
    async with running(kv_cache_dtype="nvfp4") as pilot:
        await pilot.press("w")
        await settle(pilot)
        assert "needs SM100" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, SetupScreen)
        assert screen.steps.current is not None
        assert screen.steps.current.key == "kv_cache_dtype"


async def test_why_of_a_clean_option_says_where_its_value_comes_from(running: Running) -> None:
    async with running() as pilot:
        pilot.app.screen.goto("attention_backend")  # type: ignore[attr-defined]
        await settle(pilot)
        await pilot.press("w")
        await settle(pilot)
        assert "the GPU is a Hopper" in screen_text(pilot)


async def test_a_cell_of_the_matrix_is_taken(running: Running) -> None:
    async with running(kv_cache_dtype="nvfp4", size=(120, 40)) as pilot:
        await pilot.press("m")
        await settle(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, MatrixScreen)
        assert screen.grid.cell == ("auto", "nvfp4")
        assert "CN226" in screen_text(pilot)
        column = screen.grid.dtypes.index("fp8_e4m3")
        while screen.grid.column != column:
            await pilot.press("left" if screen.grid.column > column else "right")
        await pilot.press("down")
        await settle(pilot)
        cell = screen.grid.cell
        assert cell is not None
        await pilot.press("enter")
        await settle(pilot)
        options = app_of(pilot).report.draft.options
        assert options["kv_cache_dtype"] == "fp8_e4m3"
        assert options["attention_backend"] == cell[0]


async def test_what_fails_in_every_cell_is_named_once(running: Running) -> None:
    async with running(**HYBRID, size=(120, 40)) as pilot:
        await pilot.press("m")
        await settle(pilot)
        text = screen_text(pilot)
        assert "in every cell, whatever is chosen here: CN512" in text
        assert "CN226" in text


async def test_an_export_is_previewed_copied_and_written_with_a_question(
    running: Running, tmp_path: Path
) -> None:
    async with running() as pilot:
        await pilot.press("e")
        await settle(pilot)
        assert "--model-path Qwen/Qwen3-8B" in screen_text(pilot)
        await pilot.press("down")
        await settle(pilot)
        assert "set -euo pipefail" in screen_text(pilot)
        await pilot.press("c")
        await settle(pilot)
        assert "set -euo pipefail" in app_of(pilot).clipboard
        target = tmp_path / "serve.sh"
        target.write_text("mine")
        await pilot.press("w")
        await settle(pilot)
        pilot.app.screen.query_one(Input).value = str(target)
        await pilot.press("enter")
        await settle(pilot)
        assert name_of(pilot) == "ConfirmSheet"
        await pilot.press("n")
        await settle(pilot)
        assert target.read_text() == "mine"
        await pilot.press("enter", "y")
        await settle(pilot)
        assert "set -euo pipefail" in target.read_text()
        assert target.stat().st_mode & 0o111


async def test_a_folder_that_can_not_be_written_is_one_clear_line(running: Running) -> None:
    async with running() as pilot:
        await pilot.press("e", "w")
        await settle(pilot)
        pilot.app.screen.query_one(Input).value = "/proc/nowhere/x.sh"
        await pilot.press("enter")
        await settle(pilot)
        assert "/proc/nowhere" in said(pilot)
        assert name_of(pilot) == "ExportSheet"


async def test_a_preset_is_saved_and_opened_again(running: Running) -> None:
    async with running(kv_cache_dtype="fp8_e4m3", size=(110, 30)) as pilot:
        await pilot.press("s")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "saved as qwen3-8b.toml" in said(pilot)
        await pilot.press("R", "o")
        await settle(pilot)
        sheet = pilot.app.screen
        assert isinstance(sheet, PickSheet)
        await pilot.press(*"qwen3", "minus", *"8b")
        await settle(pilot)
        sheet.list.action_end(-1)
        await pilot.press("enter")
        await settle(pilot)
        assert app_of(pilot).report.draft.options["kv_cache_dtype"] == "fp8_e4m3"


async def test_a_name_that_is_none_is_refused_while_typing(running: Running) -> None:
    async with running() as pilot:
        await pilot.press("s")
        await settle(pilot)
        pilot.app.screen.query_one("#save-name", Input).value = "../up"
        await settle(pilot)
        assert "letters, digits" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert name_of(pilot) == "SaveSheet"


async def test_a_pasted_error_leads_to_its_option(running: Running) -> None:
    async with running() as pilot:
        await pilot.press("x")
        await settle(pilot)
        area = pilot.app.screen.query_one(TextArea)
        area.text = "ValueError: Unsupported KV cache type for decode offload"
        await settle(pilot)
        await pilot.press("tab", "enter")
        await settle(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, SetupScreen)
        assert screen.steps.current is not None
        assert screen.steps.current.key == "disaggregation_decode_enable_offload_kvcache"


async def test_a_pasted_command_is_set_up(running: Running) -> None:
    async with running() as pilot:
        await pilot.press("x")
        await settle(pilot)
        area = pilot.app.screen.query_one(TextArea)
        area.text = "sglang serve --model-path Qwen/Qwen3.5-27B \\\n  --page-size 64"
        await settle(pilot)
        await pilot.press("tab", "enter")
        await settle(pilot)
        draft = app_of(pilot).report.draft
        assert draft.model_path == "Qwen/Qwen3.5-27B"
        assert draft.options["page_size"] == 64


async def test_help_lists_the_keys_of_the_screen(running: Running) -> None:
    async with running(size=(100, 100)) as pilot:
        await pilot.press("question_mark")
        await settle(pilot)
        text = screen_text(pilot)
        for words in ("build the pool for real", "only changed", "rules and engine disagree"):
            assert words in text
        await pilot.press("escape")
        await settle(pilot)
        assert name_of(pilot) == "SetupScreen"


async def test_the_palette_offers_the_keys_that_work(running: Running) -> None:
    async with running(kv_cache_dtype="nvfp4", size=(100, 40)) as pilot:
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"fix")
        await pilot.pause(0.3)
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        await pilot.pause(0.2)
        assert app_of(pilot).report.draft.options["kv_cache_dtype"] == "fp8_e4m3"


async def test_the_command_is_copied_with_its_environment(running: Running) -> None:
    from kvtui.core.draft import Draft

    draft = Draft(options={"model_path": "a b"}, env={"X": "1 2"})
    async with running(draft) as pilot:
        await pilot.press("y")
        await settle(pilot)
        assert app_of(pilot).clipboard == "'X=1 2' sglang serve --model-path 'a b'"


async def test_folders_are_walked_while_typing(running: Running, tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "config.json").write_text("{}")
    (tmp_path / "models" / "empty").mkdir()
    prober = FakeProber()
    async with running(prober=prober, size=(140, 30)) as pilot:
        await pilot.press("1", "down", "enter")
        await settle(pilot)
        pilot.app.screen.query_one(Input).value = str(tmp_path / "mod")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        sheet = pilot.app.screen
        assert isinstance(sheet, PickSheet)
        assert f"{tmp_path}/models/empty/" in [row.key for row in sheet.list.rows]
        assert sheet.list.select(f"{tmp_path}/models/mine")
        await pilot.press("enter")
        await settle(pilot)
        assert prober.asked[-1] == f"{tmp_path}/models/mine"


@pytest.mark.parametrize(("answer", "name"), [("y", "STARTS"), ("n", "NOT KNOWN")])
async def test_a_model_of_the_hub_is_fetched_only_when_asked(
    running: Running, answer: str, name: str
) -> None:
    async with running(size=(120, 30)) as pilot:
        await pilot.press("1", "down", "enter")
        await settle(pilot)
        pilot.app.screen.query_one(Input).value = "far/away"
        await settle(pilot)
        await pilot.press("enter")
        await pilot.pause()
        await pilot.pause()
        assert name_of(pilot) == "ConfirmSheet"
        assert "Fetch its JSON files" in screen_text(pilot)
        await pilot.press(answer)
        await settle(pilot)
        assert name in screen_text(pilot)


async def test_the_palette_goes_to_options_and_rules(running: Running) -> None:
    async with running(size=(100, 40)) as pilot:
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"gpu", "minus", *"mem")
        await pilot.pause(0.3)
        await settle(pilot)
        assert "Go to --mem-fraction-static" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        await pilot.pause(0.2)
        screen = pilot.app.screen
        assert isinstance(screen, SetupScreen)
        assert screen.steps.current is not None
        assert screen.steps.current.key == "mem_fraction_static"
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"KV780")
        await pilot.pause(0.3)
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        await pilot.pause(0.2)
        assert name_of(pilot) == "RuleSheet"
        assert "It fires on" in screen_text(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert screen.steps.current.key == "disaggregation_decode_enable_offload_kvcache"
