"""A difference between rules and engine as a file that can be sent to us: it is our fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kvtui.core.secrets import secrets_of, without_secrets

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


def save_difference(report: Report, folder: Path | None, time: str) -> Path:
    """Write launch, rules' answer and engine's answer; secrets are left out.

    Raises InputError where the file can't be written.
    """
    from kvtui.core.command import argv_of
    from kvtui.core.render import to_json
    from kvtui.probe.presets import write_whole

    engine = report.engine_fact
    assert engine is not None
    draft = without_secrets(report.draft)
    gpu = report.facts.gpu
    rules = {**to_json(report), "command": list(argv_of(draft))}
    hidden = secrets_of(report.draft)
    rules["effective"] = {k: v for k, v in rules["effective"].items() if k not in hidden}
    data = {
        "time": time,
        "argv": list(argv_of(draft)),
        "env": dict(draft.env),
        "gpu": gpu.name if gpu else None,
        "gpu_count": report.facts.gpu_count,
        "config": {
            path: dict(checkpoint.config) for path, checkpoint in report.facts.checkpoints.items()
        },
        "rules": rules,
        "engine": {
            "version": engine.version,
            "accepted": engine.accepted,
            "error_type": engine.error_type,
            "error": engine.error,
            "stage": engine.stage,
            "at": engine.at,
        },
    }
    name = f"difference-{report.key}.json"
    path = (folder / name) if folder is not None else Path(name)
    write_whole(path, json.dumps(data, indent=2, default=str) + "\n")
    return path
