"""The list that every screen uses: layout, cursor, mouse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.app import App, ComposeResult
from textual.content import Content

from kvtui.tui.theme import DARK, extra_variables
from kvtui.tui.widgets.row import Row, lay_out
from kvtui.tui.widgets.rows import RowList


class Lists(App[None]):
    """One list and what it sent."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__()
        self.rows = rows
        self.sent: list[tuple[str, str]] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return extra_variables(DARK)

    def compose(self) -> ComposeResult:
        yield RowList(self.rows)

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        self.sent.append(("moved", event.row.key))

    def on_row_list_picked(self, event: RowList.Picked) -> None:
        self.sent.append(("picked", event.row.key))


def rows(count: int, headings: tuple[int, ...] = ()) -> list[Row]:
    return [Row(f"k{i}", (Content(f"row {i}"),), enabled=i not in headings) for i in range(count)]


def lines(listed: RowList) -> Iterator[str]:
    for y in range(listed.size.height):
        yield listed.render_line(y).text.rstrip()


def test_cells_are_cut_and_padded() -> None:
    line = lay_out((Content("abcdef"), Content("x"), Content("yz")), (5, 0, 4)).plain
    assert line == "abc… yz  "


async def test_the_cursor_passes_over_headings() -> None:
    app = Lists(rows(6, headings=(0, 3)))
    async with app.run_test() as pilot:
        listed = app.query_one(RowList)
        assert listed.current is not None
        assert listed.current.key == "k1"
        await pilot.press("down", "down", "j", "up", "end", "home")
        moves = [key for kind, key in app.sent if kind == "moved"]
        assert moves == ["k2", "k4", "k5", "k4", "k5", "k1"]


async def test_a_click_moves_and_a_second_one_picks() -> None:
    app = Lists(rows(5))
    async with app.run_test() as pilot:
        await pilot.click(RowList, offset=(4, 3))
        await pilot.pause(0.6)
        await pilot.click(RowList, offset=(4, 3))
        assert ("moved", "k3") in app.sent
        assert app.sent[-1] == ("picked", "k3")


async def test_a_long_list_scrolls_with_its_cursor() -> None:
    app = Lists(rows(547))
    async with app.run_test(size=(40, 10)) as pilot:
        listed = app.query_one(RowList)
        await pilot.press("end")
        assert listed.scroll_y == 537
        assert any(line.startswith("› row 546") for line in lines(listed))
        await pilot.press("pageup", "home")
        assert listed.scroll_y == 0


async def test_new_rows_keep_the_cursor_on_its_key() -> None:
    app = Lists(rows(5))
    async with app.run_test() as pilot:
        listed = app.query_one(RowList)
        await pilot.press("down", "down")
        listed.show(list(reversed(rows(5))))
        assert listed.current is not None
        assert listed.current.key == "k2"
        listed.show(rows(2))
        assert listed.current.key == "k1"
        listed.show([])
        assert listed.current is None


async def test_text_below_a_row_wraps_to_the_width() -> None:
    long = Row("a", (Content("head"),), below=Content("word " * 20), indent=2)
    app = Lists([long, *rows(1)])
    async with app.run_test(size=(30, 12)) as pilot:
        listed = app.query_one(RowList)
        before = listed.virtual_size.height
        await pilot.resize_terminal(60, 12)
        await pilot.pause()
        assert listed.virtual_size.height < before
        await pilot.press("down")
        assert listed.current is not None
        assert listed.current.key == "k0"


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_moving_in_a_short_list_is_harmless(count: int) -> None:
    app = Lists(rows(count, headings=(0,)))
    async with app.run_test() as pilot:
        await pilot.press("up", "down", "pagedown", "pageup", "home", "end", "enter", "space")
