"""How many tokens, sliding tokens and state slots a byte budget or a token count gives.

Mirrors the configurators of srt/model_executor/pool_configurator.py and the token constraints of
mem_cache/kv_cache_configurator.py (0.5.23).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvtui.core.derived import whole
from kvtui.core.pools.cell import WindowCell, default_cell, window_cell
from kvtui.core.pools.geometry import Geometry

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

EVICTION_INTERVAL = 128
"""SGLANG_SWA_EVICTION_INTERVAL (environ.py:730)."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Usable rows of every index space on one rank; padding not counted."""

    tokens: int
    full: int | None = None
    swa: int | None = None
    c4: int = 0
    c128: int = 0
    c4_state: int = 0
    unified_bytes: int | None = None
    """Byte budget of a unified pool's one buffer, None where token counts make it."""
    requests: int = 0
    state_slots: int = 0
    shortfall: str = ""
    """Why the sizes can't be built, in words, empty where they can."""


DEFAULT_SWA_RATIO = 0.8
"""Sliding-to-full ratio that the engine reads where nobody set one (fields/schedule.py)."""


def swa_ratio(r: Resolution) -> float:
    """The sliding-to-full ratio in force; a value of a wrong type counts as the default."""
    value = r.swa_full_tokens_ratio
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number else DEFAULT_SWA_RATIO


def aligned(tokens: float, page: int) -> int:
    """Whole pages of `tokens`."""
    return int(tokens) // page * page


def alloc_len_per_decode(r: Resolution, g: Geometry) -> int:
    """KV rows that one request may take in a decode step (allocation_sizing.py:31)."""
    if g.draft is None and r.speculative_algorithm is None:
        return 1
    steps = whole(r.speculative_num_steps, 1) or 1
    topk = whole(r.speculative_eagle_topk, 1) or 1
    page = g.page_size * g.dcp
    if r.speculative_algorithm == "UNO":
        return g.draft_tokens + 1
    if page == 1 or topk == 1 or r.speculative_algorithm == "NGRAM":
        return max(steps * topk, g.draft_tokens)
    pages = (page - 1 + steps + page - 1) // page
    return max(pages * page * topk, g.draft_tokens)


def table_columns(r: Resolution, g: Geometry) -> int:
    """Columns of the request table (allocation_sizing.py:98)."""
    extra = 4 + g.draft_tokens
    page = g.page_size * g.dcp
    if r.speculative_algorithm is not None and (page > 1 or r.speculative_algorithm == "UNO"):
        extra = max(extra, 2 * alloc_len_per_decode(r, g) + page - 1)
    return g.context + extra


def request_rows(r: Resolution, requests: int) -> int:
    """Rows of the request table, the padding row included."""
    if r.disaggregation_mode == "decode" or r.enable_pd_role_switch:
        requests += whole(r.disaggregation_decode_extra_slots)
    return requests + 1


def swa_request_cap(r: Resolution, g: Geometry, window: int) -> int:
    """Sliding slots live at the request limit, worst case (pool_configurator.py:965)."""
    page = g.page_size
    drafts = whole(r.speculative_num_draft_tokens, 1) or 1
    interval = max(1, r.env_int("SGLANG_SWA_EVICTION_INTERVAL", EVICTION_INTERVAL))
    trailing = window + interval * drafts + page
    if r.speculative_algorithm is None:
        decode = page
    elif r.disable_overlap_schedule:
        decode = _spec_decode_alloc(r, page)
    else:
        decode = 2 * alloc_len_per_decode(r, g)
    requests = max(1, whole(r.max_running_requests) // g.attn_dp)
    live = (trailing + decode) * requests
    if r.disaggregation_mode == "decode":
        return live + (window + page) * whole(r.disaggregation_decode_extra_slots)
    chunks = 1 if r.disable_overlap_schedule else 2
    return live + chunks * whole(r.chunked_prefill_size) + page


def _spec_decode_alloc(r: Resolution, page: int) -> int:
    """One request's decode allocation without overlap (utils/common.py:4424)."""
    steps = whole(r.speculative_num_steps, 1) or 1
    topk = whole(r.speculative_eagle_topk, 1) or 1
    drafts = whole(r.speculative_num_draft_tokens, 1) or 1
    if page > 1:
        steps += page if topk > 1 else 0
        steps, drafts = -(-steps // page) * page, -(-drafts // page) * page
    return max(steps * topk, drafts)


def request_capped(r: Resolution, g: Geometry) -> bool:
    """True where the sliding pool is sized from the request limit (pool_configurator.py:1029)."""
    if r.max_running_requests is None or not r.disable_radix_cache:
        return False
    if r.disaggregation_mode != "decode" and whole(r.chunked_prefill_size) <= 0:
        return False
    return g.window is not None and g.full_layers > 0


def window_floor(g: Geometry) -> int | None:
    """Sliding tokens that admission of one request needs to exceed (pool_configurator.py:201)."""
    return None if g.window is None else g.window + g.page_size


def _window_sizes(r: Resolution, g: Geometry, tokens: float) -> Sizes:
    page = g.page_size
    if g.full_layers == 0:
        slots = aligned(tokens, page)
        return Sizes(slots, 0, slots)
    full = aligned(tokens, page)
    swa = aligned(full * swa_ratio(r), page)
    floor = window_floor(g)
    short = ""
    if floor is not None and floor >= swa and not g.unified:
        short = f"swa:{swa}:{floor}"
    return _unified(g, window_cell(r, g), Sizes(full, full, swa, shortfall=short))


def _unified(g: Geometry, cell: WindowCell, sizes: Sizes) -> Sizes:
    if not g.unified:
        return sizes
    full, swa = sizes.full or 0, sizes.swa or 0
    total = full * cell.full * cell.full_layers + swa * cell.swa * cell.swa_layers
    return replace(sizes, unified_bytes=total)


def _unified_full_tokens(
    r: Resolution, g: Geometry, cell: WindowCell, budget: int, fixed_swa: int | None
) -> int:
    """Most full tokens whose unified allocation fits (pool_configurator.py:838)."""
    page, full_bytes = g.page_size, cell.full * cell.full_layers
    drafts = int(
        cell.full * cell.draft_full
        + cell.swa * (cell.draft_swa + cell.draft_swa_full)
        + cell.draft_bytes
    )
    ratio = swa_ratio(r)

    def allocation(pages: int) -> int:
        full = pages * page
        swa = aligned(full * ratio, page) if fixed_swa is None else fixed_swa
        target = full * full_bytes + swa * cell.swa * cell.swa_layers
        span = max(target // full_bytes - 1, 0)
        return target + (-(-span // page) * page + page) * drafts

    most = budget // full_bytes // page
    return max(bisect_right(range(most + 1), budget, key=allocation) - 1, 0) * page


def from_tokens(r: Resolution, g: Geometry, tokens: int) -> Sizes:
    """Sizes for a fixed token count."""
    if g.dsv4:
        from kvtui.core.pools.dsv4 import dsv4_from_tokens

        return dsv4_from_tokens(r, g, tokens)
    if not g.hybrid_swa:
        return Sizes(aligned(tokens, g.page_size))
    if request_capped(r, g):
        cap = swa_request_cap(r, g, g.window or 0)
        swa = min(-(-cap // g.page_size) * g.page_size, tokens)
        full = aligned(tokens, g.page_size)
        return _unified(g, window_cell(r, g), Sizes(full, full, swa))
    return _window_sizes(r, g, tokens)


def from_budget(r: Resolution, g: Geometry, budget: int) -> Sizes:
    """Sizes for a budget of `budget` bytes for keys and values."""
    if g.dsv4:
        from kvtui.core.pools.dsv4 import dsv4_from_budget

        return dsv4_from_budget(r, g, budget)
    if not g.hybrid_swa:
        cell = default_cell(r, g)
        if not cell:
            tokens = whole(r.max_total_tokens) or g.context
        else:
            tokens = max(0, budget - shard_scratch_bytes(r, g)) // cell
        return Sizes(aligned(tokens, g.page_size))
    prices = window_cell(r, g)
    if request_capped(r, g):
        return _capped_from_budget(r, g, prices, budget)
    if g.unified and g.full_layers:
        tokens = _unified_full_tokens(r, g, prices, budget, None)
    else:
        cell_bytes = prices.cell(swa_ratio(r))
        tokens = int(budget // cell_bytes) if cell_bytes else 0
    return _window_sizes(r, g, tokens)


def _capped_from_budget(r: Resolution, g: Geometry, prices: WindowCell, budget: int) -> Sizes:
    page = g.page_size
    swa = -(-swa_request_cap(r, g, g.window or 0) // page) * page
    fixed = swa * prices.swa_bytes
    full = aligned((budget - fixed) // (prices.full_bytes + prices.fixed), page)
    if full <= 0:
        return Sizes(0, 0, swa, shortfall=f"cap:{swa}:{fixed}")
    return _unified(g, prices, Sizes(full, full, swa))


PREFIX_CONTEXTS = 8
"""Full contexts that a sharded cache's scratch holds (page_interleave.py:56)."""


def shard_scratch_bytes(r: Resolution, g: Geometry) -> int:
    """Assembly scratch of a sharded cache, charged before the pool (page_interleave.py:244)."""
    if g.shard_size <= 1:
        return 0
    from kvtui.core.pools.sparse import index_token_bytes, latent_dim

    page, granule = g.page_size, g.shard_size * g.page_size
    prefix = PREFIX_CONTEXTS * (-(-g.context // granule) * granule)
    rows = prefix + -(-whole(r.chunked_prefill_size) // page) * page + page
    if g.mla:
        row = latent_dim(r, g) * g.item_bytes + (index_token_bytes(g) if g.dsa else 0)
    else:
        dims = int(g.model.head_dim) + int(g.model.v_head_dim)
        row = int(g.model.get_num_kv_heads(g.attn_tp)) * dims * g.item_bytes
    runners = 2 if g.draft is not None and g.draft.eagle_like else 1
    return 2 * rows * row * runners
