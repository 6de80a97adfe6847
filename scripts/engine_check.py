"""Measure the engine probe against installed releases of SGLang; docs/engine-check.md is its page.

    python scripts/engine_check.py --cache ~/.cache/kvtui-engine --out figures.json
    python scripts/engine_check.py --vectors launches.jsonl --models FOLDER --out figures.json
    python scripts/engine_check.py --page docs/engine-check.md --out figures.json

The first line asks all four questions of every release in the cache for claimed GPUs and takes
the times; the second draws launches from a file of what the newest release did and asks again
(`FOLDER` holds the `models/…` that they name); the third writes the page. Figures are kept in
`--out`, so each can be run on its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from engine_check_compare import differences
from engine_check_page import page_of

from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find
from kvtui.core.options import NEWEST, stored_versions
from kvtui.probe.engine.client import EngineError, EngineProbe
from kvtui.probe.engine.discover import EnginePython, find_engine

GPUS = ("h100", "b200", "rtx4090")
LAUNCHES = (
    ("Qwen/Qwen3-8B", ()),
    ("Qwen/Qwen3-8B", ("--kv-cache-dtype", "fp8_e4m3")),
    ("deepseek-ai/DeepSeek-V3", ("--tp-size", "8")),
    ("openai/gpt-oss-20b", ()),
    ("Qwen/Qwen3.5-27B", ()),
)
BUDGETS = tuple(gib << 30 for gib in (1, 10, 37))
STARTS = 3
WARM = 20
SEED = 5
LIMIT_S = 180.0


def claim_of(key: str) -> dict[str, Any]:
    """The claim of a GPU of the catalogue."""
    gpu = find_gpu(key)
    if gpu is None:
        raise SystemExit(f"{key}: not in the GPU catalogue")
    return {
        "name": gpu.name, "capability": list(gpu.capability), "memory_mib": gpu.memory_mib
    }  # fmt: skip


def question_of(model: str, words: tuple[str, ...], ask: str) -> dict[str, Any]:
    """A question about a catalogue model; its configuration travels along."""
    checkpoint = find(model)
    if checkpoint is None:
        raise SystemExit(f"{model}: not in the catalogue")
    return {
        "ask": ask,
        "argv": ["--model-path", model, *words],
        "files": {model: {"config.json": dict(checkpoint.config)}},
        "tokens": 8192,
    }


async def ask_release(engine: EnginePython, key: str) -> list[dict[str, Any]]:
    """Hello, schema, and a pool for each launch of one release with one claimed GPU."""
    probe = EngineProbe(engine, claim_of(key))
    try:
        hello = await probe.ask({"ask": "hello"})
        schema = await probe.ask({"ask": "schema"})
        rows = [{"version": hello["version"], "gpu": key, "torch": hello["torch"],
                 "options": len(schema["options"])}]  # fmt: skip
        for model, words in LAUNCHES:
            answer = await probe.ask(question_of(model, words, "pool"), limit_s=LIMIT_S)
            built = answer.get("pool") or {}
            why = answer.get("error") or (answer.get("pool_error") or {}).get("error") or ""
            rows.append(
                {
                    "version": hello["version"], "gpu": key, "model": model,
                    "words": " ".join(words), "accepted": answer.get("accepted"),
                    "stage": answer.get("stage"), "why": str(why)[:120],
                    "backends": (answer.get("resolved") or {}).get("backends"),
                    "class": built.get("class"), "bytes_per_token": built.get("bytes_per_token"),
                    "decode_offload": built.get("decode_offload"), "hicache": built.get("hicache"),
                    "took_s": answer.get("took_s"),
                }
            )  # fmt: skip
        return rows
    finally:
        await probe.close()


def bare_import_s(engine: EnginePython) -> float:
    """Seconds to import the release's arguments in a Python of its own."""
    before = time.monotonic()
    subprocess.run(
        [*engine.command, "-c", "import sglang.srt.server_args"], capture_output=True, check=True
    )
    return time.monotonic() - before


async def times_of(engine: EnginePython) -> dict[str, Any]:
    """Cold start beside the bare import in turns, warm answers, and answers beside a pool."""
    bare, cold = [], []
    probe = EngineProbe(engine, claim_of("h100"))
    for _ in range(STARTS):
        bare.append(await asyncio.to_thread(bare_import_s, engine))
        await probe.close()
        before = time.monotonic()
        version = await probe.start()
        cold.append(time.monotonic() - before)
    try:
        question = question_of("Qwen/Qwen3-8B", (), "resolve")
        pool = {**question_of("Qwen/Qwen3-8B", (), "pool"), "tokens": 32768}
        alone, cpu = [], []
        for _ in range(WARM):
            took, answer = await _timed(probe, question)
            alone.append(took)
            cpu.append(answer["cpu_s"])
        beside = []
        for _ in range(WARM // 4):
            running = asyncio.create_task(probe.ask(pool, limit_s=LIMIT_S))
            await asyncio.sleep(0.05)
            beside.append((await _timed(probe, question))[0])
            await running
    finally:
        await probe.close()
    return {
        "version": version, "bare_s": bare, "cold_s": cold, "warm_s": alone, "warm_cpu_s": cpu,
        "beside_pool_s": beside, "load": os.getloadavg()[0], "cpus": os.cpu_count(),
    }  # fmt: skip


async def _timed(probe: EngineProbe, question: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    before = time.monotonic()
    answer = await probe.ask(question, limit_s=LIMIT_S)
    return time.monotonic() - before, answer


async def ask_vectors(engine: EnginePython, path: Path, draw: int) -> dict[str, Any]:
    """Ask a drawn sample of recorded launches again; what differs, launch by launch."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    known = [row for row in rows if row["verdict"] != "spoilt" and find_gpu(row["gpu"])]
    drawn = random.Random(SEED).sample(known, min(draw, len(known)))
    by_gpu: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in drawn:
        by_gpu[row["gpu"]].append(row)
    found: dict[str, Any] = {"launches": len(drawn), "pools": 0, "artefacts": [], "different": []}
    for key, group in by_gpu.items():
        probe = EngineProbe(engine, claim_of(key))
        try:
            for row in group:
                question = {
                    "ask": "pool", "argv": row["argv"], "env": row.get("env"),
                    "tokens": row.get("tokens"), "budget_bytes": BUDGETS,
                }  # fmt: skip
                answer = await probe.ask(question, limit_s=LIMIT_S)
                found["pools"] += "pool" in row
                if row.get("pool_spoilt"):
                    found["artefacts"].append(
                        {"id": row["id"], "theirs": row["pool_spoilt"],
                         "ours": answer.get("pool_error") or "built"}
                    )  # fmt: skip
                different = differences(row, answer)
                if different:
                    found["different"].append({"id": row["id"], "gpu": key, "what": different})
        except EngineError as error:
            found["different"].append({"id": key, "gpu": key, "what": [str(error)]})
        finally:
            await probe.close()
    return found


def main() -> None:
    """Measure what the arguments ask for, and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, help="folder with sglang-VERSION environments")
    parser.add_argument("--vectors", type=Path, help="recorded launches of the newest release")
    parser.add_argument("--models", type=Path, help="folder in which their paths are right")
    parser.add_argument("--engine", default=f"~/.cache/kvtui-engine/sglang-{NEWEST}")
    parser.add_argument("--draw", type=int, default=300)
    parser.add_argument("--page", type=Path, help="write the page there")
    parser.add_argument("--out", type=Path, default=Path("engine-check.json"))
    args = parser.parse_args()
    figures = json.loads(args.out.read_text()) if args.out.exists() else {}
    figures["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, no GPU asked"
    out, vectors = args.out.resolve(), args.vectors and args.vectors.resolve()
    if args.cache:
        figures["releases"], figures["times"] = [], []
        for version in stored_versions():
            engine = find_engine(str(args.cache.expanduser() / f"sglang-{version}"))
            assert engine is not None
            for key in GPUS:
                figures["releases"] += asyncio.run(ask_release(engine, key))
                print(f"{version} {key}", flush=True)
            figures["times"].append(asyncio.run(times_of(engine)))
    if vectors:
        engine = find_engine(str(Path(args.engine).expanduser()))
        assert engine is not None
        page = args.page and args.page.resolve()
        args.page = page
        os.chdir(args.models)
        figures["vectors"] = asyncio.run(ask_vectors(engine, vectors, args.draw))
        print(json.dumps(figures["vectors"], indent=1))
    out.write_text(json.dumps(figures, indent=1) + "\n")
    for row in figures.get("times", ()):
        ratio = statistics.median(row["cold_s"]) / statistics.median(row["bare_s"])
        print(f"{row['version']}: warm {statistics.median(row['warm_s']):.2f} s, {ratio:.2f} x")
    if args.page:
        args.page.write_text(page_of(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
