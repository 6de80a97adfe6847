"""Every shipped preset is accepted by the engine itself, for the preset's own GPU."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import pytest

from kvtui.core.draft import Draft
from kvtui.core.evaluate import evaluate
from kvtui.core.options import NEWEST
from kvtui.probe.engine.client import ask_once
from kvtui.probe.engine.discover import find_engine
from kvtui.probe.engine.facts import claim_of, question_of
from kvtui.probe.presets import list_presets
from tests.support import facts_for

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.xdist_group("engine")]


def launches() -> dict[str, Draft]:
    """Shipped launches by name, both halves of pairs included."""
    found: dict[str, Draft] = {}
    for stored in list_presets():
        if not stored.shipped:
            continue
        if stored.pair is not None:
            found |= {f"{stored.name} ({r})": stored.pair.half(r) for r in ("prefill", "decode")}
        elif stored.preset is not None:
            found[stored.name] = stored.preset.draft
    return found


def test_the_engine_accepts_every_preset() -> None:
    named = os.environ.get("KVTUI_ENGINE")
    if not named:
        pytest.skip("KVTUI_ENGINE names no Python with SGLang")
    engine = find_engine(named)
    assert engine is not None
    (hello,) = ask_once(engine, [{"ask": "hello"}])
    if hello["version"] != NEWEST:
        pytest.skip(f"presets are written for {NEWEST}; this is {hello['version']}")
    by_gpu: dict[tuple[str | None, int | None], list[str]] = defaultdict(list)
    drafts = launches()
    assert len(drafts) >= 24
    for name, draft in drafts.items():
        by_gpu[draft.gpu, draft.gpu_count].append(name)
    refused: dict[str, Any] = {}
    for names in by_gpu.values():
        reports = [evaluate(drafts[name], facts_for(drafts[name])) for name in names]
        questions = [question_of(report) for report in reports]
        answers = ask_once(engine, questions, claim=claim_of(reports[0].facts), limit_s=120)
        for name, answer in zip(names, answers, strict=True):
            if answer.get("accepted") is not True:
                refused[name] = answer.get("error")
    assert refused == {}
