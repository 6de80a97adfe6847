"""A screen that breaks off says so in one line and keeps the traceback and the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from kvtui.tui.app import make_app
from kvtui.tui.start import keep_crash


def test_the_traceback_goes_to_a_file(tmp_path: Path) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        line = keep_crash(error, tmp_path)
    assert line.startswith("the screen broke off: ValueError: two (traceback in ")
    assert "\n" not in line
    assert "test_crash.py" in (tmp_path / "crash.txt").read_text()


def test_a_folder_that_can_not_be_written_is_no_second_crash() -> None:
    line = keep_crash(ValueError("x"), Path("/proc/nowhere"))
    assert line == "the screen broke off: ValueError: x"


async def test_a_crash_in_the_app_is_kept_and_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = make_app(Draft(), Facts())

    async def divide_by_zero() -> None:
        async with app.run_test() as pilot:
            app.call_later(lambda: 1 / 0)
            await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        await divide_by_zero()
    app._print_error_renderables()
    assert isinstance(app.crash, ZeroDivisionError)
    assert "Traceback" not in capsys.readouterr().err
