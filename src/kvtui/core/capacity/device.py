"""What a GPU has free before any weights are loaded, and what the automatic fraction leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtui.core.capacity.figures import Figure, estimated
from kvtui.core.derived import whole
from kvtui.core.facts import GIB, MIB, GpuFacts
from kvtui.core.steps.memory import encoder_factor, serves_images

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

CONTEXT_GIB = 0.55
"""A CUDA context with its libraries (boot logs on H100, RTX 3090, RTX 5090 and 16 GB cards)."""
CONTEXT_SHARE = 0.004
"""What of the printed total is never free, on top."""
LINKED_GIB = 1.45
"""Communicators of more than one rank on data-centre GPUs with NVLink (H200 TP8, B200 TP4)."""
PCIE_GIB = 0.4
"""The same between GPUs on PCIe (RTX 3090 TP2, L4 TP4, RTX PRO 6000 TP8)."""
ROCM_GIB = 0.7
ROCM_LINKED_GIB = 3.6
UNIFIED_SHARE = 0.083
"""Share of unified memory that the system holds (GB10: 111.4 of 121.7 GiB free)."""
SPREAD_GIB = 0.2
LINKED_SPREAD_GIB = 0.4


@dataclass(frozen=True, slots=True)
class Baseline:
    """Free memory of the emptiest rank before weights are loaded, in bytes."""

    total: Figure
    free: Figure


def overhead_gib(gpu: GpuFacts, ranks: int) -> float:
    """GiB that a process takes before it loads weights."""
    total = gpu.memory_mib / 1024
    if gpu.unified_memory:
        return total * UNIFIED_SHARE
    if gpu.vendor == "amd":
        return ROCM_GIB + (ROCM_LINKED_GIB if ranks > 1 else 0)
    linked = gpu.vendor == "nvidia" and gpu.capability[0] in (8, 9, 10) and total >= 70
    between = (LINKED_GIB if linked else PCIE_GIB) if ranks > 1 else 0
    return CONTEXT_GIB + CONTEXT_SHARE * total + between


def baseline(gpu: GpuFacts, ranks: int) -> Baseline:
    """The baseline of one of `ranks` equal GPUs; another process's memory counts as taken."""
    total = gpu.memory_mib * MIB
    start = gpu.free_mib * MIB if gpu.free_mib is not None else total
    spread = (LINKED_SPREAD_GIB if ranks > 1 else SPREAD_GIB) * GIB
    if gpu.unified_memory:
        spread = 0.02 * total
    free = min(start, total) - overhead_gib(gpu, ranks) * GIB
    return Baseline(Figure(total, "exact"), estimated(max(free, 0.0), spread))


CLASS_RESERVES: tuple[tuple[float, float, float], ...] = (
    (35 * 1024, 2.8, 0.1), (90 * 1024, 9.5, 0.5), (100 * 1024, 12, 0.5), (160 * 1024, 13, 0.5),
)  # fmt: skip
"""(below MiB, GiB kept back, GiB more a rank) of the releases with memory classes."""
FLAT_FRACTIONS = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
"""(ranks from, fraction) of the releases before memory classes."""


def earlier_fraction(r: Resolution, style: str) -> float:
    """The automatic fraction of an earlier release, where the launch states none."""
    memory = float(r.platform.memory_mib)
    ranks = max(1, whole(r.tp_size, 1)) * max(1, whole(r.pp_size, 1))
    if style == "flat":
        return next(value for least, value in FLAT_FRACTIONS if ranks >= least)
    reserve = _earlier_reserve(r, style, memory, ranks)
    fraction = round((memory - reserve) / memory, 3)
    return fraction * encoder_factor(r) if serves_images(r) else fraction


def _earlier_reserve(r: Resolution, style: str, memory: float, ranks: int) -> float:
    """MiB that an earlier release kept back."""
    if style == "classes":
        found = next(((a, b) for top, a, b in CLASS_RESERVES if memory < top), (32.0, 0.0))
        reserve = (found[0] + found[1] * ranks) * 1024
        if r.attn_dp_size > 1:
            reserve += 4096
        if r.speculative_algorithm is not None:
            reserve += 2048
        return reserve
    chunk = whole(r.chunked_prefill_size)
    batch = r.cuda_graph_config.decode.max_bs or 0
    reserve = 512 + 1.5 * max(chunk if chunk > 0 else whole(r.max_prefill_tokens), 2048)
    reserve += batch * 2 + ranks / 8 * 1024
    if r.attn_dp_size > 1:
        reserve += batch * r.attn_dp_size * (4.5 if batch > 300 else 3)
    if memory > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    if r.speculative_algorithm is not None and r.speculative_algorithm != "NGRAM":
        reserve += 6144 if r.speculative_algorithm == "STANDALONE" else 2048
    return reserve
