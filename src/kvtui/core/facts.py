"""What is known about the world; each fact may be missing and then says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

MIB = 1 << 20
GIB = 1 << 30


class MissingFact(Exception):
    """A rule or step needs a fact that is not known; `name` is the fact, `reason` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as it lies on disk or in the catalogue: its JSON files, and nothing worked out.

    Equality and hash go by identity of content through `key`.
    """

    name: str
    """Hub id or folder name, for people."""
    key: str
    """Stable cache key (path and content digest, or catalogue id)."""
    config: Mapping[str, Any]
    """config.json."""
    quant_config: Mapping[str, Any] | None = None
    """hf_quant_config.json."""
    generation_config: Mapping[str, Any] | None = None
    weight_bytes: int | None = None
    """Sum of all tensors in bytes from the safetensors index or headers."""
    tensor_bytes: Mapping[str, int] | None = None
    """Bytes per tensor name, where headers were read."""
    files: frozenset[str] = frozenset()
    """Names of files beside config.json (some engine checks look for them)."""
    origin: str = "folder"
    """folder | file | hf-cache | hub | catalogue."""

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and other.key == self.key


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU model, claimed or found. Memory is in MiB as nvidia-smi prints the total."""

    key: str
    name: str
    vendor: str
    """nvidia | amd | intel | cpu | …"""
    capability: tuple[int, int]
    """CUDA compute capability, (0, 0) where it does not apply."""
    memory_mib: int
    free_mib: int | None = None
    """Free now, for a local GPU; None for a claimed one."""
    gcn_arch: str = ""
    unified_memory: bool = False
    local: bool = False
    driver: str = ""

    @property
    def sm(self) -> int:
        """Capability as one number: 90 for (9, 0), 103 for (10, 3)."""
        return self.capability[0] * 10 + self.capability[1]


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine's memory in bytes; limits of the container are already taken into account."""

    total_bytes: int
    available_bytes: int
    cgroup_limit_bytes: int | None = None
    cpus: int | None = None


@dataclass(frozen=True, slots=True)
class PoolFact:
    """The outcome of a pool check, tagged with the request that it answers."""

    request_key: str
    ok: bool
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EngineFact:
    """An engine's own answer to a launch, tagged with the request that it answers."""

    request_key: str
    accepted: bool
    version: str
    place: str
    error: str | None = None
    error_type: str | None = None
    stage: str | None = None
    at: str | None = None
    resolved: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    pool: Mapping[str, Any] | None = None
    asked_at: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything known at one moment. Missing entries carry their reason in `missing`."""

    checkpoints: Mapping[str, Checkpoint] = field(default_factory=lambda: MappingProxyType({}))
    """Models by the path or id under which a launch names them (target and draft)."""
    gpu: GpuFacts | None = None
    gpu_count: int = 8
    host: HostFacts | None = None
    engine_version: str | None = None
    """Version of the engine that will run the launch, where it is known."""
    pool: PoolFact | None = None
    engine: EngineFact | None = None
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Reason by fact name (`gpu`, `host`, `engine`, `pool`, `model:PATH`)."""

    def checkpoint(self, path: str) -> Checkpoint:
        """The checkpoint that `path` names; raises MissingFact with the reason."""
        found = self.checkpoints.get(path)
        if found is None:
            reason = self.missing.get(f"model:{path}", "its config.json was not found")
            raise MissingFact("model", f"{path}: {reason}")
        return found
