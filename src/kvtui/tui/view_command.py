"""The command as it grows, its changed parts marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from textual.content import Content

from kvtui.core.command import command_parts, quote
from kvtui.core.options import catalogue
from kvtui.tui.view import flow
from kvtui.tui.words import Tone

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


def command_content(report: Report, changed: frozenset[str], width: int, most: int = 0) -> Content:
    """The command broken between options, changed parts marked.

    Of more than `most` lines (0: any number) the last are left out, but never the changed part.
    """
    pieces = list(_command_pieces(report, changed))
    lines = flow(pieces, max(20, width - 4), gap=1)
    if most and len(lines) > most:
        lines = _window(lines, most)
    return Content(" \\\n").join(
        Content.assemble("  " if index else "", line) for index, line in enumerate(lines)
    )


def _window(lines: list[Content], most: int) -> list[Content]:
    """`most` lines that hold the first one and the last that has a changed part."""
    fresh = [
        i for i, line in enumerate(lines) if any("underline" in str(s.style) for s in line.spans)
    ]
    end = max(most, (fresh[-1] + 1) if fresh else most)
    kept = [lines[0], *lines[end - most + 1 : end]] if most > 1 else lines[end - 1 : end]
    if end < len(lines):
        left = f" … {len(lines) - end} more"
        kept[-1] = Content.assemble(kept[-1], (left, Tone.QUIET))
    return kept


def _command_pieces(report: Report, changed: frozenset[str]) -> Iterator[Content]:
    names = _flag_names()
    for name, value in sorted(report.draft.env.items()):
        style = "bold underline" if f"env:{name}" in changed else ""
        yield Content.styled(quote((f"{name}={value}",)), style)
    for index, part in enumerate(command_parts(report)):
        text = quote(part)
        if index == 0:
            yield Content.styled(text, Tone.QUIET)
            continue
        option = names.get(part[0].split("=")[0])
        fresh = option in changed
        flag, space, rest = text.partition(" ")
        mark = "bold underline " if fresh else ""
        yield Content.assemble((flag, f"{mark}{Tone.KEY}"), space, (rest, mark.strip()))


def _flag_names() -> Mapping[str, str]:
    return {flag: option.name for flag, option in catalogue().by_flag.items()}
