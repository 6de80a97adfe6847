"""The formats that a launch leaves in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One way out: its name, what it is for, the file it would be."""

    key: str
    title: str
    file_name: str
    make: Callable[[Report], str]


def _command(report: Report) -> str:
    from kvtui.core.command import command_text

    return command_text(report) + "\n"


def _preset(report: Report) -> str:
    from kvtui.core.preset import Preset, dump_preset

    return dump_preset(Preset(report.draft))


def _json(report: Report) -> str:
    from kvtui.core.render import to_json

    return json.dumps(to_json(report), indent=2) + "\n"


FORMATS: tuple[ExportFormat, ...] = (
    ExportFormat("command", "one command", "launch.txt", _command),
    ExportFormat("preset", "kvtui preset", "launch.toml", _preset),
    ExportFormat("json", "the report as JSON", "launch.json", _json),
)
"""Formats in the order in which they are offered."""
