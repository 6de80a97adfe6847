"""MiniMax's sparse pools: dense layers, sparse layers and their index keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtui.core.pools import layouts
from kvtui.core.pools.geometry import Geometry
from kvtui.core.pools.sizes import Sizes
from kvtui.core.pools.sparse import (
    MSA_ALIGN,
    MSA_PAGE,
    minimax_index_dtype,
    minimax_layers,
    minimax_native_nvfp4,
    msa_row_bytes,
)
from kvtui.core.pools.spec import BufferSpec, SubPool

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution


def _msa_views(
    prefix: str, rows: int, layers: int, parts: tuple[tuple[str, tuple[int, ...]], ...], width: int
) -> tuple[BufferSpec, ...]:
    """The slab of one native NVFP4 cache and the component views into its page rows."""
    specs = [
        BufferSpec(f"{prefix}slab", "uint8", (layers, rows, width), 1, "page", 1, MSA_PAGE),
        BufferSpec(f"{prefix}rows", "uint8", (rows, width), layers, "page", 0, MSA_PAGE,
                   entry_bytes=width, layer_stride_bytes=rows * width),
    ]  # fmt: skip
    offset = 0
    for name, shape in parts:
        specs.append(
            BufferSpec(f"{prefix}{name}", "uint8", (rows, *shape), layers, "page", 0, MSA_PAGE,
                       entry_bytes=width, offset_bytes=offset, layer_stride_bytes=rows * width)
        )  # fmt: skip
        size = 1
        for one in shape:
            size *= one
        offset += -(-size // MSA_ALIGN) * MSA_ALIGN
    return tuple(specs)


def _minimax_native(g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    kinds, heads, dim = minimax_layers(g), g.heads, int(g.model.head_dim)
    rows = -(-(sizes.tokens + g.page_size) // MSA_PAGE)
    main_width, index_width = msa_row_bytes(heads, dim, kinds.index_dim)
    payload, scale = (heads, MSA_PAGE, dim // 2), (heads, MSA_PAGE, dim // 16)
    main = (("k_buffer", payload), ("k_scale_buffer", scale), ("v_buffer", payload),
            ("v_scale_buffer", scale))  # fmt: skip
    index = (("k_buffer", (MSA_PAGE, kinds.index_dim // 2)),
             ("k_scale_buffer", (MSA_PAGE, kinds.index_dim // 16)))  # fmt: skip
    layers = kinds.sparse
    return "MiniMaxM3Nvfp4KVPool", (
        layouts.full_pool(g, sizes, "MiniMaxM3Nvfp4MainKVPool",
              _msa_views("main_pool.", rows, layers, main, main_width), layers),
        layouts.full_pool(g, sizes, "MiniMaxM3Nvfp4IndexKPool",
              _msa_views("index_k_pool.", rows, layers, index, index_width), layers, "index"),
    )  # fmt: skip


def minimax_pools(r: Resolution, g: Geometry, sizes: Sizes) -> tuple[str, tuple[SubPool, ...]]:
    if minimax_native_nvfp4(r, g):
        return _minimax_native(g, sizes)
    kinds, dim, rows = minimax_layers(g), int(g.model.head_dim), sizes.tokens + g.page_size
    wide = sizes.tokens * max(1, g.hisparse_ratio) + g.page_size
    pools = []
    if g.hisparse_ratio and kinds.dense:
        dense = layouts.mha("dense_pool.", g.kv_dtype, wide, g.heads, (dim, dim), kinds.dense)
        pools.append(layouts.full_pool(g, sizes, "MHATokenToKVPool", dense, kinds.dense))
    layers = kinds.sparse if g.hisparse_ratio else kinds.dense + kinds.sparse
    main = layouts.mha("main_pool.", g.kv_dtype, rows, g.heads, (dim, dim), layers)
    inner = "HiSparseMHAMainPool" if g.hisparse_ratio else "MHATokenToKVPool"
    pools.append(layouts.full_pool(g, sizes, inner, main, layers))
    dtype, width = minimax_index_dtype(r, g), (kinds.index_dim, kinds.index_dim)
    if kinds.index_kv:
        both = layouts.mha("index_kv_pool.", dtype, wide, 1, width, kinds.index_kv)
        pools.append(layouts.full_pool(g, sizes, "MHATokenToKVPool", both, kinds.index_kv, "index"))
    if kinds.index_k:
        keys = layouts.mha("index_k_pool.", dtype, wide, 1, width, kinds.index_k)[:1]
        pools.append(
            layouts.full_pool(g, sizes, "MHATokenToKOnlyPool", keys, kinds.index_k, "index")
        )
    return "MiniMaxSparseKVPool", tuple(pools)
