"""Layout of a KV pool as plain data: the contract between planning (core) and building (probe).

Shapes are (rows, ...) with the engine's padding included. Bytes are per rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from math import prod

ITEM_BITS = {
    "bfloat16": 16, "float16": 16, "float32": 32, "float64": 64, "int64": 64, "int32": 32,
    "int8": 8, "uint8": 8, "float8_e4m3fn": 8, "float8_e5m2": 8, "float8_e8m0fnu": 8,
    "float4_e2m1fn_x2": 8, "bool": 8,
}  # fmt: skip
"""Bits per stored item by torch dtype name (packed fp4 stores two values an item)."""


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """`count` equal tensors, one a layer as a rule.

    `rows` says what one index of the row axis is: slot (a token), page, request (a state
    slot), or flat (not indexed by either, such as a dequantisation workspace).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int = 1
    rows: str = "slot"
    row_axis: int = 0
    """Axis of `shape` that a row index selects: 1 for state tensors (layers, rows, ...)."""
    tokens_per_row: int = 1
    """Tokens of the index space that one row covers: the page for `rows == "page"`."""
    sections: tuple[int, ...] = ()
    """Bytes an entry takes in each section of a packed page row, sections one behind the
    other: (128, 4) is all index keys of the page, then all their scales. Empty: not packed."""
    compress: int = 1
    """Tokens that one packed entry stands for (4 and 128 in DeepSeek-V4)."""
    entry_bytes: int = 0
    """Distance of two rows in the pool's shared raw buffer; 0: tensors of their own."""
    offset_bytes: int = 0
    """Where row 0 of the first tensor starts in the raw buffer (shared buffers only)."""
    layer_stride_bytes: int = 0
    """Distance of the same row of two consecutive tensors in the raw buffer."""
    placeholders: int = 0
    """Further tensors of the list that have no rows (layers that reuse another layer's)."""
    aliases: tuple[str, ...] = ()
    """Other names under which the engine's pool holds the same tensors."""

    def as_listed(self) -> tuple[BufferSpec, ...]:
        """The tensors as the engine's pool holds them: a row for each name, placeholders in."""
        if not self.placeholders and not self.aliases:
            return (self,)
        listed = replace(self, count=self.count + self.placeholders, placeholders=0, aliases=())
        return (listed, *(replace(listed, name=name) for name in self.aliases))

    @property
    def nbytes(self) -> int:
        """Bytes of all `count` tensors; 0 for views into the shared raw buffer."""
        if self.entry_bytes:
            return 0
        return prod(self.shape) * ITEM_BITS[self.dtype] // 8 * self.count


@dataclass(frozen=True, slots=True)
class SubPool:
    """Buffers that share one index space and one allocator.

    `role`: full | swa | state | index | draft | compress …; `slots` is the number of usable
    rows (padding not counted), `page_size` the tokens a page, `padding_rows` the rows in front
    or behind that the allocator never hands out. Roles `swa` and `state` have an index space of
    their own; every other role is indexed by the full pool's slots (or by their pages).
    """

    role: str
    class_name: str
    slots: int
    page_size: int
    padding_rows: int
    buffers: tuple[BufferSpec, ...]
    allocator: str = "TokenToKVPoolAllocator"
    layers: int = 0
    note: str = ""
    listed: bool = True
    """False for tensors that belong to the launch but not to the KV pool object itself (the
    request table, DeepSeek-V4's compression state): they cost memory and are not described
    as the pool's buffers."""

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The pool that a launch gets on one rank."""

    class_name: str
    kv_dtype: str
    """torch dtype name of stored K and V as the engine reports it (`bfloat16`, `uint8` …)."""
    bytes_per_token: int
    """The engine's cell size: budget bytes that one token of capacity costs."""
    page_size: int
    tokens: int
    sub_pools: tuple[SubPool, ...]
    allocator: str
    req_pool: str = "ReqToTokenPool"
    decode_offload: bool = False
    """Whether the decode offload manager takes this class."""
    configurator: str = "DefaultPoolConfigurator"
    state_bytes_per_request: int = 0
    writable: bool = True
    """False for the no-op pool, which refuses writes."""
    notes: tuple[str, ...] = ()
    raw_bytes: int = 0
    """Size of the one buffer that the sub-pools of a unified pool share (their buffers are
    views with `entry_bytes`)."""

    @property
    def buffers(self) -> tuple[BufferSpec, ...]:
        """Buffers that the engine's pool object holds, in order, once per name that it uses."""
        return tuple(
            named
            for pool in self.sub_pools
            if pool.listed
            for buffer in pool.buffers
            for named in buffer.as_listed()
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool."""
        return self.raw_bytes + sum(pool.nbytes for pool in self.sub_pools)

    @property
    def key(self) -> str:
        """Digest of the whole plan: tags the pool check that answers it."""
        return sha256(repr(self).encode()).hexdigest()[:24]
