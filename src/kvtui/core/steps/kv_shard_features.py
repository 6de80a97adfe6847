"""Features that KV sharding can't be combined with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvtui.core.findings import Fix, Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import above_one
from kvtui.core.steps.kv_shard_common import HOOK, MLA, OFF, SHARDED, on

Feature = tuple[Callable[[Resolution], bool], str, str]
"""A predicate, the option at hand, and why it can't be combined."""

FEATURES: tuple[Feature, ...] = (
    # kv_shard_hook.py:127
    (
        lambda r: r.dllm_algorithm is not None,
        "dllm_algorithm",
        "diffusion models admit requests past the scratch budget",
    ),
    # kv_shard_hook.py:133
    (
        lambda r: r.radix_cache_backend is not None,
        "radix_cache_backend",
        "only the built-in radix cache tracks stripes",
    ),
    # kv_shard_hook.py:152
    (
        lambda r: bool(r.enable_unified_cache_external_linker),
        "enable_unified_cache_external_linker",
        "the linker loads whole pages",
    ),
    # kv_shard_hook.py:158
    (
        lambda r: bool(r.enable_streaming_session),
        "enable_streaming_session",
        "streaming sessions don't remember where a stripe starts",
    ),
    # kv_shard_hook.py:163
    (
        lambda r: bool(r.enable_session_radix_cache),
        "enable_session_radix_cache",
        "the session radix cache keeps whole pages",
    ),
    # kv_shard_hook.py:167
    (lambda r: bool(r.enable_flexkv), "enable_flexkv", "FlexKV loads whole pages"),
    # kv_shard_hook.py:172
    (
        lambda r: bool(r.enable_unified_memory),
        "enable_unified_memory",
        "the unified pool has its own page ids",
    ),
    # kv_shard_hook.py:177
    (
        lambda r: above_one(r.dcp_size),
        "dcp_size",
        "decode context parallelism widens page ids in its own way",
    ),
    # kv_shard_hook.py:183
    (
        lambda r: bool(r.enable_hierarchical_cache) and r.hicache_storage_backend is not None,
        "hicache_storage_backend",
        "a store reads and writes whole pages of each rank",
    ),
    # kv_shard_hook.py:200
    (lambda r: bool(r.enable_lmcache), "enable_lmcache", "LMCache copies whole pages"),
    # kv_shard_hook.py:204
    (
        lambda r: bool(r.enable_hisparse),
        "enable_hisparse",
        "HiSparse takes each rank to own whole pages",
    ),
    # kv_shard_hook.py:212
    (
        lambda r: bool(r.enable_dynamic_chunking) and above_one(r.pp_size),
        "enable_dynamic_chunking",
        "dynamic chunks may outgrow the scratch memory",
    ),
    # kv_shard_hook.py:219
    (
        lambda r: bool(r.enable_two_batch_overlap),
        "enable_two_batch_overlap",
        "both half batches would share one gather plan",
    ),
)
"""In the engine's order."""


@rule(
    "KV380",
    stage=Stage.RESOLVE,
    option="enable_kv_cache_sharding",
    source=f"{HOOK}:127",
    example=Example(f"{SHARDED} --enable-lmcache", model=MLA, gpu="h200"),
    fragments=(
        "--enable-kv-cache-sharding does not support",
        "--enable-kv-cache-sharding requires the built-in",
        "--enable-kv-cache-sharding and decode context parallelism",
        "--enable-kv-cache-sharding supports HiCache host offload but not",
    ),
)
def sharding_stands_alone(r: Resolution) -> Iterator[Hit]:
    """KV sharding excludes features that take a rank to own whole pages.

    Why: a rank's pool holds a stripe of every page, and these features read, write or count
    whole ones.
    Fix: drop the feature, or --enable-kv-cache-sharding.
    """
    if not on(r):
        return
    for applies, option, found in FEATURES:
        if applies(r):
            yield hit(
                f"{found}, and KV sharding stripes them over ranks",
                drop(option),
                OFF,
                option=option,
            )


@rule(
    "KV381",
    stage=Stage.RESOLVE,
    option="enable_hierarchical_cache",
    source=f"{HOOK}:191",
    example=Example(
        f"{SHARDED} --enable-hierarchical-cache --hicache-mem-layout page_head",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="b200",
    ),
    fragments=("CP-sharded DSA HiCache requires",),
)
def sharded_dsa_hicache(r: Resolution) -> Iterator[Hit]:
    """HiCache of sharded DSA pages copies by kernel, in layout layer_first or page_first.

    Why: index rows are striped too, and only that path copies them.
    Fix: those settings, and host memory mode cache.
    """
    if not (on(r) and r.enable_hierarchical_cache and r.model.is_dsa):
        return
    undo = drop(
        "hicache_host_memory_mode",
        "hicache_io_backend",
        "hicache_mem_layout",
        title="use the engine's HiCache settings",
    )
    fixes: tuple[Fix, ...] = (undo, drop("enable_hierarchical_cache"), OFF)
    if r.hicache_host_memory_mode != "cache":
        yield hit(
            f"host memory mode {r.hicache_host_memory_mode} can't keep striped DSA pages",
            *fixes,
            option="hicache_host_memory_mode",
        )
    elif r.hicache_io_backend != "kernel" or r.hicache_mem_layout not in (
        "layer_first",
        "page_first",
    ):
        yield hit(
            f"copy back end {r.hicache_io_backend} with layout {r.hicache_mem_layout} "
            "can't copy striped index rows",
            *fixes,
            option="hicache_mem_layout",
        )


@rule(
    "KV382",
    stage=Stage.RESOLVE,
    option="enable_kv_cache_sharding",
    source=f"{HOOK}:229",
    example=Example(
        "--enable-kv-cache-sharding --disaggregation-mode prefill --tp-size 8",
        model="meta-llama/Llama-4-Scout-17B-16E-Instruct",
        gpu="h200",
    ),
    fragments=(
        "--enable-kv-cache-sharding does not support encoder-decoder",
        "--enable-kv-cache-sharding does not support chunked/local-attention",
    ),
)
def sharding_model(r: Resolution) -> Iterator[Hit]:
    """KV sharding excludes encoder-decoder and local-attention models.

    Why: they have page tables of their own, which the gather plan does not cover.
    Fix: drop --enable-kv-cache-sharding.
    """
    if not on(r):
        return
    if r.model.is_encoder_decoder:
        yield hit(f"{r.model.name} has a page table for its encoder beside", OFF)
    if r.model.attention_chunk_size is not None:
        yield hit(
            f"{r.model.name} attends in chunks of {r.model.attention_chunk_size} tokens, "
            "with a page table of their own",
            OFF,
        )


SHARD_FEATURE_GATES: tuple[Part, ...] = (
    sharding_stands_alone,
    sharded_dsa_hicache,
    sharding_model,
)
