"""HOST_RULES: host pools against the memory of the machine, over all ranks on it."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.capacity.host import RESERVE_BYTES, HostNeed, allowed_bytes, host_need
from kvtui.core.capacity.predict import try_predict
from kvtui.core.facts import GIB
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

WORTH_A_WORD = 64 * GIB
"""Host memory from which a size that nothing checks deserves a warning."""


def _need(r: Resolution) -> HostNeed | None:
    c = try_predict(r)
    if c is None or r.pool is None or c.tokens.whole <= 0:
        return None
    return c.host if c.host is not None else host_need(r, r.pool)


@rule(
    "KV962",
    stage=Stage.LOAD,
    option="hicache_size",
    source="mem_cache/pool_host/base.py:251",
    fragments=("Not enough host memory available", "reduce the size of the hierarchical cache"),
    severity=Severity.WARNING,
)
def host_memory_short(r: Resolution) -> Iterator[Hit]:
    """Host pools must fit the machine, for every rank at once.

    Why: --hicache-size and --hicache-ratio count for one rank. Of the memory that is free, or
    that the container may use, 10 GiB stay with the system, and the rest is shared evenly by the
    ranks on the machine. A pool above that share stops the start.

    Fix: Lower --hicache-size or --hicache-ratio, or leave both out: the engine then takes 80 % of
    what there is.
    """
    need = _need(r)
    if need is None or need.allowed is None or need.automatic or need.per_rank <= need.allowed:
        return
    share = f"{need.allowed / 1e9:.1f} GB for each of {need.ranks}" if need.ranks > 1 else (
        f"{need.allowed / 1e9:.1f} GB"
    )  # fmt: skip
    fixes = []
    size = int(need.allowed * need.sized / need.per_rank / 1e9 * 0.98)
    if size > 0:
        fixes.append(set_to(f"take {size} GB on each rank", hicache_size=size, hicache_ratio=None))
    if r.enable_hierarchical_cache:
        fixes.append(drop("hicache_size", "hicache_ratio", title="let the engine size the pools"))
    message = (
        f"host pools take {need.per_rank / 1e9:.1f} GB on each rank; this machine has {share}"
        f" after the {RESERVE_BYTES / 1e9:.1f} GB that stay with the system"
    )
    certain = need.sized > need.allowed * 1.02 and _exact_size(r)
    yield Hit(message, tuple(fixes), Severity.ERROR if certain else Severity.WARNING)


def _exact_size(r: Resolution) -> bool:
    """True where the host pool's size does not rest on an estimate of the device pool."""
    size = r.hicache_size
    stated = isinstance(size, (int, float)) and not isinstance(size, bool) and size > 0
    c = try_predict(r)
    return stated or (c is not None and c.tokens.kind == "exact")


@rule(
    "KV963",
    stage=Stage.LOAD,
    option="enable_hierarchical_cache",
    source="mem_cache/hicache_auto_size.py:118",
    fragments=("No host memory is left for HiCache after the 10 GiB reserve",),
    severity=Severity.WARNING,
)
def no_host_memory(r: Resolution) -> Iterator[Hit]:
    """Host pools need more memory than the system's reserve.

    Why: Without a size the engine takes a share of what is left after 10 GiB for the system.
    Where nothing is left it stops.

    Fix: Drop host pools on this machine, or free memory.
    """
    need, host = _need(r), r.facts.host
    if need is None or host is None or not need.automatic:
        return
    if allowed_bytes(host, 1) > 0:
        return
    fix = (
        drop("enable_hierarchical_cache")
        if r.enable_hierarchical_cache
        else set_to(
            "keep retracted requests in plain tensors",
            disaggregation_decode_retraction_backup="cpu_tensor",
        )
    )
    free = host.available_bytes
    if host.cgroup_limit_bytes is not None:
        free = min(free, host.cgroup_limit_bytes)
    message = (
        f"{free / GIB:.1f} GiB of host memory are free and 10 GiB stay with the system, which"
        " leaves nothing for host pools"
    )
    yield Hit(message, (fix,), Severity.ERROR)


@rule(
    "KV964",
    stage=Stage.LOAD,
    option="hicache_ratio",
    severity=Severity.WARNING,
    source="mem_cache/pool_host/base.py:251",
    example=Example("--enable-hierarchical-cache --hicache-ratio 4"),
)
def host_memory_unchecked(r: Resolution) -> Iterator[Hit]:
    """A ratio multiplies the device pool, on every rank.

    Why: --hicache-ratio is relative to the tokens on the GPU, not to weights or to the machine.
    It grows with the memory fraction, counts for each rank (ranks with latent attention hold the
    same tokens), and switches the automatic size off.

    Fix: Leave the ratio out, so that the engine takes 80 % of what the machine has, or make sure
    of the memory that is named here.
    """
    need = _need(r)
    if need is None or need.allowed is not None or not r.chose("hicache_ratio"):
        return
    size = r.hicache_size
    if need.total < WORTH_A_WORD or (isinstance(size, (int, float)) and size > 0):
        return
    yield hit(
        f"ratio {need.ratio:g} takes {need.per_rank / GIB:.0f} GiB of host memory on each of"
        f" {need.ranks} ranks, {need.total / GIB:.0f} GiB on the machine, and 10 GiB must stay"
        " free",
        drop("hicache_ratio", title="let the engine size the host pools"),
    )


HOST_RULES: tuple[Part, ...] = (no_host_memory, host_memory_short, host_memory_unchecked)
