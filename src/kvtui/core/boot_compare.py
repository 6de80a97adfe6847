"""A boot log's figures beside what is predicted for the same launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvtui.core.evaluate import Report
from kvtui.core.explain_bootlog import BootLog
from kvtui.core.facts import GIB, GpuFacts
from kvtui.core.gpus import gpus

MOST_TAKEN = 0.06
"""Share of a GPU's memory that driver, context and communicators take before weights load."""
SAME_SIZE_GIB = 0.15
"""Sizes this close can't be told apart by what is free."""


@dataclass(frozen=True, slots=True)
class BootRow:
    """One figure, printed and predicted, in its own unit."""

    name: str
    printed: float
    predicted: float
    unit: str = ""

    @property
    def error(self) -> float:
        """Predicted over printed, less one."""
        return self.predicted / self.printed - 1 if self.printed else 0.0


def guess_gpu(log: BootLog) -> GpuFacts | None:
    """The catalogue's GPU whose memory fits the free figure before loading; None for a tie.

    Kinds of one size differ in capability, so that a tie can't be settled from the log.
    """
    free = log.weights_begin_free_gib
    if free is None:
        return None
    sizes = {gpu: gpu.memory_mib / 1024 for gpu in gpus()}
    fitting = [g for g, size in sizes.items() if 0 <= size - free <= size * MOST_TAKEN]
    if not fitting:
        return None
    nearest = min(sizes[gpu] for gpu in fitting)
    alike = [gpu for gpu in fitting if sizes[gpu] - nearest < SAME_SIZE_GIB]
    return alike[0] if len({gpu.capability for gpu in alike}) == 1 else None


def boot_rows(log: BootLog, report: Report) -> Iterator[BootRow]:
    """Figures that both know."""
    capacity = report.capacity
    if capacity is None:
        return
    kv_gib = log.kv_gib
    if log.k_gib is not None and log.v_gib is not None:
        kv_gib = log.k_gib + log.v_gib
    pairs = (
        ("weights", log.weights_gib, capacity.weights_bytes / GIB, "GiB"),
        (
            "free after loading",
            log.weights_end_free_gib,
            capacity.free_after_load.value / GIB,
            "GiB",
        ),
        ("K and V", kv_gib, capacity.kv_bytes / GIB, "GiB"),
        ("tokens", log.max_total_num_tokens or log.tokens, capacity.max_total_num_tokens, ""),
        ("requests", log.max_running_requests, capacity.max_running_requests, ""),
    )
    for name, printed, predicted, unit in pairs:
        if printed is not None:
            yield BootRow(name, float(printed), float(predicted), unit)
