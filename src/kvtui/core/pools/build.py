"""Which pool class a launch gets, and what lies in it.

Mirrors `_init_pools`, `_build_token_to_kv_pool` and the allocator choice of
srt/mem_cache/kv_cache_configurator.py (0.5.23).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kvtui.core.pools import layouts
from kvtui.core.pools.cell import default_cell, window_cell
from kvtui.core.pools.classes import (
    OFFLOADABLE,
    allocator_class,
    configurator_class,
    pool_family,
    request_pool_class,
)
from kvtui.core.pools.dsv4 import full_token_bytes, v4_shape
from kvtui.core.pools.dsv4_layout import dsv4_pools
from kvtui.core.pools.geometry import FP4, Geometry
from kvtui.core.pools.minimax import minimax_pools
from kvtui.core.pools.sizes import Sizes, request_rows, swa_ratio, table_columns
from kvtui.core.pools.sparse import (
    index_layers,
    latent_dim,
    qsa_profile,
)
from kvtui.core.pools.spec import BufferSpec, PoolPlan, SubPool
from kvtui.core.pools.state import state_pools, state_room
from kvtui.core.pools.unified import unified, unified_pools

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution


def _dims(g: Geometry) -> tuple[int, int]:
    return int(g.model.head_dim), int(g.model.v_head_dim)


def _dense_class(r: Resolution, g: Geometry) -> str:
    if g.mxfp8:
        return "MHATokenToKVPoolMXFP8"
    if r.prefill_only_disable_kv_cache:
        return "NoOpMHATokenToKVPool"
    return "PageInterleaveMHATokenToKVPool" if g.shard_size > 1 else "MHATokenToKVPool"


def _dense_buffers(
    r: Resolution, g: Geometry, prefix: str, rows: int, heads: int, dims: tuple[int, int],
    layers: int,
) -> tuple[BufferSpec, ...]:  # fmt: skip
    if g.mxfp8:
        return layouts.mha_mxfp8(prefix, rows, g.page_size, heads, dims, layers)
    if r.env_flag("SGLANG_USE_HND_KVCACHE") and rows % g.page_size == 0:
        return layouts.mha_hnd(prefix, g.kv_dtype, rows, g.page_size, heads, dims, layers)
    return layouts.mha(prefix, g.kv_dtype, rows, heads, dims, layers)


def _mha(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    name, rows, dims = _dense_class(r, g), sizes.tokens + g.page_size, _dims(g)
    if name == "NoOpMHATokenToKVPool":
        buffers = layouts.mha("", g.kv_dtype, g.page_size, g.heads, dims, g.layers)
        return name, (replace(layouts.full_pool(g, sizes, name, buffers, g.layers), slots=0),)
    if g.fp4 is not None:
        buffers = layouts.mha_fp4("", g.fp4, rows, g.page_size, g.heads, dims[0], g.layers)
    else:
        buffers = _dense_buffers(r, g, "", rows, g.heads, dims, g.layers)
    return name, (layouts.full_pool(g, sizes, name, buffers, g.layers),)


def _mla(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    rows = sizes.tokens + g.page_size
    dim = g.latent
    if g.kv_dtype == FP4:
        name = "MLATokenToKVPoolFP4"
        return name, (
            layouts.full_pool(g, sizes, name, layouts.mla_fp4("", rows, dim, g.layers), g.layers),
        )
    name = "PageInterleaveMLATokenToKVPool" if g.shard_size > 1 else "MLATokenToKVPool"
    buffers = layouts.mla("", g.kv_dtype, rows, dim, g.layers)
    return name, (layouts.full_pool(g, sizes, name, buffers, g.layers),)


def _index_buffers(
    r: Resolution, g: Geometry, prefix: str, sizes: Sizes, skipped: tuple[bool, ...]
) -> tuple[BufferSpec, ...]:
    config, page = g.model.hf_config, g.page_size
    head_dim, pooled = int(config.index_head_dim), max(1, int(config.get("index_kpool", 1)))
    tokens = sizes.tokens
    slots = tokens * g.hisparse_ratio if g.hisparse_ratio else (tokens + page) * g.dcp - page
    keys = layouts.index_keys(prefix, slots, page, head_dim, pooled, skipped)
    if pooled == 1 or not config.get("index_kpool_compress", False):
        return keys
    requests = request_rows(r, sizes.requests)
    tails = layouts.index_tails(prefix, requests, pooled + g.draft_tokens, head_dim, skipped)
    return keys + tails


def _latent_buffers(
    r: Resolution, g: Geometry, prefix: str, rows: int, layers: int
) -> tuple[BufferSpec, ...]:
    dtype = "uint8" if g.dsa and g.kv_dtype == "float8_e4m3fn" else g.kv_dtype
    return layouts.mla(prefix, dtype, rows, latent_dim(r, g), layers)


def _dsa(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    layers, rows = g.layers, sizes.tokens + g.page_size
    skipped = index_layers(r, g)
    name = "DSATokenToKVPool"
    if g.shard_size > 1:
        name = "PageInterleaveDSATokenToKVPool"
    elif g.hisparse_ratio:
        name = "HiSparseDSATokenToKVPool"
    elif g.layer_shard > 1:
        name, layers = "LayerSplitDSATokenToKVPool", -(-g.layers // g.layer_shard)
        skipped = skipped[:layers]
    latents = layouts.full_pool(g, sizes, name, _latent_buffers(r, g, "", rows, layers), layers)
    index = _index_buffers(r, g, "", sizes, skipped)
    return name, (latents, layouts.full_pool(g, sizes, "IndexKeyCache", index, layers, "index"))


def _window_dims(g: Geometry) -> tuple[tuple[int, int], int, tuple[int, int]]:
    """(full dims, sliding heads, sliding dims); most models share the full ones."""
    model, dims = g.model, _dims(g)
    if not model.is_hybrid_swa_compress:
        return (dims[0], dims[0]), g.heads, (dims[0], dims[0])
    stated = model.hf_text_config.get("swa_num_key_value_heads")
    heads = g.heads if stated is None else max(1, int(stated) // g.attn_tp)
    return dims, heads, (int(model.swa_head_dim), int(model.swa_v_head_dim))


def _swa(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    page, full, swa = g.page_size, sizes.full or 0, sizes.swa or 0
    full_dims, swa_heads, swa_dims = _window_dims(g)
    inner = "MHATokenToKVPoolMXFP8" if g.mxfp8 else "MHATokenToKVPool"
    sides = (
        ("full", full, g.heads, full_dims, g.full_layers),
        ("swa", swa, swa_heads, swa_dims, g.swa_layers),
    )
    return "SWAKVPool", tuple(
        SubPool(
            role, inner, slots, page, page,
            _dense_buffers(r, g, f"{role}_kv_pool.", slots + page, heads, dims, layers),
            allocator="SWATokenToKVPoolAllocator", layers=layers,
        )
        for role, slots, heads, dims, layers in sides
    )  # fmt: skip


def _swa_mla(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    page, full, swa = g.page_size, sizes.full or 0, sizes.swa or 0
    name = "DSATokenToKVPool" if g.dsa else "MLATokenToKVPool"
    buffers = _latent_buffers(r, g, "full_kv_pool.", full + page, g.full_layers)
    if g.dsa:
        every = (False,) * g.full_layers
        buffers += _index_buffers(r, g, "full_kv_pool.", replace(sizes, tokens=full), every)
    sliding = layouts.mla("swa_kv_pool.", g.kv_dtype, swa + page, g.swa_latent, g.swa_layers)
    alloc = "SWATokenToKVPoolAllocator"
    return "SWAKVPool", (
        SubPool("full", name, full, page, page, buffers, alloc, g.full_layers),
        SubPool("swa", "MLATokenToKVPool", swa, page, page, sliding, alloc, g.swa_layers),
    )


def _hybrid(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    layers, rows = len(g.kv_layer_ids), sizes.tokens + g.page_size
    room = state_room(r, g, sizes.state_slots, sizes.requests)
    head_dim, prefix = int(g.model.head_dim), "full_kv_pool."
    index: tuple[BufferSpec, ...] = ()
    if g.mla and g.dsa:
        inner, buffers = "DSATokenToKVPool", _latent_buffers(r, g, prefix, rows, layers)
        index = _index_buffers(r, g, prefix, sizes, index_layers(r, g))
    elif g.mla:
        inner = "MLATokenToKVPool"
        buffers = layouts.mla(prefix, g.kv_dtype, rows, g.latent, layers)
    elif g.fp4 is not None:
        inner = "MHATokenToKVPool"
        buffers = layouts.mha_fp4(prefix, g.fp4, rows, g.page_size, g.heads, head_dim, layers)
    else:
        inner = "MHATokenToKVPoolMXFP8" if g.mxfp8 else "MHATokenToKVPool"
        buffers = _dense_buffers(r, g, prefix, rows, g.heads, (head_dim, head_dim), layers)
    pools = [*state_pools(r, g, room), layouts.full_pool(g, sizes, inner, buffers, layers)]
    if index:
        pools.append(layouts.full_pool(g, sizes, "IndexKeyCache", index, layers, "index"))
    profile = qsa_profile(r, g)
    if profile is None:
        return "HybridLinearKVPool", tuple(pools)
    ring = request_rows(r, sizes.requests) * profile.ratio
    capacity = -(-rows // profile.ratio)
    item = profile.kv_heads * profile.head_dim
    qsa = (
        BufferSpec("qsa_key_state_buffer_pool", "bfloat16",
                   (ring, profile.kv_heads, profile.head_dim), layers, "flat"),
        BufferSpec("qsa_rope_position_buffer", "int64", (ring, 3), 1, "flat"),
        BufferSpec("qsa_compressed_flat", profile.dtype, (layers, capacity * item), 1, "flat"),
        BufferSpec("qsa_compressed_k_buffer_pool", profile.dtype,
                   (capacity, profile.kv_heads, profile.head_dim), layers, "flat",
                   entry_bytes=item * (1 if profile.dtype == "float8_e4m3fn" else 2)),
    )  # fmt: skip
    pools.append(layouts.full_pool(g, sizes, "QSATokenToKVPool", qsa, layers, "index"))
    return "QSATokenToKVPool", tuple(pools)


def _v4(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    return "DeepSeekV4TokenToKVPool", dsv4_pools(r, g, sizes)


Builder = Callable[["Resolution", Geometry, Sizes], tuple[str, tuple[SubPool, ...]]]

BUILDERS: dict[str, Builder] = {
    "dsv4": _v4, "swa_mla": _swa_mla, "swa": _swa, "dsa": _dsa, "mla": _mla,
    "minimax": minimax_pools, "hybrid": _hybrid, "mha": _mha,
}  # fmt: skip


def _request_pool(r: Resolution, g: Geometry, sizes: Sizes) -> SubPool:
    rows = request_rows(r, sizes.requests)
    table = BufferSpec("req_to_token", "int32", (rows, table_columns(r, g)), 1, "request")
    return SubPool("requests", request_pool_class(r, g), rows - 1, 1, 1, (table,), listed=False)


def cell_bytes(r: Resolution, g: Geometry) -> int:
    """The engine's cell size, rounded down to whole bytes."""
    if g.dsv4:
        return int(full_token_bytes(r, v4_shape(r, g)))
    if g.hybrid_swa:
        return int(window_cell(r, g).cell(swa_ratio(r)))
    return default_cell(r, g)


def build_plan(r: Resolution, g: Geometry, sizes: Sizes, notes: tuple[str, ...] = ()) -> PoolPlan:
    """The pool of one rank for `sizes`."""
    raw = 0
    if g.unified and not g.dsv4 and (g.hybrid_swa or g.mambaish is not None):
        shared = unified(r, g, sizes)
        raw, pools = shared.total_bytes, unified_pools(g, shared)
        name = "UnifiedSWAKVPool" if g.hybrid_swa else "UnifiedHybridLinearKVPool"
    else:
        name, pools = BUILDERS[pool_family(g)](r, g, sizes)
    return PoolPlan(
        class_name=name,
        kv_dtype=g.kv_dtype,
        bytes_per_token=cell_bytes(r, g),
        page_size=g.page_size,
        tokens=sizes.tokens,
        sub_pools=(*pools, _request_pool(r, g, sizes)),
        allocator=allocator_class(g, sizes),
        req_pool=request_pool_class(r, g),
        decode_offload=name in OFFLOADABLE,
        configurator=configurator_class(r, g),
        state_bytes_per_request=g.state.bytes_per_request if g.state is not None else 0,
        writable=name != "NoOpMHATokenToKVPool",
        notes=notes,
        raw_bytes=raw,
    )
