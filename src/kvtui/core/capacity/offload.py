"""Weights that a launch keeps in host memory instead of on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtui.core.capacity.weights import Loaded, Widths
from kvtui.core.derived import whole
from kvtui.core.facts import GIB

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution


def offloaded_bytes(r: Resolution, model: Loaded, w: Widths, experts: int, rank: float) -> float:
    """Bytes of the `rank` bytes of weights that stay in host memory."""
    kept = 0.0
    if r.kt_weight_path is not None and experts:
        on_gpu = min(whole(r.kt_num_gpu_experts), experts) / experts
        kept += model.inside.expert / w.expert * (1 - on_gpu)
    group = whole(r.offload_group_size, -1)
    if group > 0:
        kept += rank * min(1.0, max(1, whole(r.offload_num_in_group, 1)) / group)
    stated = r.cpu_offload_gb
    if isinstance(stated, (int, float)) and not isinstance(stated, bool):
        kept += max(0.0, float(stated)) * GIB
    return min(kept, rank)
