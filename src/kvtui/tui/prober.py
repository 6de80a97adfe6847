"""What the screen asks of the world, as a protocol: the real thing probes, tests pretend."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from kvtui.core.facts import Checkpoint, EngineFact, GpuFacts, HostFacts, PoolFact
from kvtui.errors import InputError

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


class ProbeError(InputError):
    """A probe could not answer; the text is one clear line for the user."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that kvtui runs on; what was not found says why in `missing`."""

    gpu: GpuFacts | None = None
    gpu_count: int = 0
    host: HostFacts | None = None
    torch: str | None = None
    """Version of the torch that a pool check would use, with its build."""
    engine: str | None = None
    """Version of the SGLang that was found."""
    engine_place: str = ""
    """Where it was found: a Python, a container, a host."""
    missing: Mapping[str, str] = field(default_factory=_nothing)
    """Reason by name (`gpu`, `host`, `torch`, `engine`)."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that lies on this machine."""

    path: str
    """What a launch would name: folder or hub id."""
    place: str
    """Where it lies, for people: `HF cache`, `~/models`."""
    note: str = ""
    """One short line on it, such as architecture and size."""


@dataclass(frozen=True, slots=True)
class PoolStep:
    """Progress of a pool check: step `number` of `total` begins."""

    number: int
    total: int
    text: str


PoolEvent = PoolStep | PoolFact


class Prober(Protocol):
    """The world outside, asked without blocking a key.

    A call may be cancelled at any time and then leaves nothing behind. A call that cannot answer
    raises ProbeError or another InputError.
    """

    async def machine(self) -> Machine:
        """GPU, host memory, torch and SGLang of this machine."""
        ...

    async def models(self) -> Sequence[LocalModel]:
        """Models on this machine: the Hugging Face cache and the folders given."""
        ...

    async def checkpoint(self, path: str) -> Checkpoint:
        """The configuration of the model that `path` names (folder, config.json or hub id)."""
        ...

    async def fetch(self, hub_id: str) -> Checkpoint:
        """Like `checkpoint`, for a model that is not here: its JSON files come from the hub."""
        ...

    def pool(self, report: Report) -> AsyncGenerator[PoolEvent, None]:
        """Build the report's pool for real; the last event is the fact, tagged with the key of
        the report or of its pool plan."""
        ...

    async def engine(self, report: Report, on_progress: Callable[[str], None]) -> EngineFact:
        """What an SGLang says to the report's launch, tagged `report.key`."""
        ...

    async def close(self) -> None:
        """Leave nothing behind: called once, when the app ends."""
        ...


class NoProber:
    """A prober that knows nothing: the rules alone judge."""

    async def machine(self) -> Machine:
        """Nothing is known of the machine."""
        missing = dict.fromkeys(("gpu", "host", "torch", "engine"), "not looked for")
        return Machine(missing=missing)

    async def models(self) -> Sequence[LocalModel]:
        """No models."""
        return ()

    async def checkpoint(self, path: str) -> Checkpoint:
        """Always refuses."""
        raise ProbeError(f"{path}: no way to read models is at hand")

    async def fetch(self, hub_id: str) -> Checkpoint:
        """Always refuses."""
        raise ProbeError(f"{hub_id}: no way to the hub is at hand")

    async def pool(self, report: Report) -> AsyncGenerator[PoolEvent, None]:
        """Always refuses."""
        raise ProbeError("pool check: no torch worker is at hand")
        yield  # makes this a generator

    async def engine(self, report: Report, on_progress: Callable[[str], None]) -> EngineFact:
        """Always refuses."""
        raise ProbeError("engine: no SGLang is at hand")

    async def close(self) -> None:
        """Nothing to leave."""
