"""Classes of GPU memory and their defaults (`srt/arg_groups/memory_hook.py:93` of 0.5.23)."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.resolution import Resolution


@dataclass(frozen=True, slots=True)
class MemoryClass:
    """Defaults of all GPUs below one size."""

    below_mib: float
    chunked_prefill_size: int
    decode_max_bs: int
    decode_max_bs_wide: int
    """Decode graph limit from four tensor-parallel ranks up."""
    examples: str


MEMORY_CLASSES = (
    MemoryClass(20 * 1024, 2048, 8, 8, "T4, 4080"),
    MemoryClass(35 * 1024, 4096, 48, 160, "A10, 4090, 5090"),
    MemoryClass(60 * 1024, 4096, 32, 160, "A100 40 GB, L40"),
    MemoryClass(160 * 1024, 8192, 256, 512, "A100 80 GB, H100, H200"),
    MemoryClass(float("inf"), 16384, 512, 512, "B200, MI300"),
)
"""memory_hook.py:93, smallest first."""

UNKNOWN_MEMORY = MemoryClass(0, 4096, 160, 160, "unknown")


def memory_class(memory_mib: int | None) -> MemoryClass:
    """The class of a GPU with that much memory, None where it is not known."""
    if not memory_mib:
        return UNKNOWN_MEMORY
    return next(row for row in MEMORY_CLASSES if memory_mib < row.below_mib)


def gpu_memory(r: Resolution) -> int | None:
    """Total memory of the smallest GPU in MiB; None where the engine could not tell either."""
    return r.platform.memory_mib or None
