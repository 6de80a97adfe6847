"""The real world behind the screen: probes run in threads or children, never in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from kvtui.core.facts import Checkpoint, EngineFact
from kvtui.tui.prober import LocalModel, Machine, PoolEvent, PoolStep, ProbeError
from kvtui.tui.settings import Settings

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report
    from kvtui.probe.engine.client import EngineProbe
    from kvtui.probe.engine.discover import EnginePython
    from kvtui.probe.pool.protocol import PoolEvent as ChildEvent
    from kvtui.probe.pool.protocol import PoolOutcome


class RealProber:
    """Asks this machine; one engine stays warm between questions."""

    def __init__(self, settings: Settings | None = None, *, download: bool = False) -> None:
        self.settings = settings or Settings()
        self.download = download
        self._engine: EngineProbe | None = None

    async def machine(self) -> Machine:
        """GPU through NVML, host memory, the torch and the SGLang that are installed."""
        return await asyncio.to_thread(_machine, self.settings.engine)

    async def models(self) -> Sequence[LocalModel]:
        """The hub cache and the folders of the config file."""
        return await asyncio.to_thread(_models, self.settings.model_folders)

    async def checkpoint(self, path: str) -> Checkpoint:
        """The configuration behind a path or id."""
        from kvtui.probe.model import load_checkpoint

        return await asyncio.to_thread(load_checkpoint, path, download=self.download)

    async def fetch(self, hub_id: str) -> Checkpoint:
        """The configuration of a model on the hub; no weights are fetched."""
        from kvtui.probe.model import load_checkpoint

        return await asyncio.to_thread(load_checkpoint, hub_id, download=True)

    async def pool(self, report: Report) -> AsyncGenerator[PoolEvent, None]:
        """Build the pool in a child process; leaving the loop early takes the child down."""
        from kvtui.probe.pool.client import check_pool
        from kvtui.probe.pool.plan_request import request_for
        from kvtui.probe.pool.protocol import PoolOutcome

        request = request_for(
            report, python=self.settings.pool_python, limit_bytes=self.settings.pool_limit
        )
        total = 5 + (request.host is not None) + (request.offload is not None)
        number = 0
        events: asyncio.Queue[ChildEvent | PoolOutcome] = asyncio.Queue()

        async def run() -> None:
            events.put_nowait(await check_pool(request, events.put_nowait))

        child = asyncio.create_task(run())
        try:
            while True:
                event = await _next_event(events, child)
                if isinstance(event, PoolOutcome):
                    yield event.fact()
                    return
                if event.event == "step" and event.state == "started":
                    number += 1
                    yield PoolStep(number, max(number, total), event.title or event.step)
        finally:
            child.cancel()
            with suppress(asyncio.CancelledError):
                await child

    async def engine(self, report: Report, on_progress: Callable[[str], None]) -> EngineFact:
        """Ask the SGLang of this machine; it is started once and kept."""
        from kvtui.probe.engine.client import EngineProbe
        from kvtui.probe.engine.discover import find_engine
        from kvtui.probe.engine.facts import ask_engine, claim_of

        claim = claim_of(report.facts)
        probe = self._engine
        if probe is None or probe.claim != claim:
            await self.close()
            engine = await asyncio.to_thread(find_engine, self.settings.engine)
            if engine is None:
                raise ProbeError("no SGLang was found on this machine", "kvtui doctor says where")
            probe = self._engine = EngineProbe(engine, claim)
        return await ask_engine(probe, report, pool=True, on_progress=on_progress)

    async def close(self) -> None:
        """End the engine that is kept."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None


async def _next_event(
    events: asyncio.Queue[ChildEvent | PoolOutcome], child: asyncio.Task[None]
) -> ChildEvent | PoolOutcome:
    """The next event, or the error with which the check broke."""
    getter = asyncio.create_task(events.get())
    await asyncio.wait({getter, child}, return_when=asyncio.FIRST_COMPLETED)
    if getter.done() or not events.empty():
        return await getter
    getter.cancel()
    child.result()
    raise ProbeError("the pool check ended without a result")


def _machine(wanted: str) -> Machine:
    from kvtui.probe.engine.discover import find_engine
    from kvtui.probe.gpu import read_gpus
    from kvtui.probe.host import read_host

    found, host = read_gpus(), read_host()
    missing = {}
    if found.first is None:
        missing["gpu"] = found.reason
    if host is None:
        missing["host"] = "/proc/meminfo is not readable here"
    try:
        torch: str | None = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch, missing["torch"] = None, "torch is not installed: pools can't be built"
    engine = find_engine(wanted)
    version = engine_version(engine) if engine is not None else None
    if version is None:
        missing["engine"] = "none found here"
    return Machine(
        gpu=found.first,
        gpu_count=found.count,
        host=host,
        torch=torch,
        engine=version,
        engine_place=engine.place if engine is not None else "",
        missing=missing,
    )


def engine_version(engine: EnginePython) -> str | None:
    """The release of an engine's SGLang, told from its folders alone; None where they are far."""
    root = Path(engine.command[0]).parent.parent
    names = [path.name for path in root.glob("lib/python3*/site-packages/sglang-*.dist-info")]
    return names[0].removeprefix("sglang-").removesuffix(".dist-info") if names else None


def _models(folders: Sequence[str]) -> tuple[LocalModel, ...]:
    from kvtui.probe.model import cached_models, models_in

    found = [LocalModel(hub_id, "hub cache") for hub_id in cached_models()]
    for text in folders:
        found += [LocalModel(str(path), text) for path in models_in(Path(text).expanduser())]
    return tuple(found)
