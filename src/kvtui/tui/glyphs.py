"""The signs that carry a state beside its colour, and their plain spelling for old terminals."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from kvtui.core.findings import Severity


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs; every sign of a set has the same width where columns depend on it."""

    name: str
    ok: str = "✓"
    warn: str = "!"
    bad: str = "✗"
    unknown: str = "?"
    stale: str = "…"
    differ: str = "≠"
    none: str = "–"
    cursor: str = "›"
    on: str = "●"
    off: str = "○"
    arrow: str = "→"
    dot: str = "·"
    changed: str = "•"
    opened: str = "▾"
    closed: str = "▸"
    enter: str = "⏎"
    bars: tuple[str, ...] = ("█", "▓", "▒", "▚", "░")
    """Fill signs of a memory picture, one a part, the free part last."""
    rule: str = "─"
    times: str = "×"
    about: str = "≈"

    @property
    def sign_width(self) -> int:
        """Cells of the widest verdict sign, for columns."""
        return max(len(sign) for sign in (self.ok, self.warn, self.bad, self.unknown))

    def severity(self, severity: Severity) -> str:
        """The sign of a finding's weight."""
        return {Severity.ERROR: self.bad, Severity.WARNING: self.warn}.get(severity, self.dot)


UNICODE = Glyphs("unicode")
ASCII = Glyphs(
    "ascii",
    ok="[ok]", warn="[!]", bad="[X]", unknown="[?]", stale="...", differ="[!=]", none="-",
    cursor=">", on="(*)", off="( )", arrow="->", dot="-", changed="*", opened="v", closed=">",
    enter="Enter", bars=("#", "=", "+", "%", "."), rule="-", times="x", about="~",
)  # fmt: skip

_PLAIN = {
    "✓": "v", "✗": "X", "≠": "!", "–": "-", "—": "-", "›": ">", "●": "*", "○": "o", "→": ">",
    "·": "-", "•": "*", "▾": "v", "▸": ">", "⏎": "<", "█": "#", "▓": "=", "▒": "+", "▚": "%",
    "░": ".", "─": "-", "━": "-", "│": "|", "┃": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+",
    "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+",
    "▔": "-", "▁": "_", "▊": "|", "▎": "|", "▌": "|", "▐": "|", "▕": "|", "▏": "|", "…": ".",
    "×": "x", "≈": "~", "≤": "<", "≥": ">", "↑": "^", "↓": "v", "←": "<", "’": "'", "‘": "'",
    "“": '"', "”": '"', "▄": "_", "▀": "-", "╸": "-", "╺": "-", "╷": "|", "╵": "|", "▲": "^",
    "▼": "v", "⬤": "*", "≡": "=", "µ": "u", "⭘": "o",
}  # fmt: skip


def plain(text: str) -> str:
    """`text` in ASCII, one character for one, so that columns stay where they are."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else _PLAIN.get(c) or _block(c) for c in text)


def _block(char: str) -> str:
    """Blocks (scroll bars draw with them) are shades of nothing; the rest can't be shown."""
    return " " if "\u2580" <= char <= "\u259f" else "?"


def choose_glyphs(wanted: str, env: Mapping[str, str] | None = None) -> Glyphs:
    """The set for `wanted` (auto | unicode | ascii); auto looks at the terminal's locale.

    An unset locale counts as UTF-8: containers often have none, and their terminals are UTF-8.
    """
    if wanted in ("unicode", "ascii"):
        return ASCII if wanted == "ascii" else UNICODE
    env = os.environ if env is None else env
    if env.get("TERM") in ("dumb", "vt100", "vt220"):
        return ASCII
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or "utf-8"
    if "utf" not in locale.lower():
        return ASCII
    stream = sys.__stderr__
    encoding = (stream.encoding if stream else None) or "utf-8"
    return UNICODE if "utf" in encoding.lower() else ASCII
