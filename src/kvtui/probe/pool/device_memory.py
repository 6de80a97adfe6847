"""Memory in use on NVIDIA devices as the driver sees it, whoever holds it (NVML, no CUDA)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

DEVICES = Path("/dev")
SETTLE_S = 3.0
"""The driver takes a moment to return a dead process's memory."""


def has_nvidia_device() -> bool:
    """Whether the system shows an NVIDIA device, told without loading the driver's library."""
    return any(DEVICES.glob("nvidia[0-9]*"))


def used_bytes() -> dict[str, int]:
    """Bytes in use by device UUID; empty where there is no device or NVML fails."""
    if not has_nvidia_device():
        return {}
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return dict(_read(pynvml, i) for i in range(pynvml.nvmlDeviceGetCount()))
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # NVML raises its own types, and ctypes errors on odd drivers
        return {}


def _read(pynvml: Any, index: int) -> tuple[str, int]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    name = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
    return name.removeprefix("GPU-"), int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


async def left_over(before: dict[str, int], uuid: str) -> int | None:
    """Bytes in use on a device beyond `before`, once they have settled; None if not known.

    Other processes count as well: on a shared device the figure may be theirs.
    """
    if uuid not in before:
        return None
    end = asyncio.get_running_loop().time() + SETTLE_S
    while True:
        now = (await asyncio.to_thread(used_bytes)).get(uuid)
        if now is None:
            return None
        more = max(0, now - before[uuid])
        if not more or asyncio.get_running_loop().time() > end:
            return more
        await asyncio.sleep(0.1)
