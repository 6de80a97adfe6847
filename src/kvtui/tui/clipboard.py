"""Copy through the terminal: OSC 52, wrapped for tmux and screen so that it gets through."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any

from textual.app import App

SCREEN_CHUNK = 76
"""GNU screen drops longer device control strings."""


def osc52(text: str, env: Mapping[str, str]) -> str:
    """The escape sequence that puts `text` on the clipboard of the terminal under `env`."""
    data = base64.b64encode(text.encode()).decode()
    plain = f"\x1b]52;c;{data}\x07"
    if env.get("TMUX"):
        return "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if env.get("TERM", "").startswith("screen"):
        parts = [plain[i : i + SCREEN_CHUNK] for i in range(0, len(plain), SCREEN_CHUNK)]
        return "".join(f"\x1bP{part}\x1b\\" for part in parts)
    return plain


def copy(app: App[Any], text: str) -> None:
    """Put `text` on the clipboard, as far as the terminal lets us."""
    app._clipboard = text
    driver = app._driver
    if driver is None:
        return
    if os.environ.get("TMUX"):
        # Plain OSC 52 fills tmux's own buffer; the wrapped one reaches the terminal outside.
        driver.write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")
    driver.write(osc52(text, os.environ))
