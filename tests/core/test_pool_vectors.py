"""Every pool that the engine itself built for the shared vectors, where those lie beside us."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvtui.core.argv import parse
from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.facts import Checkpoint, Facts
from kvtui.core.gpus import find_gpu
from kvtui.core.resolution import Sizing

SHARED = Path(__file__).parents[3] / "shared"
VECTORS = sorted((SHARED / "vectors").glob("*.jsonl"))
LEAST_RIGHT = 0.995

pytestmark = pytest.mark.skipif(not VECTORS, reason="no shared vectors beside the repository")


def pool_rows() -> list[dict[str, Any]]:
    """The vectors with a pool or a refusal of one."""
    rows = [json.loads(line) for file in VECTORS for line in file.read_text().splitlines()]
    return [
        row
        for row in rows
        if row["verdict"] != "spoilt"
        and ((row.get("pool") or {}).get("pool_class") or row.get("stage") in ("pool", "offload"))
    ]


def checkpoint(path: str, cache: dict[str, Checkpoint]) -> Checkpoint:
    """A checkpoint of the shared models."""
    if path not in cache:
        folder = SHARED / path
        quant = folder / "hf_quant_config.json"
        cache[path] = Checkpoint(
            name=folder.name,
            key=str(folder),
            config=json.loads((folder / "config.json").read_text()),
            quant_config=json.loads(quant.read_text()) if quant.is_file() else None,
        )
    return cache[path]


def report_on(row: dict[str, Any], cache: dict[str, Checkpoint]) -> Report:
    """What the rules say about a vector's launch, sized as the engine's was."""
    draft = parse(row["argv"])
    paths = (draft.options.get("model_path"), draft.options.get("speculative_draft_model_path"))
    known = {one: checkpoint(one, cache) for one in paths if isinstance(one, str)
             and (SHARED / one / "config.json").is_file()}  # fmt: skip
    draft = Draft(options=draft.options, env=draft.env, gpu=row["gpu"], unknown=draft.unknown)
    facts = Facts(checkpoints=known, gpu=find_gpu(row["gpu"]), gpu_count=8)
    return evaluate(draft, facts, Sizing(row["tokens"], 16, 8))


def test_pools_are_the_engines() -> None:
    cache: dict[str, Checkpoint] = {}
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    wrong: list[str] = []
    for row in pool_rows():
        report = report_on(row, cache)
        for what, holds in _compared(row, report):
            total[what] += 1
            right[what] += holds
            if not holds:
                wrong.append(f"{what}: {row['id']}")
    assert total["class"] > 100
    for what, count in total.items():
        assert right[what] >= LEAST_RIGHT * count, [one for one in wrong if one.startswith(what)]


def _compared(row: dict[str, Any], report: Report) -> list[tuple[str, bool]]:
    if row["verdict"] == "fails":
        stages = {finding.stage.value for finding in report.errors}
        return [("refusal", bool(stages & {"pool", "offload"}))]
    engine, plan = row["pool"], report.pool
    if plan is None:
        return [("class", False)]
    listed = Counter((one.dtype, tuple(one.shape), one.count) for one in plan.buffers)
    built = Counter(
        (dtype.replace("torch.", ""), tuple(shape), count)
        for dtype, shape, count in engine["tensors"].values()
    )
    found = [("class", plan.class_name == engine["pool_class"]), ("buffers", listed == built)]
    if engine.get("cell_size"):
        found.append(("bytes per token", plan.bytes_per_token == engine["cell_size"]))
    return found
