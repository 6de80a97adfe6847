"""Which host pools a launch builds, and what their kind of row allows.

Mirrors `mem_cache/kv_cache_builder.py` and `mem_cache/hybrid_cache/hybrid_pool_assembler.py`
(0.5.23), which run once weights and device pools are in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvtui.core.derived import uses_mla
from kvtui.core.model.archs import MINIMAX_SPARSE
from kvtui.core.resolution import Resolution
from kvtui.core.steps.kv_cache_common import FP4_DTYPES, above_one, is_positive

PAGE_LAYOUTS = ("page_first", "page_first_direct")
PLAIN_LAYOUTS = ("layer_first", *PAGE_LAYOUTS)
MHA_LAYOUTS = (*PLAIN_LAYOUTS, "page_head")
COPIES = {
    "kernel": ("layer_first", "page_first", "page_head"),
    "direct": ("layer_first", "page_first_direct"),
}
"""Layouts that each copy back end moves on NVIDIA and AMD GPUs.
Source: pool_host/mha.py:583-681, mla.py:1028-1107."""


@dataclass(frozen=True, slots=True)
class HostPool:
    """A host pool that a launch builds, and the option that asks for it."""

    purpose: str
    """HiCache | retraction | decode offload."""
    option: str


def _preempts(r: Resolution) -> bool:
    return bool(r.enable_priority_scheduling and not r.disable_priority_preemption)


def pool_class(r: Resolution) -> str:
    """Class of the device pool, empty where it was not planned."""
    return r.pool.class_name if r.pool is not None else ""


def row_classes(r: Resolution) -> tuple[str, ...]:
    """Classes of the device pool and of the pools inside it."""
    if r.pool is None:
        return ()
    return (r.pool.class_name, *(one.class_name for one in r.pool.sub_pools))


def has_full_layers(r: Resolution) -> bool:
    """False for a model whose every layer slides a window."""
    return not r.model.is_hybrid_swa or r.model.full_attention_layer_ids != ()


def mirrors_retraction(r: Resolution) -> bool:
    """True where a host pool can take retracted requests of this model.

    Source: unified_radix_cache.py:1443 and registry.py:176.
    """
    if r.model.mambaish is not None or not has_full_layers(r):
        return False
    name = pool_class(r)
    if name == "SWAKVPool" or (name == "UnifiedSWAKVPool"):
        return True
    return "MHATokenToKVPool" in name


def retraction_backup(r: Resolution) -> str | None:
    """Where a decode server keeps retracted requests: what was set, or what the engine picks.

    Source: kv_cache_builder.py:172-237.
    """
    asked = r.disaggregation_decode_retraction_backup
    if asked is not None or r.disaggregation_mode != "decode":
        return asked if isinstance(asked, str) else None
    unified = bool(r.enable_unified_memory)
    suits = (
        mirrors_retraction(r)
        and not (unified and r.model.is_hybrid_swa)
        and not (unified and r.speculative_algorithm not in (None, "DSPARK"))
        and not r.platform.is_hip
        and not above_one(r.dcp_size)
        and not r.disaggregation_decode_enable_radix_cache
        and not r.disaggregation_decode_enable_offload_kvcache
        and not _preempts(r)
    )
    return "host_pool" if suits else "cpu_tensor"


def tree_host_pools(r: Resolution) -> tuple[HostPool, ...]:
    """Host pools that hang on the radix tree; asked for once resolution is over, and kept."""
    kept: tuple[HostPool, ...] | None = r.scratch.get("tree_host_pools")
    if kept is None:
        kept = r.scratch["tree_host_pools"] = tuple(_tree_host_pools(r))
    return kept


def _tree_host_pools(r: Resolution) -> Iterator[HostPool]:
    if r.enable_hierarchical_cache and not _other_tree(r):
        yield HostPool("HiCache", "enable_hierarchical_cache")
    if retraction_backup(r) == "host_pool":
        yield HostPool("retraction", "disaggregation_decode_retraction_backup")


def _other_tree(r: Resolution) -> bool:
    """True where another cache than the built-in tree runs, which attaches no host pool."""
    flexkv = r.enable_flexkv and not r.disable_radix_cache
    return bool(flexkv or r.radix_cache_backend is not None)


def offload_host_pool(r: Resolution) -> HostPool | None:
    """The host pool of decode offload, None without one."""
    decode = r.disaggregation_mode == "decode"
    if not (decode and r.disaggregation_decode_enable_offload_kvcache):
        return None
    if r.hicache_storage_backend is None or r.pool is None or not r.pool.decode_offload:
        return None
    return HostPool("decode offload", "disaggregation_decode_enable_offload_kvcache")


def host_pools(r: Resolution) -> tuple[HostPool, ...]:
    """Every host pool that the launch builds for KV pages."""
    tree = tree_host_pools(r)
    if not r.disaggregation_decode_enable_offload_kvcache:
        return tree
    offload = offload_host_pool(r)
    return (*tree, offload) if offload else tree


def is_minimax(r: Resolution) -> bool:
    """True for MiniMax's sparse models."""
    return r.model.arch in MINIMAX_SPARSE


def mxfp8_rows(r: Resolution) -> bool:
    """True where pages carry interleaved mxfp8 scales."""
    return any("MXFP8" in name for name in row_classes(r))


def fp4_rows(r: Resolution) -> bool:
    """True where FP4 values have their block scales in buffers beside them."""
    if r.pool is None or r.kv_cache_dtype not in FP4_DTYPES or is_minimax(r):
        return False
    return any(one.name.endswith(("k_scale_buffer", "kv_scale_buffer")) for one in r.pool.buffers)


def built_layouts(r: Resolution) -> tuple[str, ...]:
    """Memory layouts in which the host pool of this model can be allocated.

    Source: pool_host/mha.py:303, mla.py:308, mamba.py:103, mha_mxfp8.py:58,
    memory_pool_host.py:312, unified.py:710.
    """
    if mxfp8_rows(r):
        return ("page_first",)
    if r.model.mambaish is not None:
        return PAGE_LAYOUTS
    plain = r.model.is_deepseek_v4_arch or uses_mla(r) or r.enable_unified_memory
    return PLAIN_LAYOUTS if plain else MHA_LAYOUTS


def copied(r: Resolution) -> bool:
    """True where the copy back end moves pages of the memory layout."""
    if r.hicache_io_backend == "kernel_ascend":
        return r.platform.is_npu
    return r.hicache_mem_layout in COPIES.get(r.hicache_io_backend, ())


def negative_ratio(r: Resolution) -> bool:
    """True where the host pool's size comes out below zero."""
    ratio = r.hicache_ratio
    below = isinstance(ratio, int | float) and not isinstance(ratio, bool) and ratio < 0
    return below and not is_positive(r.hicache_size)
