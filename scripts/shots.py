"""Makes docs/shots/*.svg: the real app and the real rules on a machine that is made up.

python scripts/shots.py [NAME …]
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from kvtui.core.argv import parse
from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report
from kvtui.core.facts import Checkpoint, EngineFact, Facts, HostFacts, PoolFact
from kvtui.core.gpus import find_gpu
from kvtui.tui.app import KvtuiApp, make_app
from kvtui.tui.prober import LocalModel, Machine, PoolEvent, PoolStep
from kvtui.tui.settings import Settings

SHOTS = Path(__file__).resolve().parent.parent / "docs" / "shots"
GIB = 1 << 30


class MadeUpMachine:
    """Two H200 with a few models on disk; every check passes."""

    async def machine(self) -> Machine:
        """What the welcome lists."""
        gpu = find_gpu("h200")
        assert gpu is not None
        gpu = replace(gpu, local=True, free_mib=gpu.memory_mib - 530)
        host = HostFacts(1900 * GIB, 1720 * GIB, cpus=192)
        return Machine(gpu, 2, host, "2.13.0+cu130", "0.5.23", "~/sglang")

    async def models(self) -> Sequence[LocalModel]:
        """Models of the hub cache."""
        names = ("openai/gpt-oss-20b", "Qwen/Qwen3-8B", "Qwen/Qwen3.5-27B")
        return tuple(LocalModel(name, "hub cache") for name in names)

    async def checkpoint(self, path: str) -> Checkpoint:
        """From the catalogue that comes with kvtui."""
        from kvtui.probe.model import load_checkpoint

        return load_checkpoint(path)

    async def fetch(self, hub_id: str) -> Checkpoint:
        """There is no network in pictures."""
        return await self.checkpoint(hub_id)

    async def pool(self, report: Report) -> AsyncGenerator[PoolEvent, None]:
        """Passes."""
        yield PoolStep(1, 5, "Build")
        name = report.pool.class_name if report.pool else ""
        tokens = report.capacity.max_total_num_tokens // 4 if report.capacity else 0
        result = {"class": name, "tokens": tokens, "place": "cuda:0 at 25% of the slots",
                  "wall_seconds": 6.0}  # fmt: skip
        yield PoolFact(report.key, True, result)

    async def engine(self, report: Report, on_progress: Callable[[str], None]) -> EngineFact:
        """Agrees with the rules."""
        del on_progress
        error = report.errors[0].message if report.errors else None
        stage = report.errors[0].stage.value if report.errors else None
        return EngineFact(report.key, error is None, "0.5.23", "~/sglang", error=error, stage=stage)

    async def close(self) -> None:
        """Nothing to end."""


@dataclass(frozen=True)
class Shot:
    """One picture: a launch, a size, the keys pressed before it is taken."""

    name: str
    argv: str = ""
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (80, 24)
    settings: Settings = field(default_factory=lambda: Settings(glyphs="unicode"))


OFFLOAD = (
    "--model-path Qwen/Qwen3.5-27B --tp-size 2 --disaggregation-mode decode "
    "--disaggregation-decode-enable-offload-kvcache --hicache-storage-backend file"
)

ALL = (
    Shot("welcome"),
    Shot("setup", OFFLOAD, ("4", "down", "p", "g"), (140, 40)),
    Shot("starts", "--model-path openai/gpt-oss-20b", ("4", "down", "p", "g"), (140, 40)),
    Shot("small", "--model-path Qwen/Qwen3-8B --kv-cache-dtype fp8_e4m3", ("4", "down", "p")),
    Shot("editor", "--model-path Qwen/Qwen3-8B", ("4", "down", "enter", "down", "down")),
    Shot("fixes", OFFLOAD, ("F",), (100, 30)),
    Shot("why", OFFLOAD, ("w",), (100, 30)),
    Shot("matrix", "--model-path openai/gpt-oss-20b", ("m",), (110, 30)),
    Shot("export", "--model-path Qwen/Qwen3-8B", ("p", "e", "down"), (100, 30)),
    Shot("search", "--model-path Qwen/Qwen3-8B", ("slash", *"gpu-mem"), (100, 30)),
    Shot(
        "light", "--model-path Qwen/Qwen3-8B", ("3", "down"), (140, 40),
        Settings(theme="kvtui-light", glyphs="unicode"),
    ),
)  # fmt: skip


async def rest(app: KvtuiApp, pause: Callable[[float], object]) -> None:
    """Until every worker has ended and is drawn."""
    for _ in range(100):
        await pause(0.05)  # type: ignore[misc]
        if all(worker.is_finished for worker in app.workers):
            break
    await pause(0.05)  # type: ignore[misc]


async def take(shot: Shot) -> str:
    """The picture as SVG."""
    draft = parse(shot.argv.split()) if shot.argv else Draft()
    app = make_app(
        draft, Facts(gpu_count=0), MadeUpMachine(), settings=shot.settings, clock=lambda: 100.0
    )
    app.today = lambda: datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
    async with app.run_test(size=shot.size) as pilot:
        await rest(app, pilot.pause)
        for key in shot.keys:
            await pilot.press({"-": "minus"}.get(key, key))
            await rest(app, pilot.pause)
        svg = app.export_screenshot(title="kvtui", simplify=True)
    return re.sub(r"terminal-\d+", f"kvtui-{shot.name}", svg)


def main() -> None:
    """Take the pictures that are named, or all."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    for shot in ALL:
        if len(sys.argv) == 1 or shot.name in sys.argv[1:]:
            (SHOTS / f"{shot.name}.svg").write_text(asyncio.run(take(shot)), encoding="utf-8")
            print(SHOTS / f"{shot.name}.svg")


if __name__ == "__main__":
    main()
