"""LMCache: what its radix tree can't be combined with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvtui.core.derived import attn_dp_enabled
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import above_one, in_pd, spec_name

HOOK = "arg_groups/kv_cache_hook.py"
LMCACHE_OFF = drop("enable_lmcache", title="drop LMCache")

Conflict = tuple[Callable[[Resolution], bool], str, str, Fix]
"""A predicate, the option at hand, what is found, and the change that ends it."""

CONFLICTS: tuple[Conflict, ...] = (
    # kv_cache_hook.py:434
    (
        lambda r: bool(r.enable_hierarchical_cache),
        "enable_hierarchical_cache",
        "HiCache and LMCache would both own the host tier",
        drop("enable_hierarchical_cache", "hicache_storage_backend"),
    ),
    # kv_cache_hook.py:439
    (
        lambda r: bool(r.enable_unified_cache_external_linker),
        "enable_unified_cache_external_linker",
        "the external cache linker and LMCache would both serve prefixes",
        drop("enable_unified_cache_external_linker"),
    ),
    # kv_cache_hook.py:444
    (
        lambda r: bool(r.disable_radix_cache),
        "disable_radix_cache",
        "LMCache extends the radix cache, and that is off",
        drop("disable_radix_cache"),
    ),
    # kv_cache_hook.py:449
    (
        lambda r: spec_name(r) not in (None, "NONE"),
        "speculative_algorithm",
        "LMCache stores no draft tokens, so speculative decoding is refused",
        drop("speculative_algorithm"),
    ),
    # kv_cache_hook.py:453
    (
        attn_dp_enabled,
        "attn_dp_size",
        "LMCache can't follow attention data parallelism",
        drop("attn_dp_size", "enable_dp_attention", "dp_size"),
    ),
    # kv_cache_hook.py:457
    (
        lambda r: above_one(r.dcp_size),
        "dcp_size",
        "LMCache has no index translation for decode context parallelism",
        drop("dcp_size"),
    ),
    # kv_cache_hook.py:462
    (
        lambda r: bool(r.enable_streaming_session),
        "enable_streaming_session",
        "LMCache keeps no streaming sessions",
        drop("enable_streaming_session"),
    ),
    # kv_cache_hook.py:466
    (
        lambda r: bool(r.hicache_host_memory_mode == "buffer_only"),
        "hicache_host_memory_mode",
        "host memory mode buffer_only belongs to HiCache",
        drop("hicache_host_memory_mode"),
    ),
    # kv_cache_hook.py:470
    (
        in_pd,
        "disaggregation_mode",
        "LMCache runs with prefill and decode in one server only",
        drop("disaggregation_mode"),
    ),
)
"""What LMCache refuses, in the engine's order."""


@rule(
    "KV670",
    stage=Stage.RESOLVE,
    option="enable_lmcache",
    source=f"{HOOK}:433",
    example=Example("--enable-lmcache --enable-hierarchical-cache"),
    fragments=(
        "--enable-lmcache and --enable-hierarchical-cache",
        "--enable-lmcache and --enable-unified-cache-external-linker",
        "--enable-lmcache requires radix cache",
        "LMCacheUnifiedRadixCache does not yet support",
        "--enable-lmcache with --dcp-size > 1",
        "buffer_only is a HiCache-only mode",
        "LMCacheUnifiedRadixCache currently supports colocated",
    ),
)
def lmcache_stands_alone(r: Resolution) -> Iterator[Hit]:
    """LMCache excludes other host tiers, speculation and distributed attention.

    Why: its radix tree moves plain pages of one server between GPU and the LMCache process, and
    knows neither draft tokens nor split or transferred pages.
    Fix: drop either side of the named pair.
    """
    if not r.enable_lmcache:
        return
    for applies, option, found, undo in CONFLICTS:
        if applies(r):
            yield hit(found, _settable(r, option, undo), LMCACHE_OFF, option=option)


def _settable(r: Resolution, option: str, undo: Fix) -> Fix:
    """`undo`, or its decode-server form where the mode turned the radix cache off."""
    if option == "disable_radix_cache" and r.disaggregation_mode == "decode":
        return set_to("serve prefill and decode in one server", disaggregation_mode=None)
    return undo


LMCACHE_GATES: tuple[Part, ...] = (lmcache_stands_alone,)
