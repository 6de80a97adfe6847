"""Ask an installed SGLang about recorded launches and write its answers beside them.

record.py --engine PYTHON FILE…   each line: {"model", "gpu", "argv", "env"?}; answers are put into
the same line: verdict, error_fragment, resolved (only the values that the rules work out).
Run after a rule changes or for a new release; the differential test reads the files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find
from kvtui.probe.engine.client import EngineError, EngineProbe
from kvtui.probe.engine.discover import find_engine

KEPT = (
    "backends", "kv_cache_dtype", "page_size", "mem_fraction_static", "chunked_prefill_size",
    "cuda_graph_max_bs_decode", "disable_radix_cache", "hicache_mem_layout",
    "hicache_io_backend", "hicache_ratio", "swa_full_tokens_ratio",
    "disable_hybrid_swa_memory", "disaggregation_decode_retraction_backup", "tp_size",
    "attn_dp_size", "dp_size", "speculative_algorithm", "speculative_num_steps",
    "speculative_eagle_topk", "speculative_num_draft_tokens", "max_running_requests",
    "disable_overlap_schedule", "moe_runner_backend", "sampling_backend", "dtype",
    "mamba_radix_cache_strategy", "linear_attn_backend", "mamba_backend",
)  # fmt: skip
FRAGMENT = 100


async def record(probe: EngineProbe, case: dict[str, Any]) -> dict[str, Any]:
    """The case with the engine's answer in it."""
    checkpoint = find(case["model"])
    if checkpoint is None:
        raise SystemExit(f"{case['model']}: not in the catalogue")
    files: dict[str, Any] = {case["model"]: {"config.json": dict(checkpoint.config)}}
    if checkpoint.quant_config:
        files[case["model"]]["hf_quant_config.json"] = dict(checkpoint.quant_config)
    answer = await probe.ask(
        {
            "ask": case.get("ask", "resolve"),
            "argv": ["--model-path", case["model"], *case["argv"]],
            "env": case.get("env"),
            "files": files,
        },
        limit_s=120,
    )
    kept: dict[str, Any] = {k: case[k] for k in ("model", "gpu", "argv", "env", "ask") if k in case}
    if answer.get("accepted"):
        resolved = answer["resolved"]
        return {**kept, "verdict": "starts", "resolved": {k: resolved.get(k) for k in KEPT}}
    error = str(answer.get("error") or answer.get("error_type"))
    return {**kept, "verdict": "fails", "stage": answer.get("stage"),
            "error_fragment": error.strip().splitlines()[0][:FRAGMENT]}  # fmt: skip


async def run(engine: str, paths: list[Path]) -> None:
    """Record all files, one warm engine for each GPU."""
    found = find_engine(engine)
    if found is None:
        raise SystemExit("no SGLang was found; name one with --engine")
    cases = {
        path: [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        for path in paths
    }
    by_gpu: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path, rows in cases.items():
        for index, case in enumerate(rows):
            by_gpu[case["gpu"]].append((path, index))
    for key, places in by_gpu.items():
        gpu = find_gpu(key)
        if gpu is None:
            raise SystemExit(f"{key}: not in the GPU catalogue")
        claim = {"name": gpu.name, "capability": gpu.capability, "memory_mib": gpu.memory_mib}
        probe = EngineProbe(found, claim)
        try:
            for path, index in places:
                try:
                    cases[path][index] = await record(probe, cases[path][index])
                except EngineError as error:
                    print(f"{path.name}:{index + 1}: {error}", file=sys.stderr)
        finally:
            await probe.close()
        print(f"{key}: {len(places)} launches", file=sys.stderr)
    for path, rows in cases.items():
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    """Parse arguments and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args()
    asyncio.run(run(args.engine, args.files))


if __name__ == "__main__":
    main()
