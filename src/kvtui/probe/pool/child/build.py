"""Allocates every buffer of a pool plan as zeroed bytes and keeps views by row."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from kvtui.core.pools.spec import ITEM_BITS, BufferSpec, PoolPlan, SubPool

from .wire import Refused

WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8))
"""Words by size: bytes are moved in the widest one that divides row, distance and start."""


@dataclass(frozen=True)
class Built:
    """One buffer of the plan: `rows[i]` is layer i as bytes, (rows, ..., item bytes).

    State buffers (layers, rows, ...) are split into their layers as well, so that inside one row
    everything is contiguous.
    """

    spec: BufferSpec
    sub: SubPool
    rows: tuple[torch.Tensor, ...]

    @property
    def label(self) -> str:
        return f"{self.sub.role}:{self.spec.name}"


@dataclass(frozen=True)
class Pool:
    """A built pool: its plan as built, its buffers and where they lie."""

    plan: PoolPlan
    buffers: tuple[Built, ...]
    device: torch.device
    storages: tuple[torch.Tensor, ...]
    """The allocations themselves, as flat bytes."""

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all storages as torch reports them."""
        return sum(storage.untyped_storage().nbytes() for storage in self.storages)


def row_words(
    tensor: torch.Tensor, start: int, counts: tuple[int, ...], width: int
) -> tuple[torch.Tensor, torch.dtype]:
    """`tensor` (rows, ...) of bytes seen as (rows, *counts, words) from byte `start` of each row.

    Rows may lie apart (views of a shared buffer); what is inside a row is contiguous.
    """
    apart = tensor.stride(0)
    first = tensor.storage_offset() + start
    dtype = next(
        dtype for size, dtype in WORDS if not (width % size or apart % size or first % size)
    )
    base = torch.as_strided(
        tensor,
        (tensor.shape[0], *counts, width),
        (apart, *(width for _ in counts), 1),
        first,
    )
    return base.view(dtype), dtype


def item_bytes(spec: BufferSpec) -> int:
    """Bytes of the last axis of `spec`."""
    return spec.shape[-1] * ITEM_BITS[spec.dtype] // 8


def byte_shape(spec: BufferSpec) -> tuple[int, ...]:
    """`spec.shape` with the last axis counted in bytes."""
    if len(spec.shape) == 1:
        return (spec.shape[0], ITEM_BITS[spec.dtype] // 8)
    return (*spec.shape[:-1], item_bytes(spec))


def _view(raw: torch.Tensor, spec: BufferSpec, layer: int) -> torch.Tensor:
    """View of one tensor in the shared raw buffer, rows `entry_bytes` apart."""
    shape = byte_shape(spec)
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= shape[axis]
    strides[spec.row_axis] = spec.entry_bytes
    if spec.row_axis:
        strides[0] = spec.layer_stride_bytes
    start = spec.offset_bytes + layer * spec.layer_stride_bytes
    end = start + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    if end > raw.numel():
        raise Refused(
            "plan", f"{spec.name}: its views end at byte {end}, the buffer has {raw.numel()}"
        )
    return raw.as_strided(shape, strides, start)


def check_dtype(spec: BufferSpec) -> str:
    """A note when this torch does not know the dtype (the bytes are built all the same)."""
    if hasattr(torch, spec.dtype):
        return ""
    return f"torch {torch.__version__} has no {spec.dtype}: {spec.name} was built as bytes"


def build(plan: PoolPlan, device: torch.device) -> Pool:
    """Allocate the whole plan; raises torch's out-of-memory errors and Refused."""
    raw: torch.Tensor | None = None
    storages: list[torch.Tensor] = []
    if plan.raw_bytes:
        raw = torch.zeros(plan.raw_bytes, dtype=torch.uint8, device=device)
        storages.append(raw)
    buffers = []
    for sub in plan.sub_pools:
        for spec in sub.buffers:
            if spec.entry_bytes and raw is None:
                continue  # a second view of tensors that this sub-pool lists already
            tensors = []
            for layer in range(spec.count):
                if raw is not None and spec.entry_bytes:
                    tensor = _view(raw, spec, layer)
                else:
                    flat = torch.zeros(prod(byte_shape(spec)), dtype=torch.uint8, device=device)
                    storages.append(flat)
                    tensor = flat.view(byte_shape(spec))
                tensors += list(tensor) if spec.row_axis else [tensor]
            buffers.append(Built(spec, sub, tuple(tensors)))
    return Pool(plan, tuple(buffers), device, tuple(storages))
