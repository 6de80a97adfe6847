"""From free memory to tokens, state slots and running requests by the engine's own arithmetic.

Mirrors `_profile_available_bytes`, `_handle_max_mamba_cache`, `resolve_max_num_reqs` of
srt/mem_cache/kv_cache_configurator.py (0.5.23), and what earlier releases did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvtui.core.capacity.versions import SizingRule
from kvtui.core.derived import whole
from kvtui.core.facts import MIB
from kvtui.core.pools.build import cell_bytes
from kvtui.core.pools.cell import index_cell, priced_layers, window_cell
from kvtui.core.pools.geometry import Geometry
from kvtui.core.pools.sizes import Sizes, aligned, from_budget, from_tokens, swa_ratio
from kvtui.core.pools.sparse import latent_dim
from kvtui.core.pools.state import (
    keeps_verify_states,
    replays_states,
    slots_per_request,
)

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

REQUESTS_PER_CONTEXT = 512
LEAST_REQUESTS, MOST_REQUESTS = 2048, 4096
"""Bounds of the automatic request limit (kv_cache_configurator.py:3122)."""

FEATURE_CACHE_MIB = 1024
"""SGLANG_MM_FEATURE_CACHE_MB, kept back when features travel through GPU memory."""


def reservation_bytes(r: Resolution, g: Geometry, rule: SizingRule) -> int:
    """Kept back for a multimodal model (kv_cache_configurator.py:222)."""
    if not g.model.is_multimodal or not rule.multimodal_mib:
        return 0
    mib = r.env_int("SGLANG_VLM_CACHE_SIZE_MB", rule.multimodal_mib)
    if r.mm_feature_transport in ("cuda_ipc", "cuda_vmm"):
        mib += r.env_int("SGLANG_MM_FEATURE_CACHE_MB", FEATURE_CACHE_MIB)
    return mib * MIB


def budget_bytes(free: float, baseline: float, fraction: float, reservation: int) -> float:
    """What pools may take: free memory less the share of the baseline that stays out."""
    return free - baseline * (1 - fraction) - reservation


@dataclass(frozen=True, slots=True)
class StateShare:
    """The part of the budget that recurrent states take."""

    slots: int = 0
    bytes: float = 0.0
    per_request: int = 1
    """Slots that a running request takes."""
    fixed: bool = False
    """True where the slots follow from an option, not from memory."""


def _widest_state(r: Resolution, g: Geometry) -> int:
    """State bytes of a request on the stage with most recurrent layers."""
    state, mambaish = g.state, g.mambaish
    if state is None or mambaish is None:
        return 0
    if g.pp <= 1:
        return state.bytes_per_request
    from kvtui.core.pools.geometry import stages

    per_layer = state.conv_bytes_per_layer + state.temporal_bytes_per_layer
    counts = [
        sum(start <= i < end for i in mambaish.layer_ids) for start, end in stages(r, g.model)
    ]
    return per_layer * max(counts, default=0)


def state_share(r: Resolution, g: Geometry, budget: float, rule: SizingRule) -> StateShare:
    """Slots and bytes of the state pool within a budget (kv_cache_configurator.py:3214)."""
    slot = _widest_state(r, g)
    if slot <= 0:
        return StateShare()
    ratio, limit = slots_per_request(r), r.max_running_requests
    wanted = max(1, whole(limit) // g.attn_dp) if limit is not None else None
    drafts = whole(r.speculative_num_draft_tokens)
    replay = replays_states(r, g)
    ring = fixed_ring = 0
    if replay and g.state is not None:
        ring = g.state.replay_ring_bytes(whole(r.linear_replayssm_cache_len, 16))
        if g.mambaish is not None and g.mambaish.kind != "kda":
            fixed_ring, ring = ring * ((wanted or 1) + 1), 0
    verifies = g.draft is not None and not replay and keeps_verify_states(r) and drafts > 0
    pad = 1 if rule.state_padding else 0
    stated = r.max_mamba_cache_size
    if stated is not None:
        slots, fixed = whole(stated) // g.attn_dp, True
    elif r.disable_radix_cache and wanted is not None:
        slots, fixed = wanted, True
    else:
        share = float(r.mamba_full_memory_ratio or 0.9)
        room = budget * share / (1 + share)
        if verifies:
            per_slot = slot * (1 + drafts / ratio) + ring
            slots = int((room - slot * (pad + drafts) - ring * pad) // per_slot)
        else:
            slots = int((room - fixed_ring - (slot + ring) * pad) // (slot + ring))
        fixed = False
    total = (slots + pad) * (slot + ring) + fixed_ring
    if verifies:
        capped = min(wanted or 1, slots // ratio) if stated is not None or not fixed else slots
        total += slot * (capped + 1) * drafts
    return StateShare(slots, float(total), ratio, fixed)


def _as_priced(r: Resolution, g: Geometry, rule: SizingRule) -> Geometry:
    """The geometry with drafts that the release left out of its price."""
    draft = g.draft
    if draft is None:
        return g
    if draft.eagle_like and not rule.eagle_draft:
        return replace(g, draft=None)
    if not draft.eagle_like and g.hybrid_swa and not rule.dflash_windowed:
        return replace(g, draft=None)
    return g


def _earlier_latent_price(r: Resolution, g: Geometry, rule: SizingRule) -> int:
    """A sparse latent token in releases that left scales or index keys out of the price."""
    layers = priced_layers(g)
    row = latent_dim(r, g) if rule.packed_scales else g.latent
    cell = row * layers * g.item_bytes
    if rule.index_keys:
        cell += index_cell(r, g, layers) * g.dcp
    return int(cell)


def _earlier_window(r: Resolution, g: Geometry, budget: float) -> Sizes:
    """Sliding layers priced at full length, then cut to their ratio."""
    prices = window_cell(r, g)
    full = aligned(budget // (prices.full_bytes + prices.swa_bytes + prices.fixed), g.page_size)
    return Sizes(full, full, aligned(full * swa_ratio(r), g.page_size))


def price(r: Resolution, g: Geometry, rule: SizingRule) -> float:
    """Budget bytes that a release charges for one token, drafts counted."""
    priced = _as_priced(r, g, rule)
    if g.dsa and not g.hybrid_swa and not (rule.packed_scales and rule.index_keys):
        return float(_earlier_latent_price(r, priced, rule))
    if g.hybrid_swa and not g.dsv4 and not rule.window_ratio:
        prices = window_cell(r, priced)
        return float(prices.full_bytes + prices.swa_bytes + prices.fixed)
    return cell_bytes(r, priced)


def sizes_from_budget(r: Resolution, g: Geometry, budget: float, rule: SizingRule) -> Sizes:
    """Pool sizes of one stage for `budget` bytes under a release's rule."""
    priced = _as_priced(r, g, rule)
    if g.dsa and not g.hybrid_swa and not (rule.packed_scales and rule.index_keys):
        return Sizes(aligned(budget // _earlier_latent_price(r, priced, rule), g.page_size))
    if g.hybrid_swa and not g.dsv4 and not rule.window_ratio:
        return _earlier_window(r, priced, budget)
    sizes = from_budget(r, priced, int(budget))
    if g.unified and not g.dsv4 and sizes.tokens > 0:
        free_of_draft = g.draft is None or g.mambaish is not None
        if free_of_draft and (g.hybrid_swa or g.mambaish is not None):
            return replace(sizes, unified_bytes=int(budget) // 4096 * 4096)
    return sizes


def capped(r: Resolution, g: Geometry, sizes: Sizes, least: int | None = None) -> Sizes:
    """Sizes after `--max-total-tokens` and the smallest pipeline stage."""
    limit = r.max_total_tokens
    tokens = sizes.tokens
    if isinstance(limit, int) and not isinstance(limit, bool):
        tokens = min(tokens, limit)
    if least is not None:
        tokens = min(tokens, least)
    if tokens >= sizes.tokens:
        return sizes
    return from_tokens(r, g, max(tokens, 0))


@dataclass(frozen=True, slots=True)
class Requests:
    """How many requests may run on one rank, and what stops more."""

    count: int
    limited_by: str
    """option | default | tokens | states."""


def automatic_requests(tokens: int, context: int, rule: SizingRule) -> int:
    """The request limit where no option sets one (kv_cache_configurator.py:3122)."""
    wanted = int(tokens / max(1, context) * REQUESTS_PER_CONTEXT)
    return max(min(wanted, MOST_REQUESTS), LEAST_REQUESTS) + int(rule.extra_request)


def running_requests(
    r: Resolution, g: Geometry, tokens: int, state: StateShare, rule: SizingRule
) -> Requests:
    """The request limit of one data-parallel rank (kv_cache_configurator.py:3117)."""
    limit = r.max_running_requests
    if limit is not None:
        count, by = max(1, whole(limit) // g.attn_dp), "option"
    else:
        count, by = automatic_requests(tokens, g.context, rule), "default"
    if tokens // 2 < count:
        count, by = tokens // 2, "tokens"
    if g.mambaish is not None and state.slots // state.per_request < count:
        count, by = state.slots // state.per_request, "states"
    return Requests(max(count, 0), by)
