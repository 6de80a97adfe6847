"""Build drafts and facts for tests from catalogue models and GPUs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvtui.core.argv import parse
from kvtui.core.draft import MODEL_OPTIONS, Draft
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.facts import Checkpoint, Facts
from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find


def draft_of(
    argv: str | Sequence[str],
    *,
    gpu: str | None = None,
    gpu_count: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Draft:
    """A draft from SGLang arguments as text."""
    words = shlex.split(argv) if isinstance(argv, str) else list(argv)
    draft = parse(words)
    return replace(draft, env={**draft.env, **(env or {})}, gpu=gpu, gpu_count=gpu_count)


def facts_for(draft: Draft, checkpoints: Mapping[str, Checkpoint] | None = None) -> Facts:
    """Facts for a draft: its catalogue GPU (eight of them unless said), catalogue models."""
    known = dict(checkpoints or {})
    for option in MODEL_OPTIONS:
        path = draft.options.get(option)
        if isinstance(path, str) and path not in known:
            checkpoint = find(path)
            if checkpoint is not None:
                known[path] = checkpoint
    gpu = find_gpu(draft.gpu) if draft.gpu else None
    missing = {} if gpu else {"gpu": "none named"}
    return Facts(checkpoints=known, gpu=gpu, gpu_count=draft.gpu_count or 8, missing=missing)


def judge(
    argv: str | Sequence[str],
    gpu: str = "h100",
    *,
    gpu_count: int | None = None,
    env: Mapping[str, str] | None = None,
    checkpoints: Mapping[str, Checkpoint] | None = None,
) -> Report:
    """The report on SGLang arguments for a catalogue GPU."""
    draft = draft_of(argv, gpu=gpu, gpu_count=gpu_count, env=env)
    return evaluate(draft, facts_for(draft, checkpoints))


def errors_of(report: Report) -> set[str]:
    """Ids of the rules that make a launch fail."""
    return {finding.rule for finding in report.errors}
