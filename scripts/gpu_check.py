"""Build, write, read, offload and free every kind of KV pool on a CUDA device; print the table.

    python scripts/gpu_check.py [--device cuda:0] [--python CMD] [--only TEXT] [--small]

Writes docs/gpu-check.json and docs/gpu-check.md. Without a CUDA device it says so and ends well.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvtui.core.argv import parse
from kvtui.core.evaluate import evaluate
from kvtui.core.facts import Facts
from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find
from kvtui.core.pools.spec import BufferSpec, PoolPlan, SubPool
from kvtui.probe.pool.client import PoolOutcome, PoolRequest, run_check
from kvtui.probe.pool.device_memory import has_nvidia_device
from kvtui.probe.pool.plan_request import default_python
from kvtui.probe.pool.protocol import HostTier, Offload

GIB = 1 << 30
SMALL_BYTES = 4 * GIB
HOST_BYTES = 4 * GIB
TIME_LIMIT_S = 180.0
DOCS = Path(__file__).resolve().parents[1] / "docs"


@dataclass(frozen=True)
class Case:
    """One pool to check: a catalogue launch judged for `gpu`, or a plan of its own."""

    name: str
    launch: str = ""
    gpu: str = "h200"
    plan: PoolPlan | None = None
    host: HostTier | None = None
    whole: bool = False
    """Build the planned size (or all that fits) instead of a few GiB."""


def minimax_plan(tokens: int = 1 << 18, page: int = 128) -> PoolPlan:
    """`MiniMaxSparseKVPool` of one of eight ranks: 60 layers, 57 of them with index keys."""
    rows = tokens + page

    def buffer(name: str, layers: int) -> BufferSpec:
        return BufferSpec(name, "bfloat16", (rows, 1, 128), layers)

    main = (buffer("main_pool.k_buffer", 60), buffer("main_pool.v_buffer", 60))
    index = (buffer("index_k_pool.k_buffer", 57),)
    return PoolPlan(
        "MiniMaxSparseKVPool", "bfloat16", 45312, page, tokens,
        (SubPool("full", "MHATokenToKVPool", tokens, page, page, main, layers=60),
         SubPool("index", "MHATokenToKOnlyPool", tokens, page, page, index, layers=57)),
        "PagedTokenToKVPoolAllocator",
    )  # fmt: skip


PAGE_FIRST = HostTier("page_first", "kernel")
MHA_PAGED = "--model-path Qwen/Qwen3-8B --page-size 64"
MLA_PAGED = "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --page-size 64"
CASES = (
    Case("MHA", "--model-path Qwen/Qwen3-8B", host=PAGE_FIRST),
    Case("MHA, planned size", MHA_PAGED, host=PAGE_FIRST, whole=True),
    Case("MHA FP8", "--model-path Qwen/Qwen3-8B --kv-cache-dtype fp8_e4m3", host=PAGE_FIRST),
    Case("MHA FP4", "--model-path Qwen/Qwen3-32B-FP8 --kv-cache-dtype fp4_mx_block16"
         " --attention-backend triton --page-size 256"),
    Case("MHA NVFP4", "--model-path Qwen/Qwen3-VL-8B-Instruct --kv-cache-dtype nvfp4", "b200"),
    Case("MHA MXFP8", "--model-path Qwen/Qwen3-8B --tp-size 2 --kv-cache-dtype mxfp8"
         " --page-size 128", "b200", host=PAGE_FIRST),
    Case("MLA", "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8", host=PAGE_FIRST),
    Case("MLA FP4", "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --kv-cache-dtype nvfp4"
         " --page-size 64", "b200"),
    Case("DSA", "--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8", host=PAGE_FIRST),
    Case("DSA FP8", "--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8 --kv-cache-dtype fp8_e4m3",
         host=PAGE_FIRST),
    Case("SWA", "--model-path openai/gpt-oss-20b", host=PAGE_FIRST),
    Case("SWA, unequal K and V", "--model-path XiaomiMiMo/MiMo-V2-Flash --tp-size 8",
         host=PAGE_FIRST),
    Case("hybrid GDN", "--model-path Qwen/Qwen3.5-27B", host=PAGE_FIRST),
    Case("hybrid KDA with MLA", "--model-path moonshotai/Kimi-K3 --tp-size 8", host=PAGE_FIRST),
    Case("hybrid Mamba2", "--model-path nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
         host=PAGE_FIRST),
    Case("MiniMax sparse", plan=minimax_plan(), host=PAGE_FIRST),
    Case("DeepSeek-V4", "--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 8", host=PAGE_FIRST),
    Case("unified hybrid", "--model-path Qwen/Qwen3.5-27B --enable-unified-memory"
         " --attention-backend triton --enable-page-major-kv-layout", host=PAGE_FIRST),
    Case("unified SWA", "--model-path openai/gpt-oss-20b --enable-unified-memory",
         host=PAGE_FIRST),
    Case("no-op", "--model-path Qwen/Qwen3-8B --is-embedding --prefill-only-disable-kv-cache"
         " --chunked-prefill-size -1 --disable-radix-cache --attention-backend fa3"),
    Case("MHA host", MHA_PAGED, host=HostTier("layer_first", "kernel")),
    Case("MHA host", MHA_PAGED, host=HostTier("page_head", "kernel")),
    Case("MHA host", MHA_PAGED, host=HostTier("layer_first", "direct")),
    Case("MHA host", MHA_PAGED, host=HostTier("page_first_direct", "direct")),
    Case("MLA host", MLA_PAGED, host=HostTier("layer_first", "direct")),
    Case("MLA host", MLA_PAGED, host=HostTier("page_first_kv_split", "kernel_ascend")),
)  # fmt: skip


def plan_of(case: Case) -> PoolPlan:
    """The pool of a case; raises ValueError where the rules plan none."""
    if case.plan is not None:
        return case.plan
    draft = replace(parse(shlex.split(case.launch)), gpu=case.gpu)
    path = str(draft.options["model_path"])
    checkpoint = find(path)
    known = {} if checkpoint is None else {path: checkpoint}
    report = evaluate(draft, Facts(checkpoints=known, gpu=find_gpu(case.gpu), gpu_count=8))
    if report.pool is None:
        raise ValueError(f"{case.name}: no pool is planned for {case.launch}")
    return report.pool


def request_of(case: Case, args: argparse.Namespace, free: int) -> PoolRequest:
    """What the child is asked; large pools get the planned size where it fits."""
    plan = plan_of(case)
    offload = None
    if plan.decode_offload and plan.writable and case.host is not None:
        offload = Offload(stride=2 * plan.page_size, storage="file")
    whole = case.whole and not args.small
    room = int(free * 0.9)
    return PoolRequest(
        plan,
        device=args.device,
        python=tuple(shlex.split(args.python)) if args.python else default_python(),
        full=whole and plan.nbytes <= room,
        limit_bytes=room if whole else min(SMALL_BYTES, room),
        host_limit_bytes=HOST_BYTES,
        time_limit_s=TIME_LIMIT_S,
        host=case.host if plan.writable else None,
        offload=offload,
    )


def step_of(outcome: PoolOutcome, name: str) -> dict[str, Any]:
    """A step with its figures; empty if it did not run."""
    steps = outcome.report.get("steps", [])
    return next((dict(entry) for entry in steps if entry.get("step") == name), {})


def row_of(case: Case, plan: PoolPlan, outcome: PoolOutcome) -> dict[str, Any]:
    """One line of the table."""
    build, work, sweep = (step_of(outcome, name) for name in ("build", "exercise", "sweep"))
    host, offload = step_of(outcome, "host"), step_of(outcome, "offload")
    release = step_of(outcome, "release")
    trips = host.get("figures", {}).get("round_trips", [])
    return {
        "case": case.name,
        "class": plan.class_name,
        "planned_gib": round(plan.nbytes / GIB, 2),
        "allocated_gib": round(build.get("figures", {}).get("allocated_bytes", 0) / GIB, 2),
        "build_s": build.get("figures", {}).get("seconds"),
        "exercise_s": work.get("seconds"),
        "compared_mib": work.get("figures", {}).get("bytes_compared", 0) >> 20,
        "sweep_gib": round(sweep.get("figures", {}).get("bytes", 0) / GIB, 2),
        "sweep_s": sweep.get("seconds"),
        "layout": f"{case.host.layout}/{case.host.io_backend}" if host and case.host else "",
        "out_gb_s": max((trip["out_gb_s"] for trip in trips), default=None),
        "in_gb_s": max((trip["in_gb_s"] for trip in trips), default=None),
        "plain": host.get("figures", {}).get("plain_copy"),
        "offload": bool(offload.get("figures", {}).get("checks")),
        "left_over": release.get("figures", {}).get("left_over_bytes"),
        "left_over_driver": outcome.report.get("device_left_over_bytes"),
        "wall_s": outcome.report.get("wall_seconds"),
        "ok": outcome.ok,
        "error": outcome.error,
    }


HEADS = ("pool", "class", "planned GiB", "allocated GiB", "build s", "exercise s", "swept GiB",
         "sweep s", "host tier", "out GB/s", "in GB/s", "plain out/in", "offload", "left over B",
         "result")  # fmt: skip


def cells(row: dict[str, Any]) -> list[str]:
    """A row as texts."""
    plain = row["plain"]
    left = [row["left_over"], row["left_over_driver"]]
    return [
        row["case"], row["class"], *(_text(row[key]) for key in (
            "planned_gib", "allocated_gib", "build_s", "exercise_s", "sweep_gib", "sweep_s",
        )), row["layout"] or "–", _text(row["out_gb_s"]), _text(row["in_gb_s"]),
        f"{plain['out_gb_s']:.1f}/{plain['in_gb_s']:.1f}" if plain else "–",
        "yes" if row["offload"] else "–",
        "/".join(str(value) for value in left if value is not None) or "–",
        "passed" if row["ok"] else f"failed: {row['error']}",
    ]  # fmt: skip


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def table(rows: Iterable[Sequence[str]]) -> str:
    """Rows under HEADS as an aligned Markdown table."""
    every = [HEADS, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(HEADS))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in every
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def page(device: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """docs/gpu-check.md."""
    passed = sum(row["ok"] for row in rows)
    total = device.get("total_bytes", 0) / GIB
    return f"""# GPU check

Written by `make gpu-check`, which builds each pool below on a CUDA device in a child process,
writes and reads it back bit for bit through slot allocators, sends pages to the host pool and
back, runs the decode offload manager where the pool takes it, and frees everything.

- device: {device.get("name")}, {total:.1f} GiB, driver {device.get("driver") or "unknown"}
- torch {device.get("torch")}, CUDA {device.get("cuda")}, Python {device.get("python")}
- {passed} of {len(rows)} pools passed

`swept` is what was written and read as whole allocations; `plain` are single pinned copies of the
same size in the same run; `left over` is what torch / the driver still held afterwards.

{table(cells(row) for row in rows)}
"""


def find_device(args: argparse.Namespace) -> tuple[PoolOutcome, int]:
    """A first small check: tells whether there is a CUDA device, and how much of it is free."""
    plan = plan_of(CASES[0])
    request = PoolRequest(
        plan, device=args.device, limit_bytes=64 << 20, steps=("build",),
        python=tuple(shlex.split(args.python)) if args.python else default_python(),
    )  # fmt: skip
    outcome = run_check(request)
    return outcome, int(outcome.report.get("free_bytes", 0))


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cases; 0 when all passed or the machine has no GPU, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--python", default="", help="a Python (or command) whose torch has CUDA")
    parser.add_argument("--only", default="", help="cases whose name or class contains this")
    parser.add_argument("--small", action="store_true", help="no pool of the planned size")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder for table and JSON")
    args = parser.parse_args(argv)
    first, free = find_device(args)
    if not first.ok:
        print(f"gpu-check: {first.error}; nothing was checked and nothing written")
        return 1 if has_nvidia_device() else 0
    device = dict(first.report["device"])
    print(f"gpu-check on {device['name']}, torch {device['torch']}, {free / GIB:.1f} GiB free")
    rows = []
    for case in CASES:
        plan = plan_of(case)
        if args.only.lower() not in f"{case.name} {plan.class_name}".lower():
            continue
        outcome = run_check(request_of(case, args, free))
        rows.append(row_of(case, plan, outcome))
        print(" · ".join(cells(rows[-1])), flush=True)
    args.docs.mkdir(parents=True, exist_ok=True)
    body = json.dumps({"device": device, "rows": rows}, indent=1, ensure_ascii=False)
    (args.docs / "gpu-check.json").write_text(body + "\n", encoding="utf-8")
    (args.docs / "gpu-check.md").write_text(page(device, rows), encoding="utf-8")
    print(table(cells(row) for row in rows))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
