"""HiCache: host memory modes, memory layout and copy back end, and what they rewrite."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.hicache_dcp import HICACHE_DCP_GATES
from kvtui.core.steps.kv_cache_common import is_positive, number, receives_in_host
from kvtui.core.steps.other_cache_linker import LINKER_GATES

HOOK = "arg_groups/hicache_hook.py"
LAYER_LAYOUT_STORES = ("mooncake", "npu_memcache")
"""Stores that can't take layer_first pages. Source: hicache_hook.py:204."""


def host_tier(r: Resolution) -> bool:
    """True where the engine builds, or may build, a host pool for KV pages."""
    if r.enable_unified_cache_external_linker:
        return False
    decode_backup = r.disaggregation_decode_retraction_backup in (None, "host_pool")
    return bool(
        r.enable_hierarchical_cache
        or r.disaggregation_decode_enable_offload_kvcache
        or (r.disaggregation_mode == "decode" and decode_backup)
    )


@rule(
    "KV615",
    stage=Stage.RESOLVE,
    option="hicache_host_memory_fraction",
    source=f"{HOOK}:116",
    example=Example("--hicache-host-memory-fraction 1.5"),
    fragments=("--hicache-host-memory-fraction must be in (0, 1]",),
)
def host_fraction_range(r: Resolution) -> Iterator[Hit]:
    """The host memory share lies above 0 and at most 1.

    Why: it is the part of the machine's memory that all host pools together may take.
    Fix: a value in that range; 0.8 is the engine's own.
    """
    fraction = r.hicache_host_memory_fraction
    if fraction is None:
        return
    share = number(fraction)
    if share is None or not 0 < share <= 1:
        yield hit(
            f"the share is {fraction}; it must be above 0 and at most 1",
            drop("hicache_host_memory_fraction"),
        )


@step(f"{HOOK}:119")
def fill_hicache_ratio(r: Resolution) -> None:
    """Give the host pool its size over the device pool's; a decode server decides later."""
    asked = r.hicache_ratio
    sized = is_positive(r.hicache_size)
    if asked is None and r.disaggregation_mode != "decode":
        buffer = r.hicache_host_memory_mode == "buffer_only"
        r.default(
            "a staging buffer needs little more than the device pool"
            if buffer
            else "twice the device pool",
            hicache_ratio=1.2 if buffer else 2.0,
        )
    if asked is not None or sized:
        option = "--hicache-size" if sized else "--hicache-ratio"
        r.declare(f"{option} fixes the host pool's size", hicache_host_memory_fraction=None)


@rule(
    "KV607",
    stage=Stage.RESOLVE,
    option="hicache_host_memory_mode",
    source=f"{HOOK}:272",
    example=Example("--enable-hierarchical-cache --hicache-host-memory-mode buffer_only"),
    fragments=("--hicache-host-memory-mode buffer_only requires a storage backend",),
)
def buffer_mode_needs_storage(r: Resolution) -> Iterator[Hit]:
    """Host memory mode buffer_only needs a storage back end.

    Why: host memory then only passes pages on, and all cached pages live in the store.
    Fix: --hicache-storage-backend, or host memory mode cache.
    """
    buffer = r.hicache_host_memory_mode == "buffer_only"
    if host_tier(r) and buffer and r.hicache_storage_backend is None:
        yield hit(
            "host memory only stages pages for a store, and no storage back end is set",
            set_to("store pages as files in a directory", hicache_storage_backend="file"),
            set_to("keep pages in host memory", hicache_host_memory_mode="cache"),
        )


@step(f"{HOOK}:278")
def write_buffer_through(r: Resolution) -> None:
    """Turn write_back into write_through where host memory keeps nothing."""
    buffer = r.hicache_host_memory_mode == "buffer_only"
    if host_tier(r) and buffer and r.hicache_write_policy == "write_back":
        r.declare(
            "buffer_only host memory keeps nothing to write back",
            hicache_write_policy="write_through",
        )


@rule(
    "KV608",
    stage=Stage.RESOLVE,
    option="hicache_host_memory_mode",
    source=f"{HOOK}:289",
    example=Example(
        "--disaggregation-mode decode --hicache-host-memory-mode buffer_only "
        "--hicache-storage-backend file"
    ),
    fragments=("buffer_only is not supported on",),
)
def buffer_mode_not_on_decode(r: Resolution) -> Iterator[Hit]:
    """Host memory mode buffer_only does not run on decode servers.

    Why: their prefetch and offload do not go through the staging pipeline.
    Fix: host memory mode cache.
    """
    buffer = r.hicache_host_memory_mode == "buffer_only"
    if host_tier(r) and buffer and r.disaggregation_mode == "decode":
        yield hit(
            "a decode server can't use host memory as a staging buffer only",
            set_to("keep pages in host memory", hicache_host_memory_mode="cache"),
        )


@step(f"{HOOK}:72")
def share_layer_first(r: Resolution) -> None:
    """Lay the host pool out by layer where KV transfer writes into it."""
    if host_tier(r) and receives_in_host(r):
        r.declare(
            "KV transfer writes into the host pool layer by layer", hicache_mem_layout="layer_first"
        )


@step(f"{HOOK}:168")
def match_layout_and_io(r: Resolution) -> None:
    """Make memory layout and copy back end agree."""
    if not host_tier(r):
        return
    if r.hicache_mem_layout == "page_first_direct" and r.hicache_io_backend == "kernel":
        r.declare(
            "the kernel copy back end can't copy layout page_first_direct",
            hicache_io_backend="direct",
        )
    if r.hicache_mem_layout == "page_first" and r.hicache_io_backend == "direct":
        r.declare(
            "the direct copy back end needs layout page_first_direct",
            hicache_mem_layout="page_first_direct",
        )


@step(f"{HOOK}:197")
def match_layout_and_store(r: Resolution) -> None:
    """Replace layer_first for stores that take whole pages; DCP with Mooncake keeps it."""
    store = r.hicache_storage_backend
    if not host_tier(r) or r.hicache_mem_layout != "layer_first":
        return
    if store not in LAYER_LAYOUT_STORES:
        return
    dcp = number(r.dcp_size) or 1
    if store == "mooncake" and dcp > 1:
        return
    layout = {"direct": "page_first_direct", "kernel": "page_first"}.get(r.hicache_io_backend)
    if layout is not None:
        r.declare(
            f"{store} stores whole pages, which layout layer_first scatters",
            hicache_mem_layout=layout,
        )


@step(f"{HOOK}:226")
def match_layout_and_unified_memory(r: Resolution) -> None:
    """Leave the direct copies that the unified pool's strided rows rule out."""
    direct = r.hicache_mem_layout == "page_first_direct"
    if host_tier(r) and r.enable_unified_memory and direct:
        r.declare(
            "the unified pool's rows are strided, which direct copies can't read",
            hicache_mem_layout="page_first",
            hicache_io_backend="kernel",
        )


@rule(
    "KV609",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_host_receive_threshold",
    source=f"{HOOK}:90",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-host-receive-threshold 0.5 "
        "--hicache-storage-backend mooncake"
    ),
    fragments=("cannot share the layer_first decode host pool",),
)
def host_receive_keeps_layer_first(r: Resolution) -> Iterator[Hit]:
    """Receiving into host memory needs layout layer_first to stay.

    Why: the storage back end asked for whole pages, while KV transfer fills the host pool layer
    by layer.
    Fix: another storage back end, or a host receive threshold of 1.
    """
    layout = r.hicache_mem_layout
    if host_tier(r) and receives_in_host(r) and layout != "layer_first":
        threshold = "disaggregation_decode_host_receive_threshold"
        yield hit(
            f"storage back end {r.hicache_storage_backend} sets layout {layout}, and receiving "
            "into host memory needs layer_first",
            drop(threshold, title="receive into GPU memory"),
            set_to("store pages as files", hicache_storage_backend="file"),
        )


HANDLE_HICACHE_RATIO_DEFAULT: tuple[Part, ...] = (host_fraction_range, fill_hicache_ratio)

HANDLE_HICACHE: tuple[Part, ...] = (
    *LINKER_GATES,
    buffer_mode_needs_storage,
    write_buffer_through,
    buffer_mode_not_on_decode,
    share_layer_first,
    match_layout_and_io,
    match_layout_and_store,
    match_layout_and_unified_memory,
    host_receive_keeps_layer_first,
    *HICACHE_DCP_GATES,
)
