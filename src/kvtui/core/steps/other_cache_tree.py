"""The radix tree that a launch ends up with, and what it must be for other options."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_pools import has_full_layers, retraction_backup

REGISTRY = "mem_cache/registry.py"
UNIFIED = "UnifiedRadixCache"


def tree_class(r: Resolution) -> str:
    """The radix cache that the engine builds. Source: registry.py:90-161."""
    if r.disable_radix_cache:
        pure = not has_full_layers(r) and retraction_backup(r) != "host_pool"
        return "PureSWARadixCache" if pure else UNIFIED
    if r.enable_lmcache or r.enable_unified_cache_external_linker:
        return UNIFIED
    if not has_full_layers(r):
        return "PureSWARadixCache"
    return "FlexKVRadixCache" if r.enable_flexkv else UNIFIED


@rule(
    "KV690",
    stage=Stage.LOAD,
    option="radix_cache_backend",
    source=f"{REGISTRY}:231",
    example=Example("--radix-cache-backend flexkv"),
    fragments=("is not registered",),
)
def radix_backend_is_registered(r: Resolution) -> Iterator[Hit]:
    """A radix cache by name must be registered by a plug-in.

    Why: this release registers none itself; FlexKV's own name is registered only once
    --enable-flexkv has loaded it.
    Fix: drop it; --enable-flexkv for FlexKV.
    """
    name = r.radix_cache_backend
    if name == "flexkv":
        yield hit(
            "the name flexkv is unknown until FlexKV is loaded, which only --enable-flexkv does",
            set_to("use --enable-flexkv", radix_cache_backend=None, enable_flexkv=True),
        )
    elif name is not None:
        r.doubt(f"radix cache {name} comes from a plug-in, which is not judged")


@rule(
    "KV691",
    stage=Stage.LOAD,
    option="enable_flexkv",
    source=f"{REGISTRY}:249",
    example=Example("--enable-flexkv", model="Qwen/Qwen3.5-27B"),
    fragments=(
        "buffer_only is only implemented for",
        "--enable-session-radix-cache requires UnifiedRadixCache",
        "--radix-eviction-policy tlru requires UnifiedRadixCache",
        "--enable-streaming-session is not verified with",
        "Models with mamba state are not verified with",
    ),
)
def other_tree_limits(r: Resolution) -> Iterator[Hit]:
    """A radix cache other than the built-in one takes plain pages and plain LRU only.

    Why: staging buffers, sessions, tail-aware eviction and recurrent states live in the
    built-in tree.
    Fix: drop --enable-flexkv, or the named option.
    """
    if r.radix_cache_backend is not None:
        return
    tree = tree_class(r)
    if tree == UNIFIED:
        return
    off = drop("enable_flexkv") if tree.startswith("FlexKV") else None
    for applies, option, found in (
        (r.enable_hierarchical_cache and r.hicache_host_memory_mode == "buffer_only",
         "hicache_host_memory_mode", "host memory mode buffer_only"),
        (r.enable_session_radix_cache, "enable_session_radix_cache", "the session radix cache"),
        (r.radix_eviction_policy == "tlru", "radix_eviction_policy", "eviction policy tlru"),
        (r.enable_streaming_session, "enable_streaming_session", "streaming sessions"),
        (r.disaggregation_decode_retraction_backup == "host_pool",
         "disaggregation_decode_retraction_backup", "retraction into a host pool"),
    ):  # fmt: skip
        if applies:
            fixes = (drop(option), off) if off else (drop(option),)
            yield hit(f"{found} needs the built-in tree, and {tree} runs", *fixes, option=option)
    if r.model.mambaish is not None and off:
        yield hit(f"recurrent states live in the built-in tree, and {tree} runs", off)


@rule(
    "KV692",
    stage=Stage.SERVE,
    option="enable_hierarchical_cache",
    source=f"{REGISTRY}:158",
    severity=Severity.WARNING,
    example=Example("--enable-flexkv --enable-hierarchical-cache"),
)
def flexkv_replaces_hicache(r: Resolution) -> Iterator[Hit]:
    """FlexKV runs instead of HiCache.

    Why: the engine builds FlexKV's cache and attaches no host pool to it, without a word.
    Fix: drop one of the two.
    """
    if r.enable_hierarchical_cache and tree_class(r) == "FlexKVRadixCache":
        yield hit(
            "HiCache is asked for and FlexKV runs in its place",
            drop("enable_hierarchical_cache"),
            drop("enable_flexkv"),
        )


@rule(
    "KV693",
    stage=Stage.LOAD,
    option="enable_flexkv",
    source="mem_cache/storage/flexkv/flexkv_connector.py:143",
    example=Example("--enable-flexkv", model="openai/gpt-oss-20b"),
    fragments=("expected kv_buffer (MLA/NSA) or k_buffer/v_buffer",),
)
def flexkv_pool(r: Resolution) -> Iterator[Hit]:
    """FlexKV takes one pool of plain or MLA pages.

    Why: it registers one list of buffers, which sliding-window, compressed and sparse pools
    don't have.
    Fix: HiCache, or --disable-hybrid-swa-memory for one pool of all layers.
    """
    if tree_class(r) != "FlexKVRadixCache" or r.pool is None:
        return
    if "TokenToKVPool" in r.pool.class_name and "DeepSeekV4" not in r.pool.class_name:
        return
    fixes = [drop("enable_flexkv")]
    if r.pool.class_name == "SWAKVPool":
        fixes.append(
            set_to("keep all layers in one pool (fewer tokens)", disable_hybrid_swa_memory=True)
        )
    yield hit(f"FlexKV can't register the buffers of {r.pool.class_name}", *fixes)


@rule(
    "KV694",
    stage=Stage.LOAD,
    option="enable_lmcache",
    source="mem_cache/storage/lmcache/lmcache_unified_radix_cache.py:60",
    severity=Severity.NOTE,
    example=Example("--enable-lmcache"),
)
def cache_package(r: Resolution) -> Iterator[Hit]:
    """LMCache and FlexKV are packages beside SGLang.

    Why: SGLang ships the adapters only, and LMCache's own server must run.
    Fix: install the package where the server runs.
    """
    if r.enable_lmcache and not r.disable_radix_cache:
        yield hit("--enable-lmcache needs the package lmcache and its running server")
    if tree_class(r) == "FlexKVRadixCache":
        yield hit("--enable-flexkv needs the package flexkv", option="enable_flexkv")


TREE_GATES: tuple[Part, ...] = (
    radix_backend_is_registered,
    other_tree_limits,
    flexkv_pool,
    flexkv_replaces_hicache,
    cache_package,
)
