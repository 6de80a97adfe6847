"""One GPU's memory as a bar with its numbers in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from kvtui.tui.capacity import Picture, picture
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.view import flow
from kvtui.tui.words import Tone, gib_text

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


def memory_block(report: Report, g: Glyphs, width: int) -> Content:
    """A bar of one GPU's memory with the numbers beside it, and what fits into it."""
    shown: Picture | None = picture(report)
    if shown is None:
        return Content("")
    lines = [_bar(shown, g, width), *_legend(shown, g, width)]
    lines.extend(Content.styled(line, Tone.PLAIN) for line in shown.sentences)
    return Content("\n").join(lines)


PART_TONES = (Tone.KEY, Tone.GOOD, Tone.ASK, Tone.WARN, Tone.QUIET)


def _bar(shown: Picture, g: Glyphs, width: int) -> Content:
    title = f"GPU {gib_text(shown.total)}"
    room = max(10, width - len(title) - 1)
    total = max(1, shown.total)
    spans: list[Content] = [Content.styled(f"{title} ", Tone.QUIET)]
    used = 0
    for index, part in enumerate(shown.parts):
        cells = round(room * part.size / total)
        if part.size > 0 and cells == 0:
            cells = 1
        cells = max(0, min(cells, room - used))
        used += cells
        style_index = index % (len(g.bars) - 1)
        spans.append(Content.styled(g.bars[style_index] * cells, PART_TONES[style_index]))
    spans.append(Content.styled(g.bars[-1] * (room - used), Tone.QUIET))
    return Content("").join(spans)


def _legend(shown: Picture, g: Glyphs, width: int) -> list[Content]:
    items: list[Content] = []
    for index, part in enumerate(shown.parts):
        style_index = index % (len(g.bars) - 1)
        items.append(
            Content.assemble(
                (g.bars[style_index], PART_TONES[style_index]),
                f" {part.name} {g.about if part.about else ''}",
                (gib_text(part.size), "bold"),
            )
        )
    if shown.free >= 0:
        left = (gib_text(shown.free), "bold")
        items.append(Content.assemble((g.bars[-1], Tone.QUIET), " free ", left))
    else:
        items.append(Content.styled(f"{gib_text(-shown.free)} too much", f"bold {Tone.BAD}"))
    return flow(items, width)
