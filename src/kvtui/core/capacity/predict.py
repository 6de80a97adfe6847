"""PREDICT_CAPACITY: how much a launch holds, in the figures that the boot log will print."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvtui.core.capacity.budget import (
    Requests,
    StateShare,
    budget_bytes,
    capped,
    price,
    reservation_bytes,
    running_requests,
    sizes_from_budget,
    state_share,
)
from kvtui.core.capacity.device import Baseline, baseline, earlier_fraction
from kvtui.core.capacity.figures import Figure, estimated, exact
from kvtui.core.capacity.host import host_need
from kvtui.core.capacity.offload import offloaded_bytes
from kvtui.core.capacity.parts import experts_of
from kvtui.core.capacity.quantized import MXFP4, packs_experts
from kvtui.core.capacity.result import Capacity, Printed, Room
from kvtui.core.capacity.versions import NEWEST, SizingRule, parse_version, sizing_rule
from kvtui.core.capacity.weights import (
    Loaded,
    Widths,
    loaded,
    rank_bytes,
    scaled,
    stage_bytes,
    widths,
)
from kvtui.core.capacity.working import WORKING_ERROR, working_bytes
from kvtui.core.derived import whole
from kvtui.core.facts import GIB, MIB, MissingFact
from kvtui.core.model.config import draft_model_of
from kvtui.core.pools.geometry import Geometry, geometry_of, stages
from kvtui.core.pools.sizes import Sizes, request_rows, table_columns
from kvtui.core.resolution import Part, Resolution, step
from kvtui.core.steps.memory import reserved_memory

if TYPE_CHECKING:
    from kvtui.core.pools.spec import PoolPlan

CONTEXTS = (4096, 32768, 131072)
"""Context lengths for which the requests that fit are counted; the model's own comes on top."""

LOADED_EXTRA_BYTES = 0.06 * GIB
"""What a loaded model takes besides its tensors: rotary tables, handles."""
LINKED_EXTRA_BYTES = 0.2 * GIB
"""The same where ranks exchange: buffers of custom all-reduce and the like."""


STALE_SCALES = 4 / 32 / MXFP4
"""Scales of FP4 experts as they are loaded, relative to the packed experts."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage's memory and sizes."""

    geometry: Geometry
    weights: Figure
    draft: float
    free: Figure
    budget: Figure
    state: StateShare
    sizes: Sizes


def rule_of(r: Resolution) -> SizingRule:
    """The sizing rule of the engine that the launch is meant for."""
    return sizing_rule(parse_version(r.facts.engine_version) or NEWEST)


def fraction_of(r: Resolution, rule: SizingRule) -> float:
    """The memory fraction in force; an earlier release has an automatic one of its own."""
    if rule.fraction != "graphs" and not r.chose("mem_fraction_static"):
        return earlier_fraction(r, rule.fraction)
    value = r.mem_fraction_static
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number else 0.88


def _draft_bytes(r: Resolution, target: Loaded, w: Widths) -> float:
    """Weights that a draft adds to a rank."""
    algorithm = r.speculative_algorithm
    if not isinstance(algorithm, str) or algorithm in ("NGRAM", "NONE"):
        return 0.0
    if not r.speculative_draft_model_path or r.speculative_draft_model_path == r.model_path:
        layers = max(1, int(r.model.num_nextn_predict_layers or 1))
        shared = target.outside
        embeddings = shared.vocab / w.vocab + (shared.head or shared.vocab) / w.head
        return rank_bytes(target.draft, w) * layers + embeddings
    draft = loaded(draft_model_of(r))
    return rank_bytes(draft.inside, w) + rank_bytes(draft.outside, w)


def _weights(r: Resolution, g: Geometry, model: Loaded, w: Widths, rule: SizingRule) -> Figure:
    size = stage_bytes(model, w, g.start, g.end, len(stages(r, g.model)))
    if rule.stale_scales and r.platform.is_sm90 and packs_experts(g.model):
        size += model.inside.expert / w.expert / g.pp * STALE_SCALES
    figure = scaled(g.model, model, size)
    away = offloaded_bytes(r, model, w, experts_of(g.model.hf_text_config), figure.value)
    return figure if not away else estimated(figure.value - away, figure.value * figure.error)


def _stage(
    r: Resolution, number: int, base: Baseline, fraction: float, rule: SizingRule,
    model: Loaded, printed: Printed,
) -> Stage:  # fmt: skip
    g = geometry_of(r, number)
    w = widths(r, g.attn_tp, experts_of(g.model.hf_text_config))
    weights = _weights(r, g, model, w, rule)
    last = number == g.pp - 1
    draft = _draft_bytes(r, model, w) if last else 0.0
    start = printed.baseline if printed.baseline is not None else base.free.value
    extra = LOADED_EXTRA_BYTES + (LINKED_EXTRA_BYTES if w.tp * g.pp > 1 else 0)
    if printed.free_after_load is not None:
        free = exact(printed.free_after_load)
    else:
        left = start - weights.value - draft - extra
        spread = weights.value * weights.error + (
            0 if printed.baseline is not None else base.free.value * base.free.error
        )
        free = Figure(left, "estimated", abs(spread / left) if left else 0.0)
    reservation = reservation_bytes(r, g, rule)
    room = budget_bytes(free.value, start, fraction, reservation)
    spread = free.value * free.error
    state = state_share(r, g, room, rule)
    sizes = sizes_from_budget(r, g, max(room - state.bytes, 0.0), rule)
    return Stage(
        g,
        weights,
        draft,
        free,
        estimated(room, spread) if spread else Figure(room),
        state,
        sizes,
    )


def _fits(room: Room, own: int) -> dict[int, int]:
    """Requests at once by context, the model's own length included."""
    return {c: room.at(c) for c in sorted({one for one in CONTEXTS if one < own} | {own})}


def _assumptions(r: Resolution, g: Geometry, model: Loaded, rule_version: str | None) -> list[str]:
    found = [f"{one} is taken for typical" for one in model.guessed]
    if not g.model.is_known:
        found.append(f"{g.model.arch} is laid out like the usual transformer")
    gpu = r.facts.gpu
    if gpu is not None and gpu.free_mib is None:
        found.append("no other process uses the GPU")
    if gpu is not None and gpu.unified_memory:
        found.append("the system keeps a twelfth of the shared memory for itself")
    if r.cpu_offload_gb or r.kt_weight_path is not None or whole(r.offload_group_size, -1) > 0:
        found.append("weights that were asked to stay in host memory take nothing of the GPU")
    if g.model.checkpoint.weight_bytes is None:
        found.append("weights as the architecture implies")
    if rule_version is not None:
        found.append(f"sized as SGLang {rule_version} does")
    return found


def predict(r: Resolution, printed: Printed | None = None) -> Capacity:
    """Work the capacity out; raises MissingFact, or others on odd configurations."""
    gpu = r.facts.gpu
    if gpu is None:
        raise MissingFact("gpu", r.facts.missing.get("gpu", "no GPU was named or found"))
    printed, rule = printed or Printed(), rule_of(r)
    ranks = max(1, whole(r.tp_size, 1)) * max(1, whole(r.pp_size, 1))
    base, fraction = baseline(gpu, ranks), fraction_of(r, rule)
    if printed.fraction is not None:
        fraction = printed.fraction
    model = loaded(geometry_of(r).model)
    every = [
        _stage(r, number, base, fraction, rule, model, printed)
        for number in range(geometry_of(r).pp)
    ]
    tightest = min(every, key=lambda one: one.sizes.tokens)
    g = tightest.geometry
    sizes = capped(r, g, tightest.sizes)
    state = tightest.state
    limit = running_requests(r, g, sizes.tokens, state, rule)
    sizes = replace(sizes, requests=limit.count, state_slots=max(state.slots, 0))
    return _assemble(r, tightest, sizes, limit, base, fraction, printed, model)


def _assemble(
    r: Resolution, stage: Stage, sizes: Sizes, limit: Requests, base: Baseline, fraction: float,
    printed: Printed, model: Loaded,
) -> Capacity:  # fmt: skip
    g, state, budget = stage.geometry, stage.state, stage.budget
    start = Figure(printed.baseline, "exact") if printed.baseline is not None else base.free
    table = request_rows(r, limit.count) * table_columns(r, g) * 4
    charged = price(r, g, rule_of(r))
    used = sizes.tokens * charged + state.bytes
    if sizes.tokens >= stage.sizes.tokens:
        used = min(max(budget.value, 0.0), used)
    reserve = reserved_memory(r) * MIB
    working = working_bytes(r, g)
    left = stage.free.value - used - table - working
    capacity_kind = "exact" if r.max_total_tokens == sizes.tokens else "estimated"
    tokens_error = 0.0 if capacity_kind == "exact" else budget.error
    version = r.facts.engine_version
    room = Room(sizes.tokens, sizes.swa, g.window, g.page_size, limit.count)
    return Capacity(
        total=base.total,
        baseline=start,
        weights=stage.weights,
        draft_weights=estimated(stage.draft, 0.05 * stage.draft),
        free_after_load=stage.free,
        fraction=fraction,
        budget=budget,
        bytes_per_token=Figure(charged),
        tokens=Figure(sizes.tokens, capacity_kind, tokens_error),  # type: ignore[arg-type]
        full_tokens=sizes.full,
        swa_tokens=sizes.swa,
        state_slots=max(state.slots, 0),
        state_bytes=max(state.bytes, 0.0),
        requests=Figure(limit.count, "computed" if limit.limited_by == "option" else "estimated",
                        0.0 if limit.limited_by == "option" else tokens_error),
        limited_by=limit.limited_by,
        slots_per_request=state.per_request,
        request_table=Figure(table),
        reserve=Figure(reserve),
        working=estimated(working, WORKING_ERROR * working),
        free_after=estimated(left, WORKING_ERROR * working + 0.1 * GIB),
        host=None,
        fits=_fits(room, g.context),
        room=room,
        replicas=max(1, whole(r.dp_size, 1)) * g.attn_dp,
        sizes=sizes,
        pool_bytes=int(used),
        assumed=tuple(_assumptions(r, g, model, version)),
    )  # fmt: skip


def try_predict(r: Resolution) -> Capacity | None:
    """The capacity of a resolution, worked out once; None where something is not known."""
    if "capacity" not in r.scratch:
        try:
            r.scratch["capacity"] = predict(r)
        except MissingFact as missing:
            r.scratch["capacity"] = None
            r.scratch["capacity_missing"] = missing.reason
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            r.scratch["capacity"] = None
            r.scratch["capacity_missing"] = f"{type(error).__name__}: {error}"
    found: Capacity | None = r.scratch["capacity"]
    return found


def with_host(r: Resolution, capacity: Capacity, plan: PoolPlan | None) -> Capacity:
    """The capacity with the host memory that the pool's copies need."""
    need = host_need(r, plan) if plan is not None else None
    return capacity if need is None else replace(capacity, host=need)


@step("mem_cache/kv_cache_configurator.py:2990")
def predict_capacity(r: Resolution) -> None:
    """Set `r.scratch["capacity"]`; leaves None where weights, GPU or model are not known."""
    capacity = try_predict(r)
    if capacity is not None and r.sizing.tokens is None:
        r.scratch["capacity"] = with_host(r, capacity, r.pool)


PREDICT_CAPACITY: tuple[Part, ...] = (predict_capacity,)
