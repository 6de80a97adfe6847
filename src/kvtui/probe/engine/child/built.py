"""What a built pool holds, and which parts of the engine take its class."""

from __future__ import annotations

import inspect
from itertools import combinations
from typing import Any


def buffers_of(kv_pool: Any) -> list[dict[str, Any]]:
    """Every group of equal tensors that a pool holds, sub-pools included."""
    import torch

    rows: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()

    def add(name: str, tensor: Any, count: int) -> None:
        if tensor.dim() >= 2 and tensor.numel() > 0 and name not in rows:
            rows[name] = {
                "name": name,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
                "count": count,
                "bytes": tensor.numel() * tensor.element_size() * count,
            }

    def visit(owner: Any, prefix: str, depth: int) -> None:
        if depth > 3 or id(owner) in seen:
            return
        seen.add(id(owner))
        for key, value in list(getattr(owner, "__dict__", {}).items()):
            if isinstance(value, torch.Tensor):
                add(prefix + key, value, 1)
            elif isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
                add(prefix + key, value[0], len(value))
            elif type(value).__module__.startswith("sglang.srt.mem_cache") and not isinstance(
                value, type
            ):
                visit(value, f"{prefix}{key}.", depth + 1)

    visit(kv_pool, "", 0)
    return list(rows.values())


def takes_decode_offload(kv_pool: Any) -> bool:
    """Whether the decode offload manager of this release takes the pool's class."""
    from sglang.srt.disaggregation import decode_kvcache_offload_manager as manager

    names = ("MHATokenToKVPool", "MLATokenToKVPool", "UnifiedSWAKVPool")
    classes = tuple(c for c in (getattr(manager, name, None) for name in names) if c is not None)
    return isinstance(kv_pool, classes)


def start_decode_offload(pools: Any) -> None:
    """Let the engine's manager refuse a pool that it does not take, in its own words.

    For pools that `takes_decode_offload` denies: the manager looks at the class before it takes
    any memory.
    """
    import torch
    from sglang.srt.disaggregation.decode_kvcache_offload_manager import (
        DecodeKVCacheOffloadManager,
    )

    torch.distributed.get_world_size = lambda *group, **named: 1
    called(
        DecodeKVCacheOffloadManager,
        req_to_token_pool=pools.req_to_token_pool,
        token_to_kv_pool_allocator=pools.token_to_kv_pool_allocator,
        tp_group=None,
        tree_cache=None,
        server_args=None,
    )


def takes_hicache(kv_pool: Any) -> bool | None:
    """Whether this release has a host tier for the pool's class; None where that can't be told.

    The release keeps one strategy for each kind of pool and radix tree; the pool is offered to
    all of them with every tree that it could have.
    """
    try:
        from sglang.srt.mem_cache.hybrid_cache import hybrid_pool_assembler
        from sglang.srt.mem_cache.unified_cache.components import ComponentType
    except ImportError:
        return None
    strategies = getattr(hybrid_pool_assembler, "_STRATEGIES", None)
    if not strategies:
        return None
    optional = [kind for kind in ComponentType if kind is not ComponentType.FULL]
    trees = [
        {ComponentType.FULL, *more}
        for count in range(len(optional) + 1)
        for more in combinations(optional, count)
    ]
    if not any(strategy.matches(kv_pool, tree) for strategy in strategies for tree in trees):
        return False
    return _has_host_rows(kv_pool)


PLAIN_POOLS = ("MHATokenToKVPool", "MLATokenToKVPool")
"""Classes whose rows go to the host as they are, described by `get_device_pool_infos`."""


def _has_host_rows(kv_pool: Any) -> bool:
    """False for a pool of plain rows that says itself that it has none for the host."""
    infos = getattr(kv_pool, "get_device_pool_infos", None)
    plain = any(kind.__name__ in PLAIN_POOLS for kind in type(kv_pool).__mro__)
    if infos is None or not plain:
        return True
    try:
        return len(infos()) > 0
    except NotImplementedError:
        return False


def called(function: Any, **words: Any) -> Any:
    """Call with those words that this release's function takes."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in words.items() if name in taken})
