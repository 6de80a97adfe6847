"""Small pool plans of every kind, with the engine's layouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtui.core.pools.spec import BufferSpec, PoolPlan, SubPool


def sub(role: str, slots: int, page: int, *buffers: BufferSpec, name: str = "Pool") -> SubPool:
    return SubPool(role, name, slots, page, page, buffers, layers=buffers[0].count)


def plan(name: str, tokens: int, page: int, *subs: SubPool, **more: object) -> PoolPlan:
    base = PoolPlan(name, "bfloat16", 0, page, tokens, subs, "TokenToKVPoolAllocator")
    return replace(base, **more)  # type: ignore[arg-type]


def pair(rows: int, heads: int = 2, dims: tuple[int, int] = (16, 16), layers: int = 3,
         dtype: str = "bfloat16", prefix: str = "") -> tuple[BufferSpec, BufferSpec]:  # fmt: skip
    return (
        BufferSpec(f"{prefix}k_buffer", dtype, (rows, heads, dims[0]), layers),
        BufferSpec(f"{prefix}v_buffer", dtype, (rows, heads, dims[1]), layers),
    )


def mha(tokens: int = 256, page: int = 1, **kinds: object) -> PoolPlan:
    buffers = pair(tokens + page, **kinds)  # type: ignore[arg-type]
    return plan("MHATokenToKVPool", tokens, page, sub("full", tokens, page, *buffers),
                decode_offload=True)  # fmt: skip


def mla(tokens: int = 256, page: int = 1, dim: int = 96) -> PoolPlan:
    latent = BufferSpec("kv_buffer", "bfloat16", (tokens + page, 1, dim), 3)
    return plan("MLATokenToKVPool", tokens, page, sub("full", tokens, page, latent),
                decode_offload=True)  # fmt: skip


def fp4(tokens: int = 256, page: int = 16) -> PoolPlan:
    rows = tokens + page
    scales = tuple(
        BufferSpec(f"native_{name}_scale_buffer", "uint8", (rows // page, 2, page, 2), 3, "page",
                   tokens_per_row=page)
        for name in "kv"
    )  # fmt: skip
    workspace = BufferSpec("dq_k_buffer", "float8_e4m3fn", (rows, 2, 32), 1, "flat")
    buffers = (*pair(rows, dims=(16, 16), dtype="uint8"), *scales, workspace)
    return plan("MHATokenToKVPool", tokens, page, sub("full", tokens, page, *buffers))


def mxfp8(tokens: int = 512, page: int = 128) -> PoolPlan:
    rows = tokens + page
    values = pair(rows, dims=(64, 64), dtype="float8_e4m3fn")
    scales = tuple(
        BufferSpec(f"{name}_scale_buffer", "float8_e8m0fnu", (rows // page, 2, 32, page // 32, 2),
                   3, "page", tokens_per_row=page)
        for name in "kv"
    )  # fmt: skip
    return plan("MHATokenToKVPoolMXFP8", tokens, page, sub("full", tokens, page, *values, *scales))


def mla_fp4(tokens: int = 256, page: int = 1) -> PoolPlan:
    rows = tokens + page
    buffers = (
        BufferSpec("kv_scale_buffer", "uint8", (rows, 6), 3),
        BufferSpec("kv_buffer", "uint8", (rows, 1, 48), 3),
    )
    return plan("MLATokenToKVPoolFP4", tokens, page, sub("full", tokens, page, *buffers))


def dsa(tokens: int = 256, page: int = 64) -> PoolPlan:
    latent = BufferSpec("kv_buffer", "bfloat16", (tokens + page, 1, 96), 3)
    index = BufferSpec("index_key_cache.buffer", "uint8", (tokens // page + 1, page * 132), 3,
                       "page", tokens_per_row=page, sections=(128, 4))  # fmt: skip
    return plan("DSATokenToKVPool", tokens, page, sub("full", tokens, page, latent),
                sub("index", tokens, page, index, name="IndexKeyCache"),
                decode_offload=True)  # fmt: skip


def swa(tokens: int = 256, sliding: int = 192, page: int = 1) -> PoolPlan:
    full = sub("full", tokens, page, *pair(tokens + page, prefix="full_kv_pool."))
    window = sub(
        "swa", sliding, page,
        *pair(sliding + page, heads=4, dims=(24, 8), layers=5, prefix="swa_kv_pool."),
    )  # fmt: skip
    return plan("SWAKVPool", tokens, page, full, window, allocator="SWATokenToKVPoolAllocator")


def pure_swa(tokens: int = 192) -> PoolPlan:
    window = sub("swa", tokens, 1, *pair(tokens + 1, prefix="swa_kv_pool."))
    return plan("SWAKVPool", tokens, 1, SubPool("full", "MHATokenToKVPool", 0, 1, 1, ()), window,
                allocator="PureSWATokenToKVPoolAllocator")  # fmt: skip


def hybrid(tokens: int = 256, page: int = 1, states: int = 6) -> PoolPlan:
    state = sub(
        "state", states, 1,
        BufferSpec("conv", "bfloat16", (4, states + 1, 40, 3), 1, "request", 1),
        BufferSpec("temporal", "float32", (4, states + 1, 2, 8, 8), 1, "request", 1),
        BufferSpec("intermediate_ssm", "float32", (4, 3, 2, 2, 8, 8), 1, "request", 1),
    )  # fmt: skip
    return plan("HybridLinearKVPool", tokens, page, state,
                sub("full", tokens, page, *pair(tokens + page)))  # fmt: skip


def minimax(tokens: int = 256, page: int = 16) -> PoolPlan:
    rows = tokens + page
    key = BufferSpec("index_k_pool.k_buffer", "bfloat16", (rows, 1, 16), 2)
    return plan("MiniMaxSparseKVPool", tokens, page,
                sub("full", tokens, page, *pair(rows, prefix="main_pool.")),
                sub("index", tokens, page, key, name="MHATokenToKOnlyPool"))  # fmt: skip


def minimax_slab(tokens: int = 512, page: int = 128) -> PoolPlan:
    rows = tokens // page + 1
    slab = BufferSpec("main_pool.slab", "uint8", (3, rows, page * 24), 1, "page", 1, page)
    view = BufferSpec("main_pool.k_buffer", "uint8", (rows, 1, page, 12), 3, "page", 0, page,
                      entry_bytes=page * 24, layer_stride_bytes=rows * page * 24)  # fmt: skip
    return plan("MiniMaxM3Nvfp4KVPool", tokens, page, sub("full", tokens, page, slab, view))


def dsv4(tokens: int = 4096, sliding: int = 1024, page: int = 256) -> PoolPlan:
    def packed(name: str, rows: int, entries: int, ratio: int, sections: tuple[int, int],
               pad: int = 0) -> BufferSpec:  # fmt: skip
        return BufferSpec(name, "uint8", (rows, entries * sum(sections) + pad), 2, "page",
                          tokens_per_row=page, sections=sections, compress=ratio)  # fmt: skip

    pages = tokens // page
    return plan(
        "DeepSeekV4TokenToKVPool", tokens, page,
        sub("swa", sliding, page, packed("swa_kv_pool.kv_buffer", sliding // page + 1, 256, 1,
                                         (36, 4), 32)),
        sub("compress", tokens, page, packed("c4_kv_pool.kv_buffer", pages + 4, 64, 4, (36, 4))),
        sub("compress", tokens, page,
            packed("c128_kv_pool.kv_buffer", pages + 128, 2, 128, (36, 4))),
        sub("index", tokens, page,
            packed("c4_indexer_kv_pool.index_k", pages + 4, 64, 4, (32, 4))),
        sub("compress_state", 4, 1, BufferSpec("c4_state", "float32", (128, 64), 2, "flat")),
        allocator="SWATokenToKVPoolAllocator",
    )  # fmt: skip


def _entry(prefix: str, layers: int, entry: int, rows: int, row: int) -> tuple[BufferSpec, ...]:
    """K and V views of one sub-pool: layers behind one another inside a slot's entry."""
    return tuple(
        BufferSpec(f"{prefix}{name}_buffer", "bfloat16", (rows, 1, row // 2), layers,
                   entry_bytes=entry, offset_bytes=at * row, layer_stride_bytes=2 * row)
        for at, name in enumerate("kv")
    )  # fmt: skip


def unified_swa(raw: int = 96 * 1024, page: int = 1) -> PoolPlan:
    full, sliding = 128, 192
    rows = raw // full // page * page
    return plan(
        "UnifiedSWAKVPool", 512, page,
        sub("full", rows - page, page, *_entry("full_kv_pool.", 2, full, rows, 32)),
        sub("swa", raw // sliding // page * page - page, page,
            *_entry("swa_kv_pool.", 3, sliding, raw // sliding // page * page, 32)),
        allocator="UnifiedSWATokenToKVPoolAllocator", raw_bytes=raw, decode_offload=True,
    )  # fmt: skip


def _state_views(raw: int, layers: int = 2) -> tuple[int, tuple[BufferSpec, ...]]:
    conv, temporal = 48 * 2, 64 * 4
    entry = layers * (conv + temporal)
    rows = raw // entry
    return entry, (
        BufferSpec("conv", "bfloat16", (layers, rows, 16, 3), 1, "request", 1, entry_bytes=entry,
                   layer_stride_bytes=conv),
        BufferSpec("temporal", "float32", (layers, rows, 8, 8), 1, "request", 1, entry_bytes=entry,
                   offset_bytes=layers * conv, layer_stride_bytes=temporal),
    )  # fmt: skip


def unified_hybrid(raw: int = 64 * 1024, page: int = 1) -> PoolPlan:
    rows = raw // 128 // page * page
    entry, states = _state_views(raw)
    return plan(
        "UnifiedHybridLinearKVPool", 256, page,
        sub("state", raw // entry - 1, 1, *states),
        sub("full", rows - page, page, *_entry("full_kv_pool.", 2, 128, rows, 32)),
        allocator="UnifiedMambaTokenToKVPoolAllocator", raw_bytes=raw,
    )  # fmt: skip


def unified_three(raw: int = 128 * 1024, page: int = 1) -> PoolPlan:
    two, three = unified_hybrid(raw, page), unified_swa(raw, page)
    return replace(two, class_name="UnifiedSWAKVPool", sub_pools=(
        two.sub_pools[0], *three.sub_pools
    ), allocator="UnifiedMambaSWATokenToKVPoolAllocator", decode_offload=True)  # fmt: skip


def noop() -> PoolPlan:
    return plan("NoOpMHATokenToKVPool", 256, 1, sub("full", 0, 1, *pair(1)), writable=False)


EVERY: dict[str, Callable[[], PoolPlan]] = {
    "mha": mha, "mha paged": lambda: mha(page=16), "mha fp8": lambda: mha(dtype="uint8"),
    "unequal": lambda: mha(dims=(24, 8)), "mla": mla, "mla paged": lambda: mla(page=64),
    "fp4": fp4, "mxfp8": mxfp8, "mla fp4": mla_fp4, "dsa": dsa, "swa": swa,
    "swa paged": lambda: swa(page=16), "pure swa": pure_swa, "hybrid": hybrid,
    "hybrid paged": lambda: hybrid(page=16), "minimax": minimax, "slab": minimax_slab,
    "dsv4": dsv4, "unified swa": unified_swa, "unified swa paged": lambda: unified_swa(page=4),
    "unified hybrid": unified_hybrid, "unified hybrid paged": lambda: unified_hybrid(page=4),
    "unified three": unified_three, "unified three paged": lambda: unified_three(page=4),
}  # fmt: skip
