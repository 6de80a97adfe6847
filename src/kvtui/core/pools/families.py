"""Refusals that depend on which pool family a model gets, in the order of the pool builder.

Mirrors the raises of srt/mem_cache/kv_cache_configurator.py and of the pool classes (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.pools.classes import pool_family
from kvtui.core.pools.geometry import Geometry, geometry_of
from kvtui.core.pools.unified import full_entry, misaligned_row, swa_entry
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

SUPPORTED_PREFILL_ONLY = (
    "it works for plain MHA models on CUDA with a fa3 or fa4 prefill backend and no FP4 cache"
)

FAMILY_WORDS = {
    "dsv4": "DeepSeek-V4's compressed pool (DeepSeekV4TokenToKVPool)",
    "swa_mla": "a sliding-window pool with latent rows",
    "dsa": "a sparse latent pool (DSATokenToKVPool)",
    "mla": "a latent pool (MLATokenToKVPool)",
    "swa": "a sliding-window pool (SWAKVPool)",
    "hybrid": "a pool with recurrent states (HybridLinearKVPool)",
}


def _prefill_only(r: Resolution) -> bool:
    return bool(r.prefill_only_disable_kv_cache)


@rule(
    "KV740",
    stage=Stage.POOL,
    option="enable_unified_memory",
    source="mem_cache/kv_cache_configurator.py:637",
    example=Example("--enable-unified-memory", "Qwen/Qwen3-8B", "h100"),
    fragments=("only supports hybrid Mamba and hybrid sliding-window-attention models",),
)
def unified_needs_hybrid(r: Resolution) -> Iterator[Hit]:
    """Unified memory needs a model with recurrent or sliding-window layers.

    Why: The unified pool lets two kinds of layers trade bytes at run time. A model whose layers
    are all alike has nothing to trade, and DeepSeek-V4 has its own pools, so the engine stops.

    Fix: Drop --enable-unified-memory. The plain pool holds as many tokens.
    """
    if not r.enable_unified_memory:
        return
    g = geometry_of(r)
    if (g.hybrid_swa or g.mambaish is not None) and not g.dsv4:
        return
    yield hit(
        f"{g.model.arch} has neither recurrent nor sliding-window layers that a unified pool"
        " could share memory between; the engine stops when it builds the pools",
        drop("enable_unified_memory"),
    )


@rule(
    "KV741",
    stage=Stage.POOL,
    option="enable_unified_memory",
    source="mem_cache/unified_memory_pool.py:87",
    example=Example(
        "--enable-unified-memory --tp-size 8 --json-model-override-args '{\"head_dim\": 68}'",
        "openai/gpt-oss-20b",
        "h100",
    ),
    fragments=("needs every per-rank KV row to be a multiple of",),
)
def unified_row_alignment(r: Resolution) -> Iterator[Hit]:
    """A unified pool needs KV rows of a multiple of 16 bytes.

    Why: All layers of a token lie behind each other in one entry, and kernels read rows at 16-byte
    boundaries. A model with few heads, a small head dim and FP8 can have shorter rows.

    Fix: Drop --enable-unified-memory, or keep the cache in a wider dtype.
    """
    if not r.enable_unified_memory:
        return
    g = geometry_of(r)
    if g.dsv4 or not (g.hybrid_swa or g.mambaish is not None):
        return
    entries = (full_entry(g), swa_entry(g)) if g.hybrid_swa else (full_entry(g),)
    odd = misaligned_row(entries)
    if odd is not None:
        yield hit(
            f"a {odd[1]} row of the {odd[0]} pool takes {odd[2]} bytes on one rank, and a unified"
            " pool needs multiples of 16",
            drop("enable_unified_memory"),
        )


def _prefill_only_family(g: Geometry) -> str | None:
    family = pool_family(g)
    if family == "mha":
        return "a packed FP4 pool" if g.fp4 is not None else None
    return FAMILY_WORDS.get(family)


@rule(
    "KV743",
    stage=Stage.POOL,
    option="prefill_only_disable_kv_cache",
    source="mem_cache/kv_cache_configurator.py:1563",
    example=Example(
        "--prefill-only-disable-kv-cache --is-embedding --chunked-prefill-size -1"
        " --disable-radix-cache",
        "openai/gpt-oss-20b",
        "h100",
    ),
    fragments=("--prefill-only-disable-kv-cache is not supported for",),
)
def prefill_only_family(r: Resolution) -> Iterator[Hit]:
    """Running without a KV cache works for plain MHA pools only.

    Why: The engine replaces the pool by one that stores nothing, and only the plain MHA pool has
    such a stand-in. Latent, sliding-window and recurrent pools are refused when they are built.

    Fix: Drop --prefill-only-disable-kv-cache; the model then keeps its usual cache.
    """
    if _prefill_only(r):
        family = _prefill_only_family(geometry_of(r))
        if family is not None:
            yield hit(
                f"this model gets {family}, which --prefill-only-disable-kv-cache can't replace;"
                f" {SUPPORTED_PREFILL_ONLY}",
                drop("prefill_only_disable_kv_cache"),
            )


@rule(
    "KV744",
    stage=Stage.POOL,
    option="prefill_only_disable_kv_cache",
    source="mem_cache/kv_cache_configurator.py:817",
    example=Example(
        "--prefill-only-disable-kv-cache --is-embedding --chunked-prefill-size -1"
        " --disable-radix-cache --kv-cache-dtype mxfp8",
        "Qwen/Qwen3-8B",
        "b200",
    ),
    fragments=("expected NoOpMHATokenToKVPool but the runtime pool is",),
)
def prefill_only_pool(r: Resolution) -> Iterator[Hit]:
    """The pool that was built must be the one that stores nothing.

    Why: After building the pool the engine checks that it is `NoOpMHATokenToKVPool`. Families
    that its earlier list does not name, such as MiniMax's sparse pool or an MXFP8 cache, get
    through to here.

    Fix: Drop --prefill-only-disable-kv-cache.
    """
    plan = r.pool
    if not _prefill_only(r) or plan is None or plan.class_name == "NoOpMHATokenToKVPool":
        return
    if _prefill_only_family(geometry_of(r)) is None:
        yield hit(
            f"this launch builds {plan.class_name} where --prefill-only-disable-kv-cache needs"
            f" NoOpMHATokenToKVPool; {SUPPORTED_PREFILL_ONLY}",
            drop("prefill_only_disable_kv_cache"),
        )


@rule(
    "KV745",
    stage=Stage.POOL,
    option="enable_kv_cache_sharding",
    source="mem_cache/kv_cache_configurator.py:773",
    example=Example(
        "--enable-kv-cache-sharding --attn-cp-size 2 --tp-size 8", "openai/gpt-oss-20b", "h100"
    ),
    fragments=("--enable-kv-cache-sharding does not support this model family",
               "--enable-kv-cache-sharding is incompatible with"),
)  # fmt: skip
def sharding_family(r: Resolution) -> Iterator[Hit]:
    """KV-cache sharding works for plain MHA, MLA and DSA pools.

    Why: Pages are striped over ranks by special versions of these three pools. Sliding-window,
    recurrent, sparse, packed and no-op pools have none.

    Fix: Drop --enable-kv-cache-sharding.
    """
    g = geometry_of(r)
    plan = r.pool
    if g.shard_size > 1 and plan is not None and not plan.class_name.startswith("PageInterleave"):
        yield hit(
            f"--enable-kv-cache-sharding stripes MHA, MLA and DSA pools over ranks, and this"
            f" launch builds {plan.class_name}",
            drop("enable_kv_cache_sharding"),
        )


@rule(
    "KV746",
    stage=Stage.POOL,
    option="qsa_indexer_dtype",
    source="mem_cache/kv_cache_configurator.py:2673",
    example=Example("--qsa-indexer-dtype fp8_e4m3", "Qwen/Qwen3.5-27B", "h100"),
    fragments=("needs a model with a compressed QSA indexer",),
)
def qsa_dtype_without_indexer(r: Resolution) -> Iterator[Hit]:
    """An index dtype needs a model with a compressed index cache.

    Why: --qsa-indexer-dtype sets how Qwen4-Exp stores its compressed index keys. Other hybrid
    models have no such cache and the engine refuses the option when it builds the pool.

    Fix: Drop --qsa-indexer-dtype.
    """
    if r.qsa_indexer_dtype in (None, "auto"):
        return
    g = geometry_of(r)
    text = g.model.hf_config.get_text_config()
    if pool_family(g) == "hybrid" and not g.unified and text.get("indexer_n_heads") is None:
        yield hit(
            f"--qsa-indexer-dtype {r.qsa_indexer_dtype} has no index cache to apply to: "
            f"{g.model.arch} has no compressed indexer",
            drop("qsa_indexer_dtype"),
        )


@rule(
    "KV747",
    stage=Stage.POOL,
    option="page_size",
    source="mem_cache/qsa_kv_pool.py:108",
    example=Example(
        "--mamba-radix-cache-strategy no_buffer --json-model-override-args"
        ' \'{"text_config": {"indexer_n_heads": 4, "indexer_kv_heads": 1,'
        ' "indexer_head_dim": 128, "indexer_compress_ratio": 4}}\'',
        "Qwen/Qwen3.5-27B",
        "h100",
    ),
    fragments=("compressed QSA requires a paged full-KV cache",),
)
def qsa_page(r: Resolution) -> Iterator[Hit]:
    """A compressed index cache needs pages of whole groups.

    Why: One compressed key stands for several tokens, so a page must hold whole groups of them:
    the page size must be above 1 and a multiple of the compression ratio.

    Fix: Set --page-size to a multiple of the ratio, for example 64.
    """
    g = geometry_of(r)
    if pool_family(g) != "hybrid":
        return
    ratio = g.model.hf_config.get_text_config().get("indexer_compress_ratio")
    if ratio and (g.page_size <= 1 or g.page_size % int(ratio)):
        yield hit(
            f"page size {g.page_size} does not hold whole groups of {ratio} tokens",
            set_to("use pages of 64 tokens", page_size=64),
        )


FAMILY_RULES: tuple[Part, ...] = (
    unified_needs_hybrid,
    unified_row_alignment,
    prefill_only_family,
    qsa_dtype_without_indexer,
    qsa_page,
)
BUILT_RULES: tuple[Part, ...] = (sharding_family, prefill_only_pool)
