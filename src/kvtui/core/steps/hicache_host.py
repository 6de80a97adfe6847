"""What stops while host pools are built, or at the first copy into them."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Change, Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_pools import (
    built_layouts,
    copied,
    fp4_rows,
    host_pools,
    is_minimax,
    mirrors_retraction,
    mxfp8_rows,
    negative_ratio,
    pool_class,
    retraction_backup,
    tree_host_pools,
)
from kvtui.core.steps.kv_cache_common import above_one, fp8_kv, is_positive
from kvtui.core.steps.kv_cache_compat import to_cpu_tensor

ASSEMBLER = "mem_cache/hybrid_cache/hybrid_pool_assembler.py"
RETRACTION = "disaggregation_decode_retraction_backup"
DEFAULT_COPIES = Fix(
    "use layout page_first with kernel copies",
    (Change("hicache_mem_layout", "page_first"), Change("hicache_io_backend", "kernel")),
)


def no_host_pool(r: Resolution) -> Fix:
    """The fix that builds no host pool: without what asks for the first of them."""
    pool = host_pools(r)[0]
    if pool.purpose == "retraction":
        return to_cpu_tensor(r)
    return drop(pool.option, title=f"drop {pool.purpose}")


def _purposes(r: Resolution) -> str:
    return " and ".join(pool.purpose for pool in host_pools(r))


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
            f"the host pool of {pool_class(r) or r.model.arch} for {_purposes(r)} exists in "
            f"layout {', '.join(layouts)}, and {r.hicache_mem_layout} is set",
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
        f"{r.hicache_mem_layout}; the first copy for {_purposes(r)} fails",
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
            f"the host pool for {_purposes(r)} has no place for the scales of {r.kv_cache_dtype}",
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
    "KV624",
    stage=Stage.LOAD,
    option="hicache_ratio",
    source="mem_cache/hicache_auto_size.py:69",
    example=Example(
        "--enable-hierarchical-cache --tp-size 8",
        model="deepseek-ai/DeepSeek-V4-Flash",
        gpu="h200",
    ),
    fragments=(
        "HiCache auto-sizing does not support",
        "DeepSeek V4 HiCache currently does not support --hicache-size",
    ),
)
def deepseek_v4_host_size(r: Resolution) -> Iterator[Hit]:
    """DeepSeek V4's host pools are sized by --hicache-ratio.

    Why: they are many small pools of different rows, which neither the automatic size nor a
    size in GB covers.
    Fix: --hicache-ratio 2, or what host memory allows.
    """
    if not r.model.is_deepseek_v4_arch or not tree_host_pools(r):
        return
    ratio = set_to(
        "size host pools over device pools",
        hicache_ratio=r.raw.hicache_ratio or 2.0,
        hicache_size=None,
    )
    if is_positive(r.hicache_size):
        yield hit(
            f"--hicache-size {r.hicache_size} can't be split over DeepSeek V4's pools",
            ratio,
            option="hicache_size",
        )
    elif r.hicache_host_memory_fraction is not None:
        yield hit("host pools of DeepSeek V4 can't be sized automatically", ratio, no_host_pool(r))


@rule(
    "KV625",
    stage=Stage.LOAD,
    option=RETRACTION,
    source="mem_cache/unified_radix_cache.py:1469",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-retraction-backup host_pool "
        "--tp-size 8",
        model="deepseek-ai/DeepSeek-V3",
        gpu="h200",
    ),
    fragments=(
        "Host-pool retraction does not support",
        "requires an MHA or hybrid-SWA HiCache",
        "an MHA or hybrid-SWA HiCache host stack",
        "UnifiedRadixCache with HiCache attached",
    ),
)
def host_pool_retraction_model(r: Resolution) -> Iterator[Hit]:
    """Retraction into a host pool takes plain and sliding-window pages only.

    Why: a retracted request's MLA rows, recurrent states or compressed pages have no host side
    that can be restored.
    Fix: back retracted requests up as CPU tensors.
    """
    if retraction_backup(r) != "host_pool" or r.disaggregation_mode != "decode":
        return
    if r.pool is not None and not mirrors_retraction(r):
        yield hit(
            f"a host pool can't restore retracted requests of {pool_class(r)}", to_cpu_tensor(r)
        )


@rule(
    "KV626",
    stage=Stage.LOAD,
    option="disaggregation_decode_enable_radix_cache",
    source="mem_cache/kv_cache_builder.py:258",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-radix-cache "
        "--enable-hierarchical-cache",
        model="openai/gpt-oss-20b",
    ),
    fragments=(
        "--disaggregation-decode-enable-radix-cache with",
        "--disaggregation-decode-enable-radix-cache does not support",
    ),
)
def decode_radix_model(r: Resolution) -> Iterator[Hit]:
    """The decode radix cache keeps sliding-window prefixes in GPU memory only.

    Why: the window is transferred anew with each request, so only full-attention pages can be
    reused; HiCache would restore windows that are not there.
    Fix: drop HiCache or the decode radix cache.
    """
    decode = r.disaggregation_mode == "decode" and r.disaggregation_decode_enable_radix_cache
    if not decode or not r.model.is_hybrid_swa:
        return
    off = drop("disaggregation_decode_enable_radix_cache", title="keep no prefixes on decode")
    if r.enable_hierarchical_cache:
        both = drop("enable_hierarchical_cache", title="drop HiCache")
        yield hit(
            "HiCache can't restore sliding-window prefixes on a decode server",
            both,
            Fix("drop both", (*both.changes, *off.changes)),
        )
    if r.model.is_deepseek_v4_arch and not r.platform.is_hip:
        yield hit("DeepSeek V4 keeps decode prefixes in unified rows only, which are ROCm's", off)
    elif r.model.is_hybrid_swa_compress:
        yield hit(
            f"{r.model.arch} keeps fewer window layers than it runs, which the decode radix "
            "cache can't match",
            off,
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


@rule(
    "KV628",
    stage=Stage.SERVE,
    option="enable_dsa_cache_layer_split",
    source="mem_cache/pool_host/mla.py:909",
    example=Example(
        "--enable-hierarchical-cache --enable-dsa-cache-layer-split --enable-prefill-cp "
        "--cp-strategy interleave --tp-size 8 --attn-cp-size 8 --hicache-io-backend direct "
        "--disaggregation-mode prefill",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="h200",
    ),
    fragments=("Layer-sharded",),
)
def layer_split_copies(r: Resolution) -> Iterator[Hit]:
    """Layer-split index rows are copied in layout layer_first only.

    Why: each rank copies its own layers one by one, and other layouts interleave layers. Stores
    that take whole pages rule layer_first out.
    Fix: --hicache-mem-layout layer_first, or no layer split.
    """
    if not (host_pools(r) and r.enable_dsa_cache_layer_split and r.model.is_dsa):
        return
    if r.hicache_mem_layout != "layer_first":
        fixes = [drop("enable_dsa_cache_layer_split")]
        if r.hicache_storage_backend not in ("mooncake", "npu_memcache"):
            fixes.insert(0, set_to("copy layer by layer", hicache_mem_layout="layer_first"))
        yield hit(f"the first copy of split layers fails in layout {r.hicache_mem_layout}", *fixes)


@rule(
    "KV629",
    stage=Stage.LOAD,
    option="pp_size",
    source=f"{ASSEMBLER}:2574",
    example=Example(
        "--enable-hierarchical-cache --tp-size 4 --pp-size 2 --json-model-override-args "
        '\'{"architectures": ["MiniMaxM3SparseForCausalLM"]}\'',
        gpu="h200",
    ),
    fragments=("MiniMax-M3 sparse HiCache does not support pipeline",),
)
def minimax_host_pool(r: Resolution) -> Iterator[Hit]:
    """HiCache of MiniMax M3 runs in one pipeline stage.

    Why: its sparse host pool is not split by stage.
    Fix: --pp-size 1, or no HiCache.
    """
    if tree_host_pools(r) and is_minimax(r) and above_one(r.pp_size):
        yield hit(
            f"host pools of {r.model.arch} can't be split over {r.pp_size} stages",
            drop("pp_size"),
            no_host_pool(r),
        )


HOST_POOL_GATES: tuple[Part, ...] = (
    host_pool_retraction_model,
    decode_radix_model,
    deepseek_v4_host_size,
    host_size_not_negative,
    host_has_no_fp4,
    host_mxfp8,
    host_layout_exists,
    minimax_host_pool,
    host_copies_exist,
    layer_split_copies,
)
