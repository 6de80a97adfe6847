"""One exception for input that can't be used: it becomes one clear line and exit code 2."""

from __future__ import annotations


class InputError(Exception):
    """Something from outside is missing, malformed or too large.

    The text names the file, the key, and what was expected; `way_out` says what to do.
    """

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(what)
        self.way_out = way_out

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}; {self.way_out}" if self.way_out else text
