"""Changes that make room on a GPU, each checked against the estimate that called for it."""

from __future__ import annotations

import math

from kvtui.core.capacity.parts import experts_of
from kvtui.core.capacity.predict import try_predict
from kvtui.core.capacity.result import Capacity
from kvtui.core.capacity.weights import loaded, rank_bytes, widths
from kvtui.core.derived import whole
from kvtui.core.findings import Fix, Severity, set_to
from kvtui.core.pools.geometry import geometry_of
from kvtui.core.resolution import Hit, Resolution, hit

HIGHEST = 0.97
"""Above this nothing is left for the libraries."""
WORTHWHILE = 0.01
"""Share of a GPU that a cache should have at least for a fraction to be worth naming."""
LARGEST_WORLD = 64
FP8_FROM_SM = 89


def fraction_window(c: Capacity) -> tuple[float, float]:
    """(fraction below which there is no cache, fraction above which the rest runs short)."""
    base = c.baseline.value or 1.0
    lowest = 1 - c.free_after_load.value / base
    highest = 1 - (c.working.value + c.request_table.value) / base
    return lowest, min(HIGHEST, math.floor(highest * 100) / 100)


def raised_fraction(c: Capacity) -> float | None:
    """The fraction to name where raising it gives a cache worth having, else None.

    Two thirds of the way from the lowest that holds the weights to the highest that leaves room
    for graphs and activations.
    """
    lowest, highest = fraction_window(c)
    spread = c.free_after_load.value * c.free_after_load.error / (c.baseline.value or 1.0)
    named = math.floor((lowest + (highest - lowest) * 2 / 3) * 100) / 100
    if named < lowest + spread + WORTHWHILE:
        named = highest
    if named < lowest + spread + WORTHWHILE or named <= c.fraction:
        return None
    return named


def known(r: Resolution) -> Capacity | None:
    """The capacity where the weights leave room at all, else None."""
    c = try_predict(r)
    return c if c is not None and c.budget.value > 0 else None


def spread(c: Capacity) -> float:
    return abs(c.budget.value) * c.budget.error


def judge(certain: bool, message: str, *fixes: Fix) -> Hit:
    """An error where the death is certain, else a warning."""
    return hit(message, *fixes) if certain else Hit(message, fixes, Severity.WARNING)


def raise_fraction(c: Capacity) -> list[Fix]:
    raised = raised_fraction(c)
    if raised is None:
        return []
    return [set_to(f"raise the fraction to {raised:g}", mem_fraction_static=raised)]


def more_gpus(r: Resolution, c: Capacity) -> Fix | None:
    """The next tensor-parallel size at which the weights leave a fifth of their share free."""
    g, tp = geometry_of(r), max(1, whole(r.tp_size, 1))
    model, heads = loaded(g.model), whole(g.model.num_attention_heads)
    room = c.baseline.value * c.fraction * 0.8
    size = tp * 2
    while size <= LARGEST_WORLD:
        w = widths(r, g.attn_tp, experts_of(g.model.hf_text_config), size // tp)
        need = (rank_bytes(model.inside, w) + rank_bytes(model.outside, w)) / g.pp
        if need + c.draft_bytes * tp / size < room and (not heads or heads % size == 0):
            return set_to(f"split over {size} GPUs ({size // tp} times as many)", tp_size=size)
        size *= 2
    return None


def on_fly_fp8(r: Resolution, c: Capacity) -> Fix | None:
    """Weights made FP8 while they are loaded, for a checkpoint that is not quantised."""
    able = r.platform.is_cuda and r.platform.sm >= FP8_FROM_SM
    if r.model.quantization or r.chose("quantization") or not able:
        return None
    if c.weights_bytes * 0.55 > c.baseline.value * c.fraction * 0.9:
        return None
    return set_to("load the weights as FP8 (accuracy may drop)", quantization="fp8")
