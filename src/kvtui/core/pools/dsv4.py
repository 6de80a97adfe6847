"""DeepSeek-V4's pools: sliding latents, compressed latents, index keys, compression states.

Mirrors `DSV4PoolConfigurator` (model_executor/pool_configurator.py:1067) and
`DeepSeekV4TokenToKVPool` (mem_cache/deepseek_v4_memory_pool.py:943) of 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtui.core.derived import whole
from kvtui.core.pools.geometry import Geometry
from kvtui.core.pools.sizes import Sizes, aligned, request_rows, swa_request_cap, window_floor

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

DEFAULT_SWA_RATIO = 0.1
"""Sliding-to-full ratio where none was given (pool_configurator.py:1045)."""

INDEX_PAGE = 64
"""Page of the ratio-1/2 index pools with the released DeepGEMM (deepseek_v4_memory_pool.py:532)."""
LOW_RATIOS = (1, 2)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How one latent is packed (kernels/ops/attention/dsv4/kv_layout.py)."""

    name: str
    data_bytes: int
    scale_bytes: int
    align: int
    dtype: str = "uint8"

    def page_bytes(self, tokens: int) -> int:
        """Bytes of a page, padded to the reader's row stride."""
        raw = tokens * (self.data_bytes + self.scale_bytes)
        return -(-raw // self.align) * self.align


V4 = RowLayout("v4", 576, 8, 576)
V41 = RowLayout("v41", 512, 16, 512)
V41_NEW = RowLayout("v41_new", 512, 16, 528)
V41_FP4 = RowLayout("v41_fp4", 256, 32, 256)
V41_FP4_NEW = RowLayout("v41_fp4_new", 256, 32, 288)
UNIFORM_FP8 = RowLayout("uniform_fp8", 512, 0, 512, "float8_e4m3fn")


@dataclass(frozen=True, slots=True)
class V4Shape:
    """What of the model and launch decides V4's sizes on one stage."""

    layers: int
    owners: dict[int, int]
    """Layers that own compressed storage, by ratio."""
    head_dim: int
    index_dim: int
    page: int
    swa_page: int
    main: RowLayout
    swa_ratio: float
    swa_cap: int | None
    """Sliding tokens fixed by the request limit, None where the ratio sizes them."""
    hisparse: int
    state_item: int
    draft_tokens: int
    speculative: bool
    replay: bool
    """Encoder replay: sliding rows live in per-request windows."""
    fp4_indexer: bool

    def compressed(self, ratio: int, option: str) -> RowLayout:
        """Layout of a compressed cache beside the main one."""
        if self.main in (V4, UNIFORM_FP8):
            return self.main
        fp4 = option == "fp4" or (option in ("", "auto") and ratio in LOW_RATIOS)
        if self.main is V41_NEW:
            return V41_FP4_NEW if fp4 else V41_NEW
        return V41_FP4 if fp4 else V41

    def ring(self, ratio: int, online: bool) -> int:
        """Rows of a request's compression state (deepseek_v4_memory_pool.py:60)."""
        if ratio == 2:
            return 2 if not self.speculative else 1 << (self.draft_tokens + 1).bit_length()
        if ratio == 128 and online:
            return 1
        return {4: (8, 16), 128: (128, 256)}[ratio][self.speculative]


def kv_layout(r: Resolution) -> RowLayout:
    """Layout of the main cache (deepseek_v4_memory_pool.py:198)."""
    if r.dsv4_attn_backend == "trtllm":
        return UNIFORM_FP8
    mode = (r.env.get("SGLANG_DSV4_KV_LAYOUT") or "v4").lower()
    if r.dsv4_attn_backend == "flashmla_mega" and mode != "v41_new":
        mode = "v41"
    if mode == "v4" or (mode == "auto" and not r.platform.is_sm100):
        return V4
    return V41_NEW if mode == "v41_new" else V41


def _owners(g: Geometry) -> dict[int, int]:
    ratios = tuple(g.model.compress_ratios or ())
    sources = g.model.hf_config.get("kv_source_layer_ids") or ()
    stage = range(g.start, min(g.end, len(ratios)))
    found = {}
    for ratio in (4, 128, 1, 2):
        owners = sources if ratio in LOW_RATIOS else stage
        count = sum(1 for i in owners if i in stage and ratios[i] == ratio)
        if count:
            found[ratio] = count
    return found


def _prefix_tails(r: Resolution, limit: int | None) -> int:
    if r.swa_prefix_tails is not None:
        return whole(r.swa_prefix_tails)
    return 0 if r.disable_radix_cache or limit is None else 4 * limit


def operator_ratio(r: Resolution) -> float | None:
    """The sliding ratio that the engine holds for given by the user, or None."""
    value = r.swa_full_tokens_ratio
    given = r._swa_full_tokens_ratio_explicitly_set
    return float(value) if given and isinstance(value, (int, float)) else None


def _swa_cap(r: Resolution, g: Geometry, limit: int | None) -> int | None:
    window = g.window
    if operator_ratio(r) is not None or limit is None or window is None:
        return None
    if r.disaggregation_mode != "decode" and whole(r.chunked_prefill_size) <= 0:
        return None
    cap = swa_request_cap(r, g, window)
    cap += _prefix_tails(r, limit) * (window + g.page_size)
    return -(-cap // g.page_size) * g.page_size


def request_limit(r: Resolution, g: Geometry) -> int | None:
    """The request limit per data-parallel rank, None where none is set."""
    limit = r.max_running_requests
    return None if limit is None else max(1, whole(limit) // g.attn_dp)


def v4_shape(r: Resolution, g: Geometry) -> V4Shape:
    """Gather V4's own facts."""
    model, ratio = g.model, operator_ratio(r)
    limit = request_limit(r, g)
    replay = bool(r.enable_encoder_swa_bounded_replay)
    direct = r.platform.is_sm120 and r.env_flag("SGLANG_OPT_SM120_DIRECT_SWA_KV")
    state = (r.env.get("SGLANG_DSV4_COMPRESS_STATE_DTYPE") or "float32").strip().lower()
    return V4Shape(
        layers=min(g.end, len(model.compress_ratios or ())) - g.start,
        owners=_owners(g),
        head_dim=(model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0),
        index_dim=model.index_head_dim or 0,
        page=g.page_size,
        swa_page=64 if direct else g.page_size,
        main=kv_layout(r),
        swa_ratio=0 if replay else DEFAULT_SWA_RATIO if ratio is None else ratio,
        swa_cap=0 if replay else _swa_cap(r, g, limit),
        hisparse=max(1, g.hisparse_ratio),
        state_item=2 if state in ("bfloat16", "bf16") else 4,
        draft_tokens=g.draft_tokens,
        speculative=r.speculative_algorithm is not None,
        replay=replay,
        fp4_indexer=bool(r.enable_deepseek_v4_fp4_indexer),
    )


def online_compress(r: Resolution) -> bool:
    return r.platform.is_cuda and r.env_flag("SGLANG_OPT_USE_ONLINE_COMPRESS")


def layout_option(r: Resolution) -> str:
    return (r.env.get("SGLANG_DSV4_COMPRESSED_KV_LAYOUT") or "auto").lower()


def index_bytes(dim: int, fp4: bool) -> int:
    """Bytes of one index key with its scales (deepseek_v4_memory_pool.py:53)."""
    return dim // 2 + dim // 32 if fp4 else dim + dim // 128 * 4


def swa_token_bytes(r: Resolution, s: V4Shape) -> float:
    """Bytes of one sliding token, its share of the ratio-4 states included."""
    if s.replay:
        return 0
    states = 4 * (s.head_dim + s.index_dim) * s.state_item
    ring = s.ring(4, False) if 4 in s.owners else 0
    row = s.main.page_bytes(s.page) / s.page
    return row * s.layers + ring / s.page * states * s.owners.get(4, 0)


def full_token_bytes(r: Resolution, s: V4Shape) -> float:
    """Bytes of one full token: the figure that the boot log prints."""
    option = layout_option(r)

    def row(ratio: int) -> float:
        if s.main is UNIFORM_FP8:
            return float(UNIFORM_FP8.data_bytes)
        page = s.page // ratio
        return s.compressed(ratio, option).page_bytes(page) / page

    each = {
        4: lambda: row(4) / (4 * s.hisparse) + index_bytes(s.index_dim, False) / 4,
        128: lambda: row(128) / 128,
        1: lambda: row(1) + index_bytes(s.index_dim, True),
        2: lambda: (row(2) + index_bytes(s.index_dim, True)) / 2,
    }
    total = sum(each[ratio]() * count for ratio, count in s.owners.items())
    if s.swa_cap is None:
        total += s.swa_ratio * swa_token_bytes(r, s)
    if s.speculative and not s.replay:
        total *= (s.layers + 1) / max(1, s.layers)
    return total


def state_rows(size: int, ring: int, ratio: int) -> int:
    return -(-(size + ring + 1) // ratio) * ratio


def _fixed_state_bytes(r: Resolution, s: V4Shape, requests: int) -> int:
    """States of ratio 128 and 2, sized by request rows (pool_configurator.py:1500)."""
    rows = request_rows(r, requests)
    total = 0
    if 128 in s.owners:
        if online_compress(r):
            width, count = 3 * s.head_dim, (rows + 2) * (1 + s.draft_tokens)
        else:
            ring = s.ring(128, False)
            width, count = 2 * s.head_dim, state_rows(rows * ring, ring, 128)
        total += count * width * s.state_item * s.owners[128]
    if 2 in s.owners:
        ring = s.ring(2, False)
        total += state_rows(rows * ring, ring, 2) * 2 * s.head_dim * 4 * s.owners[2]
    return total


def _low_ratio_padding(r: Resolution, s: V4Shape, tokens: int) -> float:
    """Reserved pages of the ratio-1/2 pools (pool_configurator.py:1405)."""
    if s.main is UNIFORM_FP8:
        return 0
    total, item = 0.0, index_bytes(s.index_dim, True)
    for ratio in LOW_RATIOS:
        count = s.owners.get(ratio, 0)
        page = s.page // ratio
        row = s.compressed(ratio, layout_option(r)).page_bytes(page) / page
        slots = -(-((tokens + s.page) // ratio + INDEX_PAGE) // INDEX_PAGE) * INDEX_PAGE
        total += (s.page * row + (slots - tokens // ratio) * item) * count
    return total


def dsv4_from_tokens(r: Resolution, g: Geometry, tokens: int) -> Sizes:
    """Every index space of V4 for `tokens` full tokens."""
    s = v4_shape(r, g)
    full = aligned(tokens, s.page)
    swa = aligned(full * s.swa_ratio, s.page) if s.swa_cap is None else s.swa_cap
    floor = window_floor(g)
    short = ""
    if s.swa_cap is None and floor is not None and floor >= swa:
        short = f"swa:{swa}:{floor}"
    ring = s.ring(4, False) if 4 in s.owners else 0
    return Sizes(
        full, full, swa,
        c4=full // (4 * s.hisparse), c128=full // 128, c4_state=swa // s.page * ring,
        shortfall=short,
    )  # fmt: skip


def dsv4_from_budget(r: Resolution, g: Geometry, budget: int) -> Sizes:
    """Full tokens of a byte budget, request-scoped states charged first."""
    s = v4_shape(r, g)
    per_token = full_token_bytes(r, s)
    limit = request_limit(r, g)
    if limit is None:
        tokens = int(budget / per_token) if per_token else 0
        wanted = max(min(int(tokens / g.context * 512), 4096), 2048)
        limit = min(wanted, tokens // 2)
    fixed = float(_fixed_state_bytes(r, s, limit))
    if s.swa_cap is not None:
        infl = (s.layers + 1) / s.layers if s.speculative and not s.replay else 1
        fixed += s.swa_cap * swa_token_bytes(r, s) * infl
    room = max(budget - fixed, 0)
    tokens = aligned(room / per_token, s.page) if per_token else 0
    while tokens > 0 and tokens * per_token + _low_ratio_padding(r, s, tokens) > room:
        tokens -= s.page
    if tokens <= 0 and s.swa_cap is not None:
        return Sizes(0, 0, s.swa_cap, shortfall=f"cap:{s.swa_cap}:{int(fixed)}")
    return dsv4_from_tokens(r, g, tokens)
