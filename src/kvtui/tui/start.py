"""Opens the screen on the real world; the command line's only door to it."""

from __future__ import annotations

import sys

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from kvtui.errors import InputError


def open_screen(draft: Draft, *, download: bool = False) -> None:
    """Run the app on this terminal until the user leaves it."""
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
    make_app(draft, Facts(gpu_count=0), prober, settings=settings).run()
