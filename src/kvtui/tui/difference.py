"""A difference between rules and engine as a file that can be sent to us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


def save_difference(report: Report, folder: Path | None, time: str) -> Path:
    """Write what rules and engine say of the launch; returns the file.

    Raises InputError where the file can't be written.
    """
    from kvtui.core.difference import difference_of
    from kvtui.probe.presets import write_whole

    name = f"difference-{report.key}.json"
    path = (folder / name) if folder is not None else Path(name)
    write_whole(path, json.dumps(difference_of(report, time), indent=2, default=str) + "\n")
    return path
