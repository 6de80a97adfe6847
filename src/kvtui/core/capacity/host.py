"""Host memory of the hierarchical cache, for one rank and for all ranks of a machine.

Mirrors srt/mem_cache/pool_host/base.py and mem_cache/hicache_auto_size.py (0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtui.core.derived import whole
from kvtui.core.facts import GIB, HostFacts
from kvtui.core.pools.spec import PoolPlan, SubPool

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

RESERVE_BYTES = 10 * GIB
"""Always left to the system (pool_host/base.py:26)."""
SLACK = 0.05
"""Left out of an automatic size for rounding and staging (hicache_auto_size.py:33)."""
DEFAULT_RATIO = 2.0
RETRACTION_RATIO = 1.0
"""Ratio of a decode server's host pool for retraction (mem_cache/kv_cache_builder.py)."""
OUTSIDE_SIZE = frozenset({"index"})
"""Sub-pools that a stated size does not count: their copies come on top."""


@dataclass(frozen=True, slots=True)
class HostNeed:
    """What the launch asks of the machine's memory."""

    per_rank: float
    """Bytes of one rank's host pools."""
    ranks: int
    """Ranks on one machine."""
    ratio: float
    """Host tokens for each device token."""
    tokens: int
    automatic: bool = False
    """True where the engine shrinks the pools until they fit."""
    allowed: float | None = None
    """Bytes that one rank may take, None where the machine is not known."""

    @property
    def total(self) -> float:
        """Bytes of all ranks."""
        return self.per_rank * self.ranks


def uses_host_pools(r: Resolution) -> bool:
    """True where a copy of the pool is kept in host memory."""
    decode = r.disaggregation_mode == "decode"
    return bool(
        r.enable_hierarchical_cache
        or (decode and r.disaggregation_decode_enable_offload_kvcache)
        or (decode and r.disaggregation_decode_retraction_backup == "host_pool")
    )


def ranks_per_host(r: Resolution) -> int:
    """Ranks that share one machine's memory."""
    world = max(1, whole(r.tp_size, 1)) * max(1, whole(r.pp_size, 1)) * max(1, whole(r.dp_size, 1))
    return max(world // max(1, whole(r.nnodes, 1)), 1)


def allowed_bytes(host: HostFacts, ranks: int) -> float:
    """What one rank may claim: available memory less the reserve, shared evenly."""
    available = host.available_bytes
    if host.cgroup_limit_bytes is not None:
        available = min(available, host.cgroup_limit_bytes)
    return max(available - RESERVE_BYTES, 0) / ranks


def _mirrored(plan: PoolPlan) -> tuple[float, float]:
    """(bytes that a ratio multiplies and a size buys, bytes of index copies)."""
    main = index = 0.0
    for pool in plan.sub_pools:
        size = _pool_bytes(pool)
        if pool.role == "requests" or pool.role == "compress_state":
            continue
        if pool.role in OUTSIDE_SIZE:
            index += size
        else:
            main += size
    return main + plan.raw_bytes, index


def _pool_bytes(pool: SubPool) -> float:
    rows = pool.slots + pool.padding_rows
    kept = [buffer for buffer in pool.buffers if buffer.rows != "flat"]
    size = float(sum(buffer.nbytes for buffer in kept))
    return size * pool.slots / rows if rows and pool.slots else size


def host_need(r: Resolution, plan: PoolPlan) -> HostNeed | None:
    """Host pools of the launch, or None without any."""
    if not uses_host_pools(r):
        return None
    ranks, facts = ranks_per_host(r), r.facts.host
    allowed = allowed_bytes(facts, ranks) if facts is not None else None
    main, index = _mirrored(plan)
    stated, size = r.hicache_ratio, r.hicache_size
    if isinstance(size, (int, float)) and size > 0 and main:
        ratio = size * 1e9 / main
        return HostNeed(main * ratio + index * ratio, ranks, ratio, int(plan.tokens * ratio),
                        allowed=allowed)  # fmt: skip
    if r.hicache_host_memory_mode == "buffer_only" and stated is None:
        ratio = 1.2
    elif isinstance(stated, (int, float)):
        ratio = float(stated)
    else:
        backup = r.disaggregation_decode_retraction_backup == "host_pool"
        ratio = RETRACTION_RATIO if backup else DEFAULT_RATIO
    fraction = r.hicache_host_memory_fraction
    automatic = isinstance(fraction, (int, float)) and bool(r.enable_hierarchical_cache)
    if automatic and allowed is not None and main + index > 0:
        ratio = min(ratio, allowed * float(fraction) * (1 - SLACK) / (main + index))
    return HostNeed((main + index) * ratio, ranks, ratio, int(plan.tokens * ratio), automatic,
                    allowed)  # fmt: skip
