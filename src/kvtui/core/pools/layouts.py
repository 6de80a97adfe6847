"""Buffers of each pool class from plain numbers, padding included (`srt/mem_cache`, 0.5.23).

`rows` is the number of slots that a tensor holds: usable slots plus one page of padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtui.core.pools.recipes import BLOCK, Fp4Layout
from kvtui.core.pools.spec import BufferSpec, SubPool

if TYPE_CHECKING:
    from kvtui.core.pools.geometry import Geometry
    from kvtui.core.pools.sizes import Sizes

FP8_DTYPES = frozenset({"float8_e4m3fn", "float8_e5m2"})
INDEX_BLOCK = 128
"""Index keys that share one FP32 scale (memory_pool.py:5280)."""
MXFP8_BLOCK = 32
"""Values that share one UE8M0 scale (memory_pool.py:3854)."""


def full_pool(
    g: Geometry, sizes: Sizes, class_name: str, buffers: tuple[BufferSpec, ...], layers: int,
    role: str = "full",
) -> SubPool:  # fmt: skip
    """A sub-pool with a slot for every token and a page of padding."""
    return SubPool(role, class_name, sizes.tokens, g.page_size, g.page_size, buffers, layers=layers)


def store_dtype(dtype: str) -> str:
    """FP8 values are stored as bytes, since indexed writes lack FP8 (memory_pool.py:2031)."""
    return "uint8" if dtype in FP8_DTYPES else dtype


def kv_pair(
    prefix: str, dtype: str, rows: int, heads: int, dims: tuple[int, int], layers: int
) -> tuple[BufferSpec, ...]:
    """K and V of `layers` layers, (rows, heads, head_dim) each."""
    return tuple(
        BufferSpec(f"{prefix}{name}_buffer", dtype, (rows, heads, dim), layers)
        for name, dim in zip("kv", dims, strict=True)
        if layers
    )


def mha(
    prefix: str, dtype: str, rows: int, heads: int, dims: tuple[int, int], layers: int
) -> tuple[BufferSpec, ...]:
    """`MHATokenToKVPool` (memory_pool.py:2570)."""
    return kv_pair(prefix, store_dtype(dtype), rows, heads, dims, layers)


def mha_hnd(
    prefix: str, dtype: str, rows: int, page: int, heads: int, dims: tuple[int, int], layers: int
) -> tuple[BufferSpec, ...]:
    """`MHATokenToKVPool` under SGLANG_USE_HND_KVCACHE: (pages, heads, page, head_dim)."""
    return tuple(
        BufferSpec(
            f"{prefix}{name}_buffer", store_dtype(dtype), (rows // page, heads, page, dim), layers,
            rows="page", tokens_per_row=page,
        )
        for name, dim in zip("kv", dims, strict=True)
    )  # fmt: skip


def mha_mxfp8(
    prefix: str, rows: int, page: int, heads: int, dims: tuple[int, int], layers: int
) -> tuple[BufferSpec, ...]:
    """`MHATokenToKVPoolMXFP8`: values, then scales, interleaved by page at page size 128."""
    values = kv_pair(prefix, "float8_e4m3fn", rows, heads, dims, layers)
    scales = tuple(
        BufferSpec(
            f"{prefix}{name}_scale_buffer", "float8_e8m0fnu",
            (rows // page, heads, MXFP8_BLOCK, page // MXFP8_BLOCK, dim // MXFP8_BLOCK)
            if page == 128 else (rows, heads, dim // MXFP8_BLOCK),
            layers,
            rows="page" if page == 128 else "slot",
            tokens_per_row=page if page == 128 else 1,
        )
        for name, dim in zip("kv", dims, strict=True)
        if layers
    )  # fmt: skip
    return values + scales


def mha_fp4(
    prefix: str, layout: Fp4Layout, rows: int, page: int, heads: int, head_dim: int, layers: int
) -> tuple[BufferSpec, ...]:
    """Packed K and V with block scales (fp4_kv_cache_quant_method.py:583, 760)."""
    buffers = list(kv_pair(prefix, "uint8", rows, heads, (head_dim // 2,) * 2, layers))
    blocks = head_dim // BLOCK
    if layout.linear_scales:
        nv = layout.recipe == "nvfp4"
        shape = (rows, heads, blocks) if nv else (rows, heads * head_dim // BLOCK)
        buffers += [
            BufferSpec(f"{prefix}{name}_scale_buffer", "uint8", shape, layers) for name in "kv"
        ]
    if layout.native_scales:
        buffers += [
            BufferSpec(
                f"{prefix}native_{name}_scale_buffer", "uint8",
                (rows // page, heads, page, blocks), layers, rows="page", tokens_per_row=page,
            )
            for name in "kv"
        ]  # fmt: skip
    if layout.workspace:
        buffers += [
            BufferSpec(
                f"{prefix}dq_{name}_buffer", layout.workspace, (rows, heads, head_dim), 1, "flat"
            )
            for name in "kv"
        ]
    return tuple(buffers)


def mla(prefix: str, dtype: str, rows: int, dim: int, layers: int) -> tuple[BufferSpec, ...]:
    """`MLATokenToKVPool`: one latent row a token (memory_pool.py:4754)."""
    return (BufferSpec(f"{prefix}kv_buffer", store_dtype(dtype), (rows, 1, dim), layers),)


def mla_fp4(prefix: str, rows: int, dim: int, layers: int) -> tuple[BufferSpec, ...]:
    """`MLATokenToKVPoolFP4`: packed latent rows and their block scales."""
    return (
        BufferSpec(f"{prefix}kv_scale_buffer", "uint8", (rows, dim // BLOCK), layers),
        BufferSpec(f"{prefix}kv_buffer", "uint8", (rows, 1, dim // 2), layers),
    )


def index_entry_bytes(head_dim: int) -> tuple[int, int]:
    """(key bytes, scale bytes) of one index key."""
    return head_dim, head_dim // INDEX_BLOCK * 4


def index_keys(
    prefix: str, slots: int, page: int, head_dim: int, pooled: int, skipped: tuple[bool, ...]
) -> tuple[BufferSpec, ...]:
    """`IndexKeyCache`: a page holds all its keys, then all their scales.

    Layers marked in `skipped` reuse another layer's top-k and get a tensor without rows.
    """
    sections = index_entry_bytes(head_dim)
    per_page = page // pooled
    full = ((slots + page + 1) // page, per_page * sum(sections))
    active = len(skipped) - sum(skipped)
    if active == 0 or skipped[0]:
        return tuple(
            BufferSpec(
                f"{prefix}index_key_cache.buffer", "uint8", (rows, full[1]), count, "page",
                tokens_per_row=page, sections=sections,
            )
            for rows, count in ((0, len(skipped) - active), (full[0], active))
            if count
        )  # fmt: skip
    return (
        BufferSpec(
            f"{prefix}index_key_cache.buffer", "uint8", full, active, "page",
            tokens_per_row=page, sections=sections, placeholders=len(skipped) - active,
        ),
    )  # fmt: skip


def index_tails(
    prefix: str, requests: int, width: int, head_dim: int, skipped: tuple[bool, ...]
) -> tuple[BufferSpec, ...]:
    """Pending keys of pooled index layers, a row a request (memory_pool.py:5406)."""
    active = len(skipped) - sum(skipped)
    return tuple(
        BufferSpec(
            f"{prefix}_compress_tail_{name}", "bfloat16", (requests + 1, width, head_dim), active,
            "request", placeholders=len(skipped) - active,
        )
        for name in ("k", "score")
    )  # fmt: skip
