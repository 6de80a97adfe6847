"""What a pool class refuses at run time, tried on the built pool."""

from __future__ import annotations

from typing import Any

import torch

from .build import Built, Pool
from .wire import Refused

NO_OP_WRITE = "a write to the no-op pool is refused"


def set_kv(pool: Pool, sub_pool: str, rows: torch.Tensor, key: Any, value: Any) -> None:
    """Write K and V rows of every layer of a sub-pool; raises Refused as the class would.

    The no-op pool accepts no write at all; a key-only sub-pool accepts no V.
    """
    if not pool.plan.writable:
        raise Refused("write", f"{pool.plan.class_name}.set_kv_buffer: {NO_OP_WRITE}")
    keys, values = key_value(pool, sub_pool)
    if values is None and value is not None:
        raise Refused("missing_v", f"{keys.sub.class_name} does not allocate V")
    for built, data in ((keys, key), (values, value)):
        if built is not None and data is not None:
            for tensor in built.rows:
                tensor[rows] = data


def key_value(pool: Pool, sub_pool: str) -> tuple[Built, Built | None]:
    """The K and V buffers of a sub-pool; V is None where the class keeps none."""
    own = [built for built in pool.buffers if built.sub.role == sub_pool]
    keys = [built for built in own if _is(built, "k_buffer")]
    values = [built for built in own if _is(built, "v_buffer")]
    if not keys:
        raise Refused("missing_k", f"sub-pool {sub_pool} has no K buffer")
    return keys[0], values[0] if values else None


def _is(built: Built, name: str) -> bool:
    return built.spec.name.rsplit(".", 1)[-1] == name


def lacks_v(pool: Pool) -> str:
    """Names a full or sliding MHA sub-pool whose K has no V; empty when all have."""
    for built in pool.buffers:
        if _is(built, "k_buffer") and built.sub.role in ("full", "swa"):
            _, value = key_value(pool, built.sub.role)
            if value is None:
                return f"sub-pool {built.sub.role}: K cache without a V cache ({built.spec.name})"
    return ""


def try_refusals(pool: Pool) -> list[str]:
    """Try each write that this class must refuse; returns what was refused, raises otherwise."""
    refused = []
    if not pool.plan.writable:
        held = [tensor for one in pool.buffers if one.sub.role == "full" for tensor in one.rows]
        marks = [tensor.clone() for tensor in held]
        rows = torch.zeros(1, dtype=torch.int64, device=pool.device)
        refused.append(_expect("write", pool, "full", rows, None))
        if not all(torch.equal(old, new) for old, new in zip(marks, held, strict=True)):
            raise Refused("corrupt", "a refused write changed the no-op pool's placeholders")
        return refused
    for role in dict.fromkeys(built.sub.role for built in pool.buffers):
        own = [built for built in pool.buffers if built.sub.role == role]
        if any(_is(b, "k_buffer") for b in own) and not any(_is(b, "v_buffer") for b in own):
            rows = torch.zeros(1, dtype=torch.int64, device=pool.device)
            refused.append(_expect("missing_v", pool, role, rows, 0))
    return refused


def _expect(kind: str, pool: Pool, role: str, rows: torch.Tensor, value: Any) -> str:
    try:
        set_kv(pool, role, rows, None, value)
    except Refused as refusal:
        if refusal.kind == kind:
            return str(refusal)
        raise
    raise Refused("accepted", f"{pool.plan.class_name} accepted a write that it must refuse")
