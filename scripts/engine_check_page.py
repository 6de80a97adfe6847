"""The page docs/engine-check.md from the figures of `engine_check.py`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

TITLE = """# The engine probe, measured

Made by `scripts/engine_check.py`; do not edit. No release was changed for it, and no GPU was
there: GPUs are claimed, pools are built on the CPU by the release's own configurator.
"""


def page_of(figures: dict[str, Any]) -> str:
    """All tables for which there are figures."""
    lines = [TITLE, f"Machine: {figures.get('machine', '?')}.", ""]
    if figures.get("releases"):
        lines += _releases(figures["releases"])
    if figures.get("times"):
        lines += _times(figures["times"])
    if figures.get("vectors"):
        lines += _vectors(figures["vectors"])
    return "\n".join(lines).rstrip() + "\n"


def _releases(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Four questions, by release and claimed GPU"
    yield ""
    heads = [row for row in rows if "options" in row]
    asked = [row for row in rows if "model" in row]
    for head in heads:
        if head["gpu"] == heads[0]["gpu"]:
            yield f"- SGLang {head['version']}: torch {head['torch']}, {head['options']} options"
    yield ""
    yield ("| release | GPU | launch | answer | back ends | pool class | B/token | decode offload "
           "| HiCache |")  # fmt: skip
    yield "|---|---|---|---|---|---|---:|---|---|"
    for row in asked:
        launch = f"{row['model']} {row['words']}".strip()
        answer = "accepts" if row["accepted"] else f"refuses ({row['stage']})"
        if row["why"]:
            answer += f": {row['why'].splitlines()[0].replace('|', '/')}"
        backends = " / ".join(map(str, dict.fromkeys(row["backends"] or ())))
        size = f"{row['bytes_per_token']:,}" if row["bytes_per_token"] else ""
        offload, hicache = (_word(row[name]) for name in ("decode_offload", "hicache"))
        yield (f"| {row['version']} | {row['gpu']} | `{launch}` | {answer} | {backends} "
               f"| {row['class'] or ''} | {size} | {offload} | {hicache} |")  # fmt: skip
    yield ""


def _word(value: bool | None) -> str:
    return {True: "yes", False: "no", None: ""}[value]


def _times(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Times"
    yield ""
    yield ("Medians in seconds. Cold start and the bare `import sglang.srt.server_args` were taken "
           "in turns; the load is that of other work on the machine meanwhile.")  # fmt: skip
    yield ""
    yield ("| release | bare import | cold start | ratio | warm resolve | its CPU time "
           "| resolve beside a pool | load |")  # fmt: skip
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        bare, cold = statistics.median(row["bare_s"]), statistics.median(row["cold_s"])
        warm, cpu, beside = (
            statistics.median(row[name]) for name in ("warm_s", "warm_cpu_s", "beside_pool_s")
        )
        yield (f"| {row['version']} | {bare:.1f} | {cold:.1f} | {cold / bare:.2f} | {warm:.2f} "
               f"| {cpu:.2f} | {beside:.2f} | {row['load']:.1f} |")  # fmt: skip
    yield ""


def _vectors(found: dict[str, Any]) -> Iterator[str]:
    equal = found["launches"] - len(found["different"])
    yield "## Recorded launches asked again"
    yield ""
    yield (f"{found['launches']} launches drawn with a fixed seed from what SGLang 0.5.23 was "
           f"recorded to do, {found['pools']} of them with their pools: verdict, stage, "
           f"error text, type and place, resolved values, pool class, buffers and capacities "
           f"are equal in {equal} ({equal / found['launches']:.1%}).")  # fmt: skip
    yield ""
    for row in found["different"]:
        yield f"- {row['id']} ({row['gpu']}): {'; '.join(row['what'])[:300]}"
    if found["artefacts"]:
        yield ""
        yield "Launches whose pool the recording harness could not build (not compared):"
        yield ""
        for row in found["artefacts"]:
            ours = row["ours"] if isinstance(row["ours"], str) else row["ours"]["error"]
            yield f"- {row['id']}: recorded `{str(row['theirs'])[:120]}`, ours `{ours[:120]}`"
