"""The real world behind the screen: probes run in threads or children, never in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from kvtui.core.facts import Checkpoint, EngineFact
from kvtui.tui.prober import LocalModel, Machine, PoolEvent, ProbeError

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


class RealProber:
    """Asks this machine."""

    def __init__(self, *, folders: Sequence[str] = (), download: bool = False) -> None:
        self.folders = tuple(folders)
        self.download = download

    async def machine(self) -> Machine:
        """GPU through NVML, host memory, the version of torch that is installed."""
        return await asyncio.to_thread(_machine)

    async def models(self) -> Sequence[LocalModel]:
        """The hub cache and the folders of the config file."""
        return await asyncio.to_thread(_models, self.folders)

    async def checkpoint(self, path: str) -> Checkpoint:
        """The configuration behind a path or id."""
        from kvtui.probe.model import load_checkpoint

        return await asyncio.to_thread(load_checkpoint, path, download=self.download)

    async def pool(self, report: Report) -> AsyncGenerator[PoolEvent, None]:
        """Build the pool in a child process."""
        raise ProbeError("the pool check is not built in yet")
        yield

    async def engine(self, report: Report) -> EngineFact:
        """Ask an installed SGLang."""
        raise ProbeError("no SGLang was found")


def _machine() -> Machine:
    from kvtui.probe.gpu import read_gpus
    from kvtui.probe.host import read_host

    found = read_gpus()
    host = read_host()
    missing = {}
    if found.first is None:
        missing["gpu"] = found.reason
    if host is None:
        missing["host"] = "no /proc here"
    try:
        torch: str | None = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch, missing["torch"] = None, "torch is not installed"
    return Machine(gpu=found.first, gpu_count=found.count, host=host, torch=torch, missing=missing)


def _models(folders: Sequence[str]) -> tuple[LocalModel, ...]:
    from kvtui.probe.model import cached_models, models_in

    found = [LocalModel(hub_id, "hub cache") for hub_id in cached_models()]
    for text in folders:
        found += [LocalModel(str(path), text) for path in models_in(Path(text).expanduser())]
    return tuple(found)
