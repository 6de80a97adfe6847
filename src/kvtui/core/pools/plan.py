"""PLAN_POOL: work out the pool of a resolved launch and judge what its builder refuses."""

from __future__ import annotations

from kvtui.core.capacity.predict import try_predict
from kvtui.core.derived import whole
from kvtui.core.pools.build import build_plan
from kvtui.core.pools.cache_dtype import checkpoint_kv_algo
from kvtui.core.pools.checks import CHECKS
from kvtui.core.pools.families import BUILT_RULES, FAMILY_RULES
from kvtui.core.pools.geometry import Geometry, geometry_of
from kvtui.core.pools.sizes import Sizes, from_tokens
from kvtui.core.resolution import Part, Resolution, step

SMALL_TOKENS = 4096
"""Tokens that buffers are described for where no capacity is known."""
DEFAULT_SLOTS = 16
DEFAULT_REQUESTS = 8

NPU_FAMILIES = "Ascend pools have layouts of their own, which the rules don't describe"


def described_sizes(r: Resolution, g: Geometry) -> Sizes:
    """Sizes of the described buffers: those asked for, else the predicted capacity's."""
    asked = r.sizing
    if asked.tokens is None:
        capacity = try_predict(r)
        if capacity is not None and capacity.sizes.tokens > 0:
            return capacity.sizes
    sizes = from_tokens(r, g, asked.tokens or SMALL_TOKENS)
    stated = r.max_mamba_cache_size
    slots = asked.mamba_slots or DEFAULT_SLOTS
    return Sizes(
        sizes.tokens, sizes.full, sizes.swa, sizes.c4, sizes.c128, sizes.c4_state,
        sizes.unified_bytes,
        requests=asked.max_running_requests or DEFAULT_REQUESTS,
        state_slots=whole(stated) if stated is not None else slots,
        shortfall=sizes.shortfall,
    )  # fmt: skip


def _notes(r: Resolution, g: Geometry) -> tuple[str, ...]:
    notes = []
    if r.sizing.tokens is not None and g.kv_name == "auto" and checkpoint_kv_algo(g.model):
        notes.append(
            "sized without weights: with the checkpoint loaded, auto follows its"
            f" {checkpoint_kv_algo(g.model)} KV-cache quantisation"
        )
    if g.pp > 1:
        notes.append(f"the first of {g.pp} pipeline stages, layers {g.start} to {g.end - 1}")
    return tuple(notes)


@step("mem_cache/kv_cache_configurator.py:457")
def plan_pool(r: Resolution) -> None:
    """Set `r.pool`, unless the platform has pools of its own."""
    if r.platform.is_npu or r.attention_backend == "ascend":
        r.doubt(NPU_FAMILIES)
        return
    g = geometry_of(r)
    r.pool = build_plan(r, g, described_sizes(r, g), _notes(r, g))


PLAN_POOL: tuple[Part, ...] = (*CHECKS, *FAMILY_RULES, plan_pool, *BUILT_RULES)
