"""The last word on ASCII: whatever is drawn, only ASCII reaches an old terminal."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from kvtui.tui.glyphs import plain


class PlainFilter(LineFilter):
    """Replaces every character outside ASCII by a plain one of the same width."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments in ASCII."""
        return [
            segment
            if segment.control or segment.text.isascii()
            else Segment(plain(segment.text), segment.style)
            for segment in segments
        ]
