"""Exit codes of the command line."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a shell or CI learns from the exit status."""

    STARTS = 0
    FAILS = 1
    UNUSABLE = 2
    """Arguments or input that can't be used."""
    NOT_CHECKED = 3
    """Not checked as far as `--require` asks, or the verdict is unknown."""
    PROBE_BROKE = 4
    INTERRUPTED = 130
