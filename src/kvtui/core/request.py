"""A short key for what was asked, so that an answer to another setting is never taken for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.facts import Facts


def digest(data: Any) -> str:
    """16 hex digits over JSON-like data, key order ignored."""
    text = json.dumps(data, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def launch_digest(draft: Draft) -> str:
    """Key of the launch alone: options, environment, unknown words."""
    return digest([dict(draft.options), dict(draft.env), list(draft.unknown)])


def request_key(draft: Draft, facts: Facts) -> str:
    """Key of a launch on one machine with one checkpoint: what an engine's answer belongs to."""
    gpu = facts.gpu
    models: Mapping[str, str] = {path: c.key for path, c in facts.checkpoints.items()}
    return digest(
        [
            launch_digest(draft),
            [gpu.name, gpu.memory_mib, gpu.capability] if gpu else None,
            facts.gpu_count,
            dict(models),
        ]
    )
