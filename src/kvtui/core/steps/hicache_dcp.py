"""HiCache under decode context parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import above_one

HOOK = "arg_groups/hicache_hook.py"

Conflict = tuple[Callable[[Resolution], bool], str, str, Fix]
"""A predicate, the option at hand, what is found, and the change that ends it."""

CONFLICTS: tuple[Conflict, ...] = (
    # hicache_hook.py:133
    (
        lambda r: (
            r.hicache_storage_backend is not None and r.hicache_host_memory_mode == "buffer_only"
        ),
        "hicache_host_memory_mode",
        "a store behind buffer_only host memory can't take parts of pages",
        set_to("keep pages in host memory", hicache_host_memory_mode="cache"),
    ),
    # hicache_hook.py:140
    (
        lambda r: r.speculative_algorithm not in (None, "DSPARK"),
        "speculative_algorithm",
        "the draft model's host pool has no index translation; only DSPARK does without",
        drop("speculative_algorithm"),
    ),
    # hicache_hook.py:146
    (
        lambda r: bool(r.enable_lmcache),
        "enable_lmcache",
        "LMCache has no index translation",
        drop("enable_lmcache"),
    ),
    # hicache_hook.py:151
    (
        lambda r: bool(r.enable_hisparse),
        "enable_hisparse",
        "the HiSparse host pool has no index translation",
        drop("enable_hisparse"),
    ),
    # hicache_hook.py:156
    (
        lambda r: not uses_mla(r),
        "dcp_size",
        "only the host pool of MLA models translates indices, and this model is no MLA model",
        drop("dcp_size"),
    ),
)
"""What HiCache refuses with DCP, in the engine's order."""


@rule(
    "KV610",
    stage=Stage.RESOLVE,
    option="dcp_size",
    source=f"{HOOK}:128",
    example=Example("--enable-hierarchical-cache --tp-size 8 --dcp-size 2"),
    fragments=(
        "HiCache L3 with DCP does not support",
        "HiCache with --dcp-size > 1",
        "--enable-lmcache with --dcp-size > 1 is not supported",
        "--enable-hisparse with --dcp-size > 1 is not supported",
    ),
)
def hicache_with_dcp(r: Resolution) -> Iterator[Hit]:
    """HiCache with decode context parallelism is for plain MLA models.

    Why: under DCP a rank holds a part of each page, and only the MLA host pool translates page
    numbers to such parts.
    Fix: drop --dcp-size or HiCache.
    """
    if not (r.enable_hierarchical_cache and above_one(r.dcp_size)):
        return
    if r.enable_unified_cache_external_linker:
        return
    for applies, option, found, undo in CONFLICTS:
        if applies(r):
            off = (drop("dcp_size"), drop("enable_hierarchical_cache"))
            fixes = (undo, *(fix for fix in off if fix.changes != undo.changes))
            yield hit(f"with --dcp-size {r.dcp_size}, {found}", *fixes, option=option)


HICACHE_DCP_GATES: tuple[Part, ...] = (hicache_with_dcp,)
