"""The unified pool: one byte buffer that full, sliding and state sub-pools share.

Mirrors srt/mem_cache/unified_memory_pool.py and mem_cache/layout/token_major.py (0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kvtui.core.pools.geometry import Geometry
from kvtui.core.pools.layouts import store_dtype
from kvtui.core.pools.sizes import Sizes
from kvtui.core.pools.spec import ITEM_BITS, BufferSpec, SubPool

if TYPE_CHECKING:
    from kvtui.core.model.linear import LinearState
    from kvtui.core.resolution import Resolution

ENTRY_ALIGN = 32
"""Bytes that a slot's entry is rounded up to (layout/token_major.py:21)."""
ROW_ALIGN = 16
"""Bytes that every row must be a multiple of (layout/token_major.py:22)."""
FLOOR_STATE_SLOTS = 3
"""State slots that one running request locks (unified_memory_pool.py:1707)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One slot of a sub-pool: rows of all its layers, one behind the other."""

    role: str
    layers: int
    rows: tuple[tuple[str, tuple[int, ...], str], ...]
    """(name, shape, dtype) of each row of a layer."""
    paged: bool = True

    def row_bytes(self, index: int) -> int:
        """Bytes of one row of one layer."""
        _, shape, dtype = self.rows[index]
        return prod(shape) * ITEM_BITS[dtype] // 8

    @property
    def nbytes(self) -> int:
        """Bytes of the whole entry; states are not padded."""
        raw = sum(self.row_bytes(i) for i in range(len(self.rows))) * self.layers
        return -(-raw // ENTRY_ALIGN) * ENTRY_ALIGN if self.paged else raw


def _dense(role: str, g: Geometry, layers: int, heads: int, dims: tuple[int, int]) -> Entry:
    dtype = store_dtype(g.kv_dtype)
    pairs = zip("kv", dims, strict=True)
    rows = tuple((f"{name}_buffer", (heads, dim), dtype) for name, dim in pairs)
    return Entry(role, layers, rows)


def full_entry(g: Geometry) -> Entry:
    """The full-attention side."""
    model = g.model
    layers = g.full_layers if g.hybrid_swa else len(g.kv_layer_ids)
    if g.mla:
        return Entry("full", layers, (("kv_buffer", (1, g.latent), store_dtype(g.kv_dtype)),))
    return _dense("full", g, layers, g.heads, (int(model.head_dim), int(model.v_head_dim)))


def swa_entry(g: Geometry) -> Entry:
    """The sliding side."""
    model = g.model
    dims = (int(model.swa_head_dim), int(model.swa_v_head_dim))
    return _dense("swa", g, g.swa_layers, int(model.get_swa_num_kv_heads(g.attn_tp)), dims)


def state_entry(state: LinearState) -> Entry:
    """The recurrent side: windows, then states, each over all layers."""
    rows: list[tuple[str, tuple[int, ...], str]] = [
        (f"conv[{i}]", shape, state.conv_dtype) for i, shape in enumerate(state.shape.conv)
    ]
    rows.append(("temporal", state.shape.temporal, state.temporal_dtype))
    return Entry("state", state.layers, tuple(rows), paged=False)


def sink_bytes(entries: tuple[Entry, ...], page: int) -> int:
    """Bytes at the bottom that slot 0 of every sub-pool may write."""
    paged = [page * one.nbytes for one in entries if one.paged]
    return max([*(one.nbytes for one in entries), *paged])


@dataclass(frozen=True, slots=True)
class Unified:
    """Entries and the size of the buffer that they share."""

    entries: tuple[Entry, ...]
    total_bytes: int
    floor_bytes: int
    """What one worst-case request needs; below it the engine refuses to start."""
    page: int

    def slots(self, entry: Entry) -> int:
        """Rows of an entry's views: whole pages for keys and values."""
        count = self.total_bytes // entry.nbytes if entry.nbytes else 0
        return count // self.page * self.page if entry.paged else count


def unified(r: Resolution, g: Geometry, sizes: Sizes) -> Unified:
    """The buffer for `sizes` (unified_memory_pool.py:1593, 2128, 2308)."""
    full = full_entry(g)
    reach = g.context if g.window is None else min(g.context, g.window + g.page_size)
    entries: tuple[Entry, ...] = (full,)
    floor = 0
    total = sizes.unified_bytes
    if g.hybrid_swa:
        swa = swa_entry(g)
        entries += (swa,)
        floor += reach * swa.nbytes
        if total is None:
            total = (sizes.full or 0) * full.nbytes + (sizes.swa or 0) * swa.nbytes
    elif total is None:
        total = sizes.tokens * full.nbytes
    if g.state is not None:
        state = state_entry(g.state)
        entries += (state,)
        floor += FLOOR_STATE_SLOTS * state.nbytes
        total += sizes.state_slots * state.nbytes
    return Unified(entries, total, floor + sink_bytes(entries, g.page_size), g.page_size)


def _views(entry: Entry, rows: int, prefix: str) -> tuple[BufferSpec, ...]:
    specs, offset = [], 0
    stride = sum(entry.row_bytes(i) for i in range(len(entry.rows)))
    for index, (name, shape, dtype) in enumerate(entry.rows):
        view = "_kv_views" if name == "kv_buffer" else f"_{name[0]}_views"
        specs.append(
            BufferSpec(
                f"{prefix}{name}", dtype, (rows, *shape), entry.layers,
                entry_bytes=entry.nbytes, offset_bytes=offset, layer_stride_bytes=stride,
                aliases=(f"{prefix}{view}",),
            )
        )  # fmt: skip
        offset += entry.row_bytes(index)
    return tuple(specs)


def _state_views(entry: Entry, rows: int) -> tuple[BufferSpec, ...]:
    specs, offset, last = [], 0, len(entry.rows) - 1
    for index, (name, shape, dtype) in enumerate(entry.rows):
        first = "conv" if name == "conv[0]" else name
        specs.append(
            BufferSpec(
                f"mamba_pool.mamba_cache.{first}", dtype, (entry.layers, rows, *shape), 1,
                "request", 1, entry_bytes=entry.nbytes, offset_bytes=offset,
                layer_stride_bytes=entry.row_bytes(index),
                placeholders=last - 1 if index == 0 else 0,
            )
        )  # fmt: skip
        offset += entry.row_bytes(index) * entry.layers
    return tuple(specs)


def unified_pools(g: Geometry, u: Unified) -> tuple[SubPool, ...]:
    """Sub-pools whose buffers are views into the one buffer."""
    pools = []
    mla_class = "UnifiedMLATokenToKVPool" if g.mla else "UnifiedMHATokenToKVPool"
    for entry in sorted(u.entries, key=lambda one: one.role != "state"):
        rows = u.slots(entry)
        if entry.paged:
            views = _views(entry, rows, f"{entry.role}_kv_pool.")
            pools.append(
                SubPool(entry.role, mla_class, rows - u.page, u.page, u.page, views,
                        allocator="MultiEndedAllocator", layers=entry.layers)
            )  # fmt: skip
        else:
            states = tuple(b for b in _state_views(entry, rows) if prod(b.shape))
            pools.append(
                SubPool("state", "UnifiedMambaPool", rows - 1, 1, 1, states[:1] + states[-1:]
                        if len(states) > 1 else states, layers=entry.layers)
            )  # fmt: skip
    return tuple(pools)


def misaligned_row(entries: tuple[Entry, ...]) -> tuple[str, str, int] | None:
    """(sub-pool, row, bytes) of the first row that the layout can't place, or None."""
    for entry in entries:
        if entry.paged:
            for index, (name, _, _) in enumerate(entry.rows):
                if entry.row_bytes(index) % ROW_ALIGN:
                    return entry.role, name, entry.row_bytes(index)
    return None
