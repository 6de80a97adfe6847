"""The local GPUs, read through NVML (no CUDA context) or sysfs (AMD)."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvtui.core.facts import MIB, GpuFacts
from kvtui.core.gpus import find_gpu

NVML_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class LocalGpus:
    """What was found: one entry a visible device, or a reason why there is none."""

    gpus: tuple[GpuFacts, ...]
    reason: str = ""

    @property
    def first(self) -> GpuFacts | None:
        """The device that stands for all of its kind: the one with the least free memory."""
        if not self.gpus:
            return None
        kind = self.gpus[0].name
        alike = [gpu for gpu in self.gpus if gpu.name == kind]
        return min(alike, key=lambda gpu: gpu.free_mib or 0)

    @property
    def count(self) -> int:
        """Devices of the first one's kind."""
        return sum(gpu.name == self.gpus[0].name for gpu in self.gpus) if self.gpus else 0


def read_gpus(timeout_s: float = NVML_TIMEOUT_S) -> LocalGpus:
    """Visible GPUs; a driver that hangs or fails is a reason, never an exception."""
    box: list[LocalGpus] = []
    thread = threading.Thread(target=lambda: box.append(_read()), daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not box:
        return LocalGpus((), f"the NVIDIA driver did not answer within {timeout_s:g} s")
    return box[0]


def _read() -> LocalGpus:
    try:
        found = _nvml()
    except Exception as error:  # NVML raises its own types, and ctypes errors on odd drivers
        reason = _reason(error)
    else:
        if found:
            return LocalGpus(found)
        reason = "no visible NVIDIA GPU"
    amd = _amd(Path("/sys/class/kfd/kfd/topology/nodes"))
    return LocalGpus(amd) if amd else LocalGpus((), reason)


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, ImportError):
        return "the package nvidia-ml-py is not installed"
    if "Shared Library Not Found" in text:
        return "no NVIDIA driver on this machine"
    return f"NVML failed: {text}"


def _nvml() -> tuple[GpuFacts, ...]:
    import pynvml

    pynvml.nvmlInit()
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        every = [_nvml_one(pynvml, index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()
    return visible(every, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _nvml_one(nvml: Any, index: int, driver: str) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = _text(nvml.nvmlDeviceGetName(handle))
    known = find_gpu(name)
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = int(memory.total) // MIB, int(memory.free) // MIB
    except nvml.NVMLError:
        # Unified-memory chips (GB10, Thor) answer "not supported": the host's memory is theirs.
        total, free = _host_memory_mib()
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return GpuFacts(
        key=known.key if known else name,
        name=name,
        vendor="nvidia",
        capability=(int(major), int(minor)),
        memory_mib=total,
        free_mib=free,
        unified_memory=known.unified_memory if known else False,
        local=True,
        driver=driver,
    )


def visible(gpus: list[GpuFacts], setting: str | None) -> tuple[GpuFacts, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; names by UUID count as all."""
    if setting is None or any(not re.fullmatch(r"\s*-?\d+\s*", part) for part in setting.split(",")
                              if setting.strip()):  # fmt: skip
        return tuple(gpus)
    chosen: list[GpuFacts] = []
    for part in setting.split(",") if setting.strip() else ():
        index = int(part)
        if not 0 <= index < len(gpus):
            break  # CUDA hides everything behind the first invalid index
        chosen.append(gpus[index])
    return tuple(chosen)


def _host_memory_mib() -> tuple[int, int]:
    from kvtui.probe.host import read_host

    host = read_host()
    return (host.total_bytes // MIB, host.available_bytes // MIB) if host else (0, 0)


def _amd(nodes: Path) -> tuple[GpuFacts, ...]:
    """AMD GPUs from the kernel's compute topology; the gfx target tells the family."""
    found: list[GpuFacts] = []
    for node in sorted(nodes.glob("*"), key=lambda path: path.name):
        properties = _properties(node / "properties")
        version = int(properties.get("gfx_target_version", "0"))
        if version == 0:
            continue
        gfx = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        total = sum(
            int(_properties(bank / "properties").get("size_in_bytes", "0"))
            for bank in (node / "mem_banks").glob("*")
        )
        known = {"gfx942": "mi300x", "gfx950": "mi355x"}.get(gfx)
        base = find_gpu(known) if known else None
        if base is None:
            base = GpuFacts(gfx, f"AMD {gfx}", "amd", (version // 10000, 0), 0, gcn_arch=gfx)
        found.append(replace(base, memory_mib=total // MIB or base.memory_mib, local=True))
    return tuple(found)


def _properties(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {line.split()[0]: line.split()[-1] for line in lines if line.strip()}


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
