"""OSC 52 gets through tmux and screen."""

from __future__ import annotations

import base64

from kvtui.tui.clipboard import SCREEN_CHUNK, osc52


def test_plain_terminal() -> None:
    assert osc52("a b", {}) == f"\x1b]52;c;{base64.b64encode(b'a b').decode()}\x07"


def test_tmux_doubles_escapes() -> None:
    text = osc52("a", {"TMUX": "/tmp/x", "TERM": "screen-256color"})
    assert text.startswith("\x1bPtmux;\x1b\x1b]52;")
    assert text.endswith("\x1b\\")


def test_screen_gets_short_pieces() -> None:
    text = osc52("x" * 500, {"TERM": "screen"})
    pieces = text.split("\x1bP")[1:]
    assert len(pieces) > 5
    assert all(len(piece) <= SCREEN_CHUNK + 2 for piece in pieces)
    joined = "".join(piece.removesuffix("\x1b\\") for piece in pieces)
    assert joined == osc52("x" * 500, {})
