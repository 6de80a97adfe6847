"""Models whose host pools are refused, or sized in their own way."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.hicache_pools import (
    host_pools,
    is_minimax,
    mirrors_retraction,
    pool_class,
    retraction_backup,
    tree_host_pools,
)
from kvtui.core.steps.kv_cache_common import above_one, is_positive
from kvtui.core.steps.kv_cache_compat import to_cpu_tensor

ASSEMBLER = "mem_cache/hybrid_cache/hybrid_pool_assembler.py"
RETRACTION = "disaggregation_decode_retraction_backup"


def no_host_pool(r: Resolution) -> Fix:
    """The fix that builds no host pool: without what asks for the first of them."""
    pool = host_pools(r)[0]
    if pool.purpose == "retraction":
        return to_cpu_tensor(r)
    return drop(pool.option, title=f"drop {pool.purpose}")


def purposes(r: Resolution) -> str:
    """What host pools are built for, in words."""
    return " and ".join(pool.purpose for pool in host_pools(r))


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
            f"{r.model.arch} lays its window layers out on their own, which the decode radix "
            "cache can't match",
            off,
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


HOST_MODEL_GATES: tuple[Part, ...] = (
    host_pool_retraction_model,
    decode_radix_model,
    deepseek_v4_host_size,
    minimax_host_pool,
    layer_split_copies,
)
