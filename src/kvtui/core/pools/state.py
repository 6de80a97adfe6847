"""State tensors that recurrent layers keep per request (`MambaPool`, mem_cache/memory_pool.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtui.core.derived import mamba_extra_buffer, whole
from kvtui.core.pools.geometry import Geometry
from kvtui.core.pools.spec import BufferSpec, SubPool

if TYPE_CHECKING:
    from kvtui.core.model.linear import LinearState
    from kvtui.core.resolution import Resolution

MIN_SLOTS_PER_REQUEST = 3
"""State slots of a running request without spare buffers (kv_cache_configurator.py:245)."""


def tracking_slots(r: Resolution) -> int:
    """Spare slots that the radix cache holds for a running request (allocation_sizing.py:11)."""
    if not mamba_extra_buffer(r):
        return 0
    if r.mamba_radix_cache_strategy == "extra_buffer_lazy":
        return 1
    return 1 if r.disable_overlap_schedule else 2


def slots_per_request(r: Resolution) -> int:
    """State slots that one running request takes (kv_cache_configurator.py:3066)."""
    if r.disable_radix_cache:
        return 1
    skip = r.env_flag("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK")
    spare = tracking_slots(r)
    if not mamba_extra_buffer(r):
        return MIN_SLOTS_PER_REQUEST
    return MIN_SLOTS_PER_REQUEST - int(skip) + spare


def keeps_verify_states(r: Resolution) -> bool:
    """False on a prefill server, which never verifies drafts (kv_cache_configurator.py:171)."""
    return not (
        r.disaggregation_mode == "prefill"
        and not r.enable_pd_role_switch
        and not r.enable_unified_memory
    )


def replays_states(r: Resolution, g: Geometry) -> bool:
    """True where verification replays a ring of inputs instead of keeping every state."""
    kind = g.mambaish.kind if g.mambaish is not None else ""
    return bool(r.enable_linear_replayssm_spec) and kind in ("gdn", "kda")


@dataclass(frozen=True, slots=True)
class StateRoom:
    """Slots of the state pool and requests whose verification it keeps."""

    slots: int
    requests: int
    draft_tokens: int
    """0 without verification states."""


def state_room(r: Resolution, g: Geometry, slots: int, requests: int) -> StateRoom:
    """What the request pool makes of `slots` and `requests` (disaggregation/decode.py:321)."""
    decode = r.disaggregation_mode == "decode" or bool(r.enable_pd_role_switch)
    draft = g.draft_tokens if g.draft is not None and (decode or keeps_verify_states(r)) else 0
    if g.unified or not decode:
        return StateRoom(slots, requests, draft)
    ahead = requests + whole(r.disaggregation_decode_extra_slots)
    lazy = r.mamba_radix_cache_strategy == "extra_buffer_lazy"
    spare = (1 if r.disable_overlap_schedule else 2) if lazy and mamba_extra_buffer(r) else None
    needed = ahead * (1 + (tracking_slots(r) if spare is None else spare))
    return StateRoom(max(slots, needed), ahead, draft)


def _dedup(r: Resolution, state: LinearState) -> bool:
    topk = whole(r.speculative_eagle_topk, 1)
    return not state.shape.conv_window_first and not state.is_kda and topk <= 1


def _verify_buffers(
    r: Resolution, state: LinearState, room: StateRoom, replay: bool
) -> tuple[list[BufferSpec], list[BufferSpec]]:
    """(listed, backing) tensors of verification states (memory_pool.py:846)."""
    rows, steps, layers = room.requests + 1, room.draft_tokens, state.layers
    prefix = "mamba_pool.mamba_cache."
    listed: list[BufferSpec] = []
    if not replay and state.shape.temporal:
        listed.append(
            BufferSpec(
                f"{prefix}intermediate_ssm", state.temporal_dtype,
                (layers, rows, steps, *state.shape.temporal), 1, "request", 1,
            )
        )  # fmt: skip
    backing = []
    for number, (first, last) in enumerate(state.shape.conv):
        dense = (layers, rows, steps, first, last)
        shape = (layers, rows, first, steps + last - 1) if _dedup(r, state) else dense
        backing.append(
            BufferSpec(
                f"mamba_pool._intermediate_conv_window_phys[{number}]", state.conv_dtype, shape,
                1, "request", 1,
            )
        )  # fmt: skip
    return listed, backing


def _replay_buffers(
    r: Resolution, g: Geometry, state: LinearState, room: StateRoom
) -> list[BufferSpec]:
    """ReplaySSM rings (memory_pool.py:738)."""
    spec = replays_states(r, g)
    if not (r.enable_linear_replayssm or spec):
        return []
    heads, v_dim, k_dim = state.shape.temporal
    records = whole(r.linear_replayssm_cache_len, 16)
    rows = room.requests + 1 if spec and not state.is_kda else room.slots + 1
    ring = state.conv_dtype if spec else state.temporal_dtype
    keys, front = state.shape.k_heads, (state.layers, rows)
    gate = (heads, records, k_dim) if state.is_kda else (heads, records)
    shapes: list[tuple[str, str, tuple[int, ...]]] = [
        ("replayssm_d", ring, (heads, records, v_dim)),
        ("replayssm_k", ring, (keys, records, k_dim)),
        ("replayssm_g", "float32", gate),
    ]
    if spec and (state.is_kda or ring != "float32"):
        shapes.append(("replayssm_rawv", state.conv_dtype, (heads, records, v_dim)))
        shapes.append(("replayssm_rawk", state.conv_dtype, (keys, records, k_dim)))
    if spec and state.is_kda:
        shapes.append(("replayssm_beta", "float32", (heads, records)))
    return [
        BufferSpec(f"mamba_pool.mamba_cache.{name}", dtype, (*front, *shape), 1, "request", 1)
        for name, dtype, shape in shapes
    ]


def state_pools(r: Resolution, g: Geometry, room: StateRoom) -> tuple[SubPool, ...]:
    """The state pool of a hybrid model: what its object lists, then what only backs it."""
    state = g.state
    if state is None:
        return ()
    rows, layers = room.slots + 1, state.layers
    conv = [
        BufferSpec(
            f"mamba_pool.mamba_cache.conv[{number}]" if number else "mamba_pool.mamba_cache.conv",
            state.conv_dtype, (layers, rows, *shape), 1, "request", 1,
            placeholders=len(state.shape.conv) - 1 if number == 0 else 0,
        )
        for number, shape in enumerate(state.shape.conv)
    ]  # fmt: skip
    listed, backing = [conv[0]] if conv else [], conv[1:]
    temporal = BufferSpec(
        "mamba_pool.mamba_cache.temporal", state.temporal_dtype,
        (layers, rows, *state.shape.temporal), 1, "request", 1,
    )  # fmt: skip
    if temporal.nbytes:
        listed.append(temporal)
    listed += _replay_buffers(r, g, state, room)
    if room.draft_tokens and state.layers:
        seen, windows = _verify_buffers(r, state, room, replays_states(r, g))
        listed += seen
        backing += windows
    pools = [SubPool("state", "MambaPool", room.slots, 1, 1, tuple(listed), layers=layers)]
    if backing:
        pools.append(
            SubPool(
                "state", "MambaPool", room.slots, 1, 1, tuple(backing), layers=layers, listed=False
            )
        )
    return tuple(pools)
