"""How fast kvtui is on this machine: `make bench`. Absolute figures, and ratios that travel.

Every figure stands beside its budget and beside a yardstick taken in the same run (starting a
bare Python, or one pass over the option table), since machines differ and are shared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

LAUNCHES = (
    ("Qwen/Qwen3-8B", "h100", "--kv-cache-dtype fp8_e4m3"),
    ("deepseek-ai/DeepSeek-V3", "h200", "--tp-size 8 --enable-hierarchical-cache"),
    ("openai/gpt-oss-20b", "b200", "--attention-backend triton --page-size 64"),
    ("Qwen/Qwen3.5-27B", "h200", "--mamba-full-memory-ratio 0.5 --max-running-requests 64"),
    ("Qwen/Qwen3-8B", "a100-80", "--disaggregation-mode decode --hicache-storage-backend file "
     "--disaggregation-decode-enable-offload-kvcache"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement."""

    name: str
    value: float
    unit: str
    budget: float | None
    yardsticks: float
    """The value in units of its yardstick."""
    higher_is_better: bool = False

    @property
    def within(self) -> bool | None:
        """Whether the budget is kept."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.higher_is_better else self.value <= self.budget


def median_s(run: Callable[[], object], times: int = 7) -> float:
    """Median wall seconds of `run`, the first (cold) one left out."""
    run()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def python(*words: str) -> Callable[[], object]:
    """Run this Python with words."""
    return lambda: subprocess.run([sys.executable, *words], capture_output=True, check=False)


def measure_command_line(bare_s: float) -> list[Result]:
    """Start-up of the words that people wait for."""
    help_s = median_s(python("-m", "kvtui", "--help"))
    check = ["-m", "kvtui", "check", "--gpu", "h100", "--", "--model-path", "Qwen/Qwen3-8B"]
    check_s = median_s(python(*check))
    return [
        Result("kvtui --help", help_s, "s", 0.10, help_s / bare_s),
        Result("kvtui check (one launch)", check_s, "s", None, check_s / bare_s),
    ]


def measure_core(bare_s: float) -> list[Result]:
    """evaluate, the matrix, and batch mode, all in one process on one core."""
    import shlex
    from dataclasses import replace

    from kvtui.core.argv import parse
    from kvtui.core.evaluate import evaluate
    from kvtui.core.facts import Facts
    from kvtui.core.gpus import find_gpu
    from kvtui.core.matrix import build_matrix
    from kvtui.core.model.catalogue import find

    pairs = []
    for model, gpu, words in LAUNCHES:
        draft = replace(parse(["--model-path", model, *shlex.split(words)]), gpu=gpu)
        checkpoint = find(model)
        assert checkpoint is not None
        facts = Facts(checkpoints={model: checkpoint}, gpu=find_gpu(gpu), gpu_count=8)
        pairs.append((draft, facts))
    for draft, facts in pairs:
        evaluate(draft, facts)
    taken = []
    for _ in range(60):
        for draft, facts in pairs:
            start = time.perf_counter()
            evaluate(draft, facts)
            taken.append(time.perf_counter() - start)
    evaluate_s = statistics.median(taken)
    matrix_s = median_s(lambda: build_matrix(*pairs[0]), 3)
    lines = "".join(
        json.dumps({"id": i, "argv": ["--model-path", m, *shlex.split(w)], "gpu": g}) + "\n"
        for i, (m, g, w) in enumerate(LAUNCHES * 300)
    )
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "kvtui", "check", "--batch", "-", "--json"],
                   input=lines, text=True, capture_output=True, check=False)  # fmt: skip
    batch_s = time.perf_counter() - start
    rate = len(LAUNCHES) * 300 / batch_s
    return [
        Result("evaluate, median", evaluate_s * 1000, "ms", 2.0, evaluate_s / bare_s),
        Result("matrix of one model", matrix_s, "s", 1.0, matrix_s / bare_s),
        Result("check --batch", rate, "launches/s", 500, rate * bare_s, higher_is_better=True),
    ]


SCREEN = """
import asyncio, json, resource, statistics, sys, time
start = time.perf_counter()
from kvtui.core.draft import Draft
from kvtui.core.findings import Change
from kvtui.core.facts import Facts
from kvtui.core.gpus import find_gpu
from kvtui.core.model.catalogue import find
from kvtui.tui.app import make_app

async def run():
    model = "Qwen/Qwen3-8B"
    facts = Facts(checkpoints={model: find(model)}, gpu=find_gpu("h100"), gpu_count=8)
    app = make_app(Draft(options={"model_path": model}, gpu="h100"), facts)
    painted = [0.0]
    paint = app._display

    def timed(*args):  # the moment of the last paint, without the waiting of the test pilot
        paint(*args)
        painted[0] = time.perf_counter()

    app._display = timed
    async with app.run_test(size=(140, 40)) as pilot:
        first = time.perf_counter() - start
        await pilot.pause()
        taken = []
        for key in ["down", "up"] * 30:
            before = time.perf_counter()
            await pilot.press(key)
            taken.append(max(0.0, painted[0] - before))
        edits = []
        for value in ["fp8_e4m3", "fp8_e5m2"] * 15:
            before = time.perf_counter()
            app.edit([Change("kv_cache_dtype", value)])
            await pilot.pause(0.05)
            edits.append(max(0.0, painted[0] - before))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    p95 = lambda rows: sorted(rows)[int(len(rows) * 0.95)]
    print(json.dumps([first, p95(taken), p95(edits), peak, "torch" in sys.modules]))

asyncio.run(run())
"""


def measure_screen(bare_s: float) -> list[Result]:
    """First frame, keys, edits and memory of the screen, headless at 140 x 40."""
    done = subprocess.run([sys.executable, "-c", SCREEN], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-800:], file=sys.stderr)
        return []
    first, key, edit, peak, has_torch = json.loads(done.stdout.splitlines()[-1])
    assert not has_torch, "torch must not be imported by the screen"
    return [
        Result("first frame", first, "s", 0.5, first / bare_s),
        Result("key to screen, 95th percentile", key * 1000, "ms", 50, key / bare_s),
        Result("edit to verdict, 95th percentile", edit * 1000, "ms", 50, edit / bare_s),
        Result("memory of the screen", peak, "MiB", 120, 0.0),
    ]


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table."""
    rows = ["| what | value | budget | in bare Python starts |", "|---|---|---|---|"]
    for r in results:
        mark = {True: "✓", False: "✗", None: ""}[r.within]
        budget = "" if r.budget is None else f"{r.budget:g} {r.unit} {mark}"
        rows.append(f"| {r.name} | {r.value:.3g} {r.unit} | {budget} | {r.yardsticks:.3g} |")
    return "\n".join(rows)


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    bare_s = median_s(python("-c", "pass"), 9)
    results = [Result("bare Python", bare_s, "s", None, 1.0)]
    for part in (measure_command_line, measure_core, measure_screen):
        results += part(bare_s)
    print(json.dumps([asdict(r) for r in results]) if args.json else table(results))


if __name__ == "__main__":
    main()
