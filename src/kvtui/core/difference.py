"""A difference between rules and engine as data that can be sent to us: it is our fault."""

from __future__ import annotations

from typing import Any

from kvtui.core.command import argv_of
from kvtui.core.evaluate import Report
from kvtui.core.render import to_json
from kvtui.core.secrets import secrets_of, without_secrets


def difference_of(report: Report, time: str) -> dict[str, Any]:
    """Launch, model, rules' answer and engine's answer; secrets are left out.

    `time` is UTC in ISO 8601. The report must hold an engine's answer.
    """
    engine = report.engine_fact
    assert engine is not None
    draft = without_secrets(report.draft)
    gpu = report.facts.gpu
    rules = {**to_json(report), "command": list(argv_of(draft))}
    hidden = secrets_of(report.draft)
    rules["effective"] = {k: v for k, v in rules["effective"].items() if k not in hidden}
    return {
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
