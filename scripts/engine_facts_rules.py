"""Which of the rules' refusals a release lacks: each rule's example, asked of its engine."""

from __future__ import annotations

import asyncio
import shlex
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvtui.core.argv import parse
from kvtui.core.evaluate import evaluate
from kvtui.core.facts import Checkpoint, Facts
from kvtui.core.findings import Severity, Stage
from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find
from kvtui.core.resolution import Rule
from kvtui.core.rulebook import rules
from kvtui.probe.engine.client import EngineError, EngineProbe
from kvtui.probe.engine.discover import EnginePython
from kvtui.probe.engine.facts import claim_of, question_of

ASKED = {Stage.RESOLVE: "resolve", Stage.CHECK: "resolve", Stage.POOL: "pool",
         Stage.OFFLOAD: "pool"}  # fmt: skip
"""Stages that an engine without weights can be asked about, and the question for each. What the
parser refuses is told by the option tables."""
LIMIT_S = 120.0


def questions() -> Iterator[tuple[str, Rule, dict[str, Any], dict[str, Any]]]:
    """(GPU key, rule, claim, question) of every rule whose example an engine can judge."""
    for rule in rules():
        example = rule.example
        if example is None or rule.severity is not Severity.ERROR or rule.stage not in ASKED:
            continue
        gpu = find_gpu(example.gpu)
        draft = parse(["--model-path", example.model, *shlex.split(example.argv)])
        draft = replace(draft, env={**draft.env, **example.env}, gpu=example.gpu)
        known: dict[str, Checkpoint] = {}
        for option in ("model_path", "speculative_draft_model_path"):
            path = draft.options.get(option)
            checkpoint = find(path) if isinstance(path, str) else None
            if checkpoint is not None:
                known[str(path)] = checkpoint
        report = evaluate(draft, Facts(checkpoints=known, gpu=gpu))
        claim = claim_of(report.facts)
        if claim is not None:
            yield example.gpu, rule, claim, question_of(report, ASKED[rule.stage])


async def lacking(engine: EnginePython) -> list[str]:
    """Ids of the rules whose example this release accepts, in the book's order."""
    by_gpu: dict[str, list[tuple[Rule, dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for key, rule, claim, question in questions():
        by_gpu[key].append((rule, claim, question))
    accepted: set[str] = set()
    for group in by_gpu.values():
        probe = EngineProbe(engine, group[0][1])
        try:
            for rule, _, question in group:
                try:
                    answer = await probe.ask(question, limit_s=LIMIT_S)
                except EngineError:
                    continue
                if answer.get("accepted") is True and "pool_error" not in answer:
                    accepted.add(rule.id)
        finally:
            await probe.close()
    return [rule.id for rule in rules() if rule.id in accepted]


def lacking_of(engine: EnginePython) -> list[str]:
    """`lacking` for callers without an event loop."""
    return asyncio.run(lacking(engine))
