"""Buffers of the DeepSeek-V4 pool (mem_cache/deepseek_v4_memory_pool.py, 0.5.23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtui.core.pools.dsv4 import (
    INDEX_PAGE,
    LOW_RATIOS,
    RowLayout,
    V4Shape,
    index_bytes,
    layout_option,
    online_compress,
    state_rows,
    v4_shape,
)
from kvtui.core.pools.geometry import Geometry
from kvtui.core.pools.sizes import Sizes, request_rows
from kvtui.core.pools.spec import BufferSpec, SubPool

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution


def _pages(size: int, page: int, logical: int) -> int:
    return -(-(size + logical) // page)


def _latents(
    name: str, layout: RowLayout, size: int, page: int, logical: int, ratio: int, layers: int
) -> BufferSpec:
    return BufferSpec(
        name, layout.dtype, (_pages(size, page, logical), layout.page_bytes(page)), layers, "page",
        tokens_per_row=page * ratio, sections=(layout.data_bytes, layout.scale_bytes),
        compress=ratio,
    )  # fmt: skip


def _indexer(
    name: str, s: V4Shape, fp4: bool, size: int, page: int, logical: int, ratio: int, layers: int
) -> BufferSpec:
    item = index_bytes(s.index_dim, fp4)
    key = s.index_dim // 2 if fp4 else s.index_dim
    return BufferSpec(
        name, "uint8", (_pages(size, page, logical), page * item), layers, "page",
        tokens_per_row=page * ratio, sections=(key, item - key), compress=ratio,
    )  # fmt: skip


def _state_pool(r: Resolution, s: V4Shape, sizes: Sizes, rows: int) -> SubPool:
    """Compression states: memory of the launch that the pool object does not list."""
    dtype = "float32" if s.state_item == 4 else "bfloat16"
    buffers = []
    if 4 in s.owners:
        count = state_rows(sizes.c4_state, s.ring(4, False), 4)
        for name, dim in (("core", s.head_dim), ("indexer", s.index_dim)):
            buffers.append(
                BufferSpec(f"c4_state.{name}", dtype, (count, 4 * dim), s.owners[4], "flat")
            )
    if 128 in s.owners:
        online = online_compress(r)
        ring = s.ring(128, online)
        count = (rows + 2) * (1 + s.draft_tokens) if online else state_rows(rows * ring, ring, 128)
        width = (3 if online else 2) * s.head_dim
        buffers.append(BufferSpec("c128_state", dtype, (count, width), s.owners[128], "flat"))
    if 2 in s.owners:
        ring = s.ring(2, False)
        shape = (state_rows(rows * ring, ring, 2), 2 * s.head_dim)
        buffers.append(BufferSpec("c2_state", "float32", shape, s.owners[2], "flat"))
    return SubPool("compress_state", "CompressStatePool", rows, 1, 1, tuple(buffers), listed=False)


def dsv4_pools(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[SubPool, ...]:
    """The sub-pools of `DeepSeekV4TokenToKVPool`."""
    s, page, option = v4_shape(r, g), g.page_size, layout_option(r)
    full, swa = sizes.full or 0, sizes.swa or 0
    pools = []
    if not s.replay:
        latents = _latents("swa_kv_pool.kv_buffer", s.main, swa, s.swa_page, page, 1, s.layers)
        pools.append(SubPool("swa", "DeepSeekV4SingleKVPool", swa, page, page, (latents,),
                             allocator="SWATokenToKVPoolAllocator", layers=s.layers))  # fmt: skip
    ratios = tuple(g.model.compress_ratios or ())[g.start : g.end]
    present = set(g.model.compress_ratios or ())
    for ratio, size in ((4, sizes.c4), (128, sizes.c128)):
        if ratio not in present:
            continue
        layers = ratios.count(ratio)
        layout = s.compressed(ratio, option)
        latents = _latents(
            f"c{ratio}_kv_pool.kv_buffer", layout, size, page // ratio, page, ratio, layers
        )
        pools.append(
            SubPool("compress", "DeepSeekV4SingleKVPool", full, page, page, (latents,),
                    layers=layers)
        )  # fmt: skip
    if 4 in present:
        index = _indexer(
            "c4_indexer_kv_pool.index_k_with_scale_buffer", s, s.fp4_indexer, sizes.c128 * 32,
            page // 4, page, 4, ratios.count(4),
        )  # fmt: skip
        pools.append(
            SubPool("index", "DeepSeekV4IndexerPool", full, page, page, (index,),
                    layers=index.count)
        )  # fmt: skip
    for ratio in LOW_RATIOS:
        if ratio in s.owners:
            pools.append(_low_ratio_pool(s, ratio, full, option))
    pools.append(_state_pool(r, s, sizes, request_rows(r, sizes.requests)))
    return tuple(pools)


def _low_ratio_pool(s: V4Shape, ratio: int, full: int, option: str) -> SubPool:
    layers, page = s.owners[ratio], s.page
    latents = _latents(
        f"kv_pools[{ratio}].kv_buffer", s.compressed(ratio, option), full // ratio, page // ratio,
        page, ratio, layers,
    )  # fmt: skip
    size = (full + page) // ratio
    index = _indexer(
        f"index_pools[{ratio}].index_k_with_scale_buffer", s, True, size, INDEX_PAGE, INDEX_PAGE,
        ratio, layers,
    )  # fmt: skip
    return SubPool(
        "compress", "DeepSeekV4SingleKVPool", full, page, page, (latents, index), layers=layers,
        listed=False,
    )  # fmt: skip
