"""Host memory of the hierarchical cache, for one rank and for all ranks of a machine.

Mirrors srt/mem_cache/pool_host/base.py and mem_cache/hicache_auto_size.py (0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvtui.core.derived import whole
from kvtui.core.facts import GIB, HostFacts
from kvtui.core.pools.build import cell_bytes
from kvtui.core.pools.geometry import Geometry, geometry_of
from kvtui.core.pools.spec import PoolPlan, SubPool
from kvtui.core.steps.hicache_pools import HostPool, host_pools

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution

RESERVE_BYTES = 10 * GIB
"""Always left to the system (pool_host/base.py:26)."""
SLACK = 0.05
"""Left out of an automatic size for rounding and staging (hicache_auto_size.py:33)."""
DEFAULT_RATIO = 2.0
BUFFER_RATIO = 1.2
"""Ratio of a pool that only buffers pages on their way to storage."""
RETRACTION_RATIO = 0.2
"""Ratio of a decode server's pool that only keeps retracted requests, unless one request needs
more (mem_cache/kv_cache_builder.py:164)."""
OUTSIDE_SIZE = frozenset({"index"})
"""Sub-pools that a stated size does not count: their copies come on top."""


@dataclass(frozen=True, slots=True)
class HostNeed:
    """What the launch asks of the machine's memory."""

    per_rank: float
    """Bytes of one rank's host pools."""
    sized: float
    """The part that a stated size covers; copies of index keys and drafts come on top."""
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


def _retraction_ratio(r: Resolution, g: Geometry, tokens: int) -> float:
    """Room for one retracted request, two where another may arrive meanwhile."""
    longest = -(-min(g.context, tokens) // g.page_size) * g.page_size
    threshold = r.disaggregation_decode_host_receive_threshold
    if isinstance(threshold, (int, float)) and threshold < 1:
        longest *= 2
    return max(RETRACTION_RATIO, longest / tokens) if tokens else RETRACTION_RATIO


def _asked_ratio(r: Resolution, g: Geometry, tokens: int, pools: tuple[HostPool, ...]) -> float:
    """Host tokens for each device token before the machine's memory has its say."""
    stated = r.hicache_ratio
    if isinstance(stated, (int, float)) and not isinstance(stated, bool):
        return float(stated)
    if r.hicache_host_memory_mode == "buffer_only":
        return BUFFER_RATIO
    if any(one.purpose == "retraction" for one in pools) and not r.enable_hierarchical_cache:
        return _retraction_ratio(r, g, tokens)
    return DEFAULT_RATIO


def _draft_bytes(r: Resolution, g: Geometry, tokens: int) -> float:
    """Device bytes of a draft's cache, which the host pools copy as well."""
    if g.draft is None or g.dsv4:
        return 0.0
    return float(max(0.0, cell_bytes(r, g) - cell_bytes(r, replace(g, draft=None))) * tokens)


def host_need(r: Resolution, plan: PoolPlan) -> HostNeed | None:
    """Host pools of the launch, or None without any."""
    pools = host_pools(r)
    if not pools:
        return None
    g, ranks, facts = geometry_of(r), ranks_per_host(r), r.facts.host
    allowed = allowed_bytes(facts, ranks) if facts is not None else None
    main, outside = _mirrored(plan)
    outside += _draft_bytes(r, g, plan.tokens)
    size, automatic = r.hicache_size, False
    if isinstance(size, (int, float)) and size > 0 and main:
        ratio = size * 1e9 / main
    else:
        ratio = _asked_ratio(r, g, plan.tokens, pools)
        fraction = r.hicache_host_memory_fraction
        tree = any(one.purpose != "decode offload" for one in pools)
        automatic = tree and isinstance(fraction, (int, float))
        if automatic and allowed is not None and main + outside > 0:
            ratio = min(ratio, allowed * float(fraction) * (1 - SLACK) / (main + outside))
    return HostNeed(
        (main + outside) * ratio, main * ratio, ranks, ratio, int(plan.tokens * ratio),
        automatic, allowed,
    )  # fmt: skip
