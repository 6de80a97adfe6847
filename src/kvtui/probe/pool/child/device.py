"""Which device the pool is built on, and what can be told about it."""

from __future__ import annotations

import gc
import platform
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .memory import available_host_bytes
from .wire import Refused


@dataclass(frozen=True)
class Device:
    """The chosen device with the figures that the report carries."""

    torch_device: torch.device
    name: str
    why: str
    """Why the CPU was taken; empty on a GPU."""

    @property
    def is_cuda(self) -> bool:
        return self.torch_device.type == "cuda"

    def free_bytes(self) -> int:
        """Memory that could be taken now."""
        if self.is_cuda:
            return int(torch.cuda.mem_get_info(self.torch_device)[0])
        return available_host_bytes()

    def allocated_bytes(self) -> int:
        """Bytes that torch holds on a GPU; 0 on the CPU, which keeps no such count."""
        return int(torch.cuda.memory_allocated(self.torch_device)) if self.is_cuda else 0

    def wait(self) -> None:
        """Until all queued work is done."""
        if self.is_cuda:
            torch.cuda.synchronize(self.torch_device)

    def give_back(self) -> None:
        """Return freed memory to the driver."""
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()

    def describe(self) -> dict[str, Any]:
        """Figures for the report."""
        facts: dict[str, Any] = {
            "device": str(self.torch_device),
            "name": self.name,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
            "executable": sys.executable,
            "why_cpu": self.why,
        }
        if self.is_cuda:
            properties = torch.cuda.get_device_properties(self.torch_device)
            facts["total_bytes"] = properties.total_memory
            facts["capability"] = [properties.major, properties.minor]
            facts["uuid"] = str(getattr(properties, "uuid", ""))
            facts["driver"] = _driver()
        return facts


class Watch:
    """Tells which of some storages are still alive, without keeping them so."""

    def __init__(self, storages: tuple[torch.Tensor, ...]) -> None:
        whole = [storage.untyped_storage() for storage in storages]
        self._refs = [(_weak(storage), storage.nbytes()) for storage in whole]

    def alive_bytes(self) -> int:
        """Bytes of storages that somebody still holds."""
        return sum(size for ref, size in self._refs if not self._expired(ref))

    @staticmethod
    def _expired(ref: StorageWeakRef) -> bool:
        return bool(ref.expired())  # type: ignore[no-untyped-call]


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _driver() -> str:
    """The kernel driver's version where Linux shows it."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split()
    except OSError:
        return ""
    numbers = [word for word in words if word.count(".") >= 1 and word[0].isdigit()]
    return numbers[0] if numbers else ""


def pick(wanted: str) -> Device:
    """The device for `wanted` (auto | cpu | cuda | cuda:N); raises Refused if it is not there."""
    if wanted not in ("auto", "cpu", "cuda") and not wanted.removeprefix("cuda:").isdigit():
        raise Refused("request", f"device {wanted!r}: expected auto, cpu, cuda or cuda:N")
    if wanted == "cpu":
        return Device(torch.device("cpu"), platform.processor() or "CPU", "asked for")
    reason = _no_cuda()
    if reason and wanted == "auto":
        return Device(torch.device("cpu"), platform.processor() or "CPU", reason)
    if reason:
        raise Refused("device", f"{wanted}: {reason}")
    index = int(wanted[5:]) if wanted.startswith("cuda:") else 0
    if index >= torch.cuda.device_count():
        raise Refused("device", f"{wanted}: this machine has {torch.cuda.device_count()}")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return Device(device, torch.cuda.get_device_name(device), "")


def _no_cuda() -> str:
    """Why torch can't use a CUDA device; empty when it can."""
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return f"this torch ({torch.__version__}) is built without CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    return ""
