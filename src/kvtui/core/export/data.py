"""Exports for programs and for kvtui itself: JSON and presets."""

from __future__ import annotations

import json
from typing import Any

from kvtui.core.command import argv_of
from kvtui.core.export.job import ExportJob, Secret, env_of, parts_of
from kvtui.core.preset import Meta, Preset, dump_preset
from kvtui.core.secrets import secrets_of, without_secrets

SCHEMA = 1


def as_json(job: ExportJob) -> str:
    """The launch as one JSON object: command, options, environment, hardware, evidence."""
    parts_of(job)
    draft = without_secrets(job.draft)
    evidence = job.evidence
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "engine_version": job.engine_version,
        "command": list(argv_of(draft, program=job.program)),
        "options": dict(draft.options),
        "unknown": list(draft.unknown),
        "env": {k: v for k, v in env_of(job).items() if not isinstance(v, Secret)},
        "secrets": list(secrets_of(job.draft)),
        "hardware": {"gpu": draft.gpu, "count": draft.gpu_count},
        "checked": list(evidence.checked) if evidence else [],
        "not_checked": list(evidence.not_checked) if evidence else ["everything"],
        "written": {"by": f"kvtui {evidence.kvtui_version}", "at": evidence.time}
        if evidence
        else None,
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def as_preset(job: ExportJob) -> str:
    """The launch as a preset without proof."""
    return dump_preset(Preset(job.draft, Meta(title=job.name if job.name != "sglang" else "")))
