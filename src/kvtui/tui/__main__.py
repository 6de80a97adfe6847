"""`python -m kvtui.tui`: the screen without the command line around it."""

from __future__ import annotations

import sys

from kvtui.core.argv import parse
from kvtui.tui.start import open_screen

open_screen(parse(sys.argv[1:]))
