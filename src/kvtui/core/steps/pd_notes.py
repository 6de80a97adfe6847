"""What a server of a prefill/decode pair tells its operator."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Severity, Stage
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_pools import retraction_backup

COMMON = "disaggregation/common/conn.py"
BACKUP_RATIO, FULL_RATIO = 0.2, 2.0
"""Host pool over device pool for retraction alone, and beside HiCache.
Source: kv_cache_builder.py:152 and 226."""


@rule(
    "KV558",
    stage=Stage.SERVE,
    option="disaggregation_mode",
    source=f"{COMMON}:1320",
    severity=Severity.NOTE,
    example=Example("--disaggregation-mode decode"),
    fragments=(
        "Page size mismatch: prefill server",
        "KV cache dtype mismatch: prefill server",
        "KV layout mismatch: prefill server",
    ),
)
def pair_must_match(r: Resolution) -> Iterator[Hit]:
    """Both sides of a pair must agree on page size and KV dtype.

    Why: pages are copied byte for byte; the decode side compares both at its first connection.
    Fix: the same --page-size and --kv-cache-dtype on both sides.
    """
    if r.disaggregation_mode not in ("prefill", "decode"):
        return
    other = "decode" if r.disaggregation_mode == "prefill" else "prefill"
    yield hit(
        f"the {other} side must run page size {r.page_size} and KV dtype "
        f"{r.kv_cache_dtype} too, or no request is taken"
    )


@rule(
    "KV559",
    stage=Stage.LOAD,
    option="disaggregation_decode_retraction_backup",
    source="mem_cache/kv_cache_builder.py:172",
    severity=Severity.NOTE,
    example=Example("--disaggregation-mode decode"),
)
def retraction_backup_told(r: Resolution) -> Iterator[Hit]:
    """Where a decode server keeps requests that lose their GPU pages.

    Why: the engine decides once the pool is built: a host pool for plain and sliding-window
    pages, CPU tensors for all else and beside DCP, decode prefixes, offload or preemption.
    Fix: --disaggregation-decode-retraction-backup cpu_tensor or host_pool.
    """
    if r.disaggregation_mode != "decode" or r.pool is None:
        return
    if r.disaggregation_decode_retraction_backup is not None:
        return
    if retraction_backup(r) != "host_pool":
        yield hit("retracted requests are kept as CPU tensors, made when they are needed")
        return
    size = r.hicache_ratio or (FULL_RATIO if r.enable_hierarchical_cache else BACKUP_RATIO)
    yield hit(
        "retracted requests are kept in a host pool, at least "
        f"{size:g} times the size of the device pool"
    )


PAIR_NOTES: tuple[Part, ...] = (pair_must_match, retraction_backup_told)
