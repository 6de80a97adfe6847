"""Opens the screen on the real world; the command line's only door to it."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from kvtui.errors import InputError


def open_screen(draft: Draft, *, download: bool = False) -> str | None:
    """Run the app on this terminal until the user leaves it; one line where it broke off."""
    from kvtui.tui.app import make_app
    from kvtui.tui.real_prober import RealProber
    from kvtui.tui.settings import Settings, read_settings, standard_paths

    config, state = standard_paths()
    try:
        settings = read_settings(config, state)
    except InputError as error:
        print(f"kvtui: {error}; the defaults are used", file=sys.stderr)
        settings = Settings(state=state)
    prober = RealProber(settings, download=download)
    app = make_app(draft, Facts(gpu_count=0), prober, settings=settings)
    app.run()
    return keep_crash(app.crash, state) if app.crash is not None else None


def keep_crash(crash: BaseException, folder: Path) -> str:
    """Write a crash's traceback beside the saved work; returns the one line that tells it."""
    from kvtui.probe.presets import write_whole

    line = f"the screen broke off: {type(crash).__name__}: {crash}".splitlines()[0]
    path = folder / "crash.txt"
    try:
        write_whole(path, "".join(traceback.format_exception(crash)))
    except InputError:
        return line
    return f"{line} (traceback in {path}); your work is kept and offered at the next start"
