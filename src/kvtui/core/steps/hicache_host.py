"""What stops while host pools are built, or at the first copy into them."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Change, Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_host_models import HOST_MODEL_GATES, no_host_pool, purposes
from kvtui.core.steps.hicache_pools import (
    built_layouts,
    copied,
    fp4_rows,
    host_pools,
    mxfp8_rows,
    negative_ratio,
    pool_class,
)
from kvtui.core.steps.kv_cache_common import fp8_kv

DEFAULT_COPIES = Fix(
    "use layout page_first with kernel copies",
    (Change("hicache_mem_layout", "page_first"), Change("hicache_io_backend", "kernel")),
)


@rule(
    "KV620",
    stage=Stage.LOAD,
    option="hicache_mem_layout",
    source="mem_cache/pool_host/mla.py:430",
    example=Example(
        "--enable-hierarchical-cache --hicache-mem-layout page_head --tp-size 8",
        model="deepseek-ai/DeepSeek-V3",
        gpu="h200",
    ),
    fragments=("Unsupported layout", "supports only the page_first layout"),
)
def host_layout_exists(r: Resolution) -> Iterator[Hit]:
    """The host pool of a model exists in some memory layouts only.

    Why: page_head splits pages by attention head, which MLA rows don't have; recurrent states
    lie in whole pages; mxfp8 scales are copied in layout page_first; page_first_kv_split is
    Ascend's own.
    Fix: layout page_first, which all have.
    """
    if not host_pools(r) or r.platform.is_npu:
        return
    layouts = built_layouts(r)
    if r.hicache_mem_layout not in layouts:
        yield hit(
            f"layout {r.hicache_mem_layout} is set; the host pool of "
            f"{pool_class(r) or r.model.arch} for {purposes(r)} takes {' or '.join(layouts)}",
            DEFAULT_COPIES,
            no_host_pool(r),
        )


@rule(
    "KV621",
    stage=Stage.SERVE,
    option="hicache_io_backend",
    source="mem_cache/pool_host/mha.py:711",
    example=Example(
        "--enable-hierarchical-cache --hicache-mem-layout page_head --hicache-io-backend direct"
    ),
    fragments=("Unsupported IO backend",),
)
def host_copies_exist(r: Resolution) -> Iterator[Hit]:
    """Each copy back end moves pages of some memory layouts only.

    Why: kernel copies layer_first, page_first and page_head; direct copies layer_first and
    page_first_direct; kernel_ascend runs on Ascend. The first copy into the host pool fails.
    Fix: layout page_first with kernel copies.
    """
    if not host_pools(r) or copied(r) or r.hicache_mem_layout not in built_layouts(r):
        return
    option = "hicache_io_backend"
    if r.hicache_io_backend != "kernel_ascend":
        option = "hicache_mem_layout" if r.chose("hicache_mem_layout") else option
    yield hit(
        f"copy back end {r.hicache_io_backend} can't move pages of layout "
        f"{r.hicache_mem_layout}; the first copy for {purposes(r)} fails",
        DEFAULT_COPIES,
        no_host_pool(r),
        option=option,
    )


@rule(
    "KV622",
    stage=Stage.LOAD,
    option="kv_cache_dtype",
    source="mem_cache/pool_host/mha.py:167",
    example=Example(
        "--kv-cache-dtype fp4_mx_block16 --attention-backend triton --enable-hierarchical-cache"
    ),
    fragments=("MHA host transfers do not support", "MLA host cache does not support"),
)
def host_has_no_fp4(r: Resolution) -> Iterator[Hit]:
    """Host pools hold no FP4 pages.

    Why: block scales lie beside the values and have no place in host memory. A decode server
    builds a host pool for retracted requests unless told otherwise.
    Fix: KV dtype fp8_e4m3, or no host pool.
    """
    if host_pools(r) and fp4_rows(r):
        yield hit(
            f"the host pool for {purposes(r)} has no place for the scales of {r.kv_cache_dtype}",
            fp8_kv(r),
            no_host_pool(r),
        )


@rule(
    "KV623",
    stage=Stage.LOAD,
    option="kv_cache_dtype",
    source="mem_cache/pool_host/mha_mxfp8.py:104",
    example=Example(
        "--kv-cache-dtype mxfp8 --attention-backend fa4 --enable-hierarchical-cache "
        "--hicache-storage-backend file",
        gpu="b200",
    ),
    fragments=("MXFP8 KV host pool", "MXFP8 HiCache does not support"),
)
def host_mxfp8(r: Resolution) -> Iterator[Hit]:
    """Host pools hold mxfp8 pages, and stores don't.

    Why: scales are copied by kernel beside the values; a store would write the values alone.
    Fix: no storage back end, or KV dtype fp8_e4m3.
    """
    if not host_pools(r) or not mxfp8_rows(r):
        return
    fp8 = set_to("store KV as fp8_e4m3", kv_cache_dtype="fp8_e4m3")
    if r.hicache_storage_backend is not None:
        yield hit(
            f"storage back end {r.hicache_storage_backend} would store values without their scales",
            drop("hicache_storage_backend"),
            fp8,
            stage=Stage.SERVE,
            option="hicache_storage_backend",
        )
    if r.model.has_asymmetric_kv:
        yield hit(
            "rows of K and V differ in width, which host pools of mxfp8 don't take",
            fp8,
            no_host_pool(r),
        )


@rule(
    "KV627",
    stage=Stage.LOAD,
    option="hicache_ratio",
    source="mem_cache/pool_host/base.py:227",
    example=Example("--enable-hierarchical-cache --hicache-ratio -1"),
)
def host_size_not_negative(r: Resolution) -> Iterator[Hit]:
    """The host pool's ratio is not negative.

    Why: the pool would have a negative number of tokens.
    Fix: 1 or more; drop it for a size that fits the host.
    """
    if host_pools(r) and negative_ratio(r):
        yield hit(
            f"--hicache-ratio {r.hicache_ratio:g} gives a host pool of a negative size",
            drop("hicache_ratio", title="let the engine size the host pool"),
        )


HOST_POOL_GATES: tuple[Part, ...] = (
    *HOST_MODEL_GATES,
    host_size_not_negative,
    host_has_no_fp4,
    host_mxfp8,
    host_layout_exists,
    host_copies_exist,
)
