"""`--prefill-only-disable-kv-cache`: an embedding server that keeps no KV at all.

Every violated condition is reported at once, and each finding carries one fix that meets all.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Change, Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import FP4_DTYPES, above_one

FLAG = "prefill_only_disable_kv_cache"
KEEP_POOL = drop(FLAG, title="drop --prefill-only-disable-kv-cache (a KV pool is kept)")
FLASH_BACKENDS = ("fa3", "fa4")


def _on(r: Resolution) -> bool:
    return bool(r.prefill_only_disable_kv_cache)


def flash_backend_for(r: Resolution) -> str | None:
    """The FlashAttention generation that the GPU runs, None where it runs neither.

    Source: layers/attention/attention_registry.py:238 (fa3 from SM80 to SM90) and
    flashattention_backend.py:291 (fa4 has kernels for SM100, SM110 and SM120).
    """
    if r.platform.sm // 10 in (8, 9):
        return "fa3"
    return "fa4" if r.platform.is_blackwell else None


def _backend_changes(backend: str, r: Resolution) -> Iterator[Change]:
    yield Change("attention_backend", backend)
    for phase in ("prefill_attention_backend", "decode_attention_backend"):
        if r.chose(phase):
            yield Change(phase)


def _changes(r: Resolution) -> Iterator[Change]:
    """Every edit that the launch needs, in the order in which the engine asks for them."""
    if not r.is_embedding:
        yield Change("is_embedding", True)
    if r.kv_cache_dtype in (*FP4_DTYPES, "mxfp8"):
        yield Change("kv_cache_dtype", None)
        if r.prefill_kv_cache_dequant_dtype != "auto":
            yield Change("prefill_kv_cache_dequant_dtype", None)
    if r.chunked_prefill_size != -1:
        yield Change("chunked_prefill_size", -1)
    if not r.disable_radix_cache:
        yield Change("disable_radix_cache", True)
    if r.enable_hierarchical_cache:
        yield Change("enable_hierarchical_cache", None)
    if above_one(r.attn_cp_size):
        yield Change("attn_cp_size", None)
    if r.enable_prefill_cp:
        yield Change("enable_prefill_cp", None)
    if r.enable_hisparse:
        yield Change("enable_hisparse", None)
    if _gets_other_backend(r) and (backend := flash_backend_for(r)):
        yield from _backend_changes(backend, r)


def _gets_other_backend(r: Resolution) -> bool:
    """True where the prefill back end, or the default on this GPU, is no FlashAttention."""
    if r.facts.gpu is None:
        return False
    asked = r.backends[0]
    return asked not in FLASH_BACKENDS if asked else not r.platform.is_sm90


def fix_everything(r: Resolution) -> Fix:
    """One fix that meets every condition of the option at once."""
    return Fix("meet every condition at once (embedding only, whole prompts)", tuple(_changes(r)))


def _fixes(r: Resolution, own: Fix) -> tuple[Fix, ...]:
    whole = fix_everything(r)
    return (own, KEEP_POOL) if len(whole.changes) <= len(own.changes) else (whole, own, KEEP_POOL)


@rule(
    "KV330",
    stage=Stage.RESOLVE,
    option=FLAG,
    source="arg_groups/kv_cache_hook.py:879",
    example=Example("--prefill-only-disable-kv-cache --chunked-prefill-size -1"),
    fragments=("prefill-only-disable-kv-cache currently requires --is-embedding",),
)
def prefill_only_needs_embedding(r: Resolution) -> Iterator[Hit]:
    """A server without KV cache can only embed.

    Why: generation and scoring read earlier keys and values back from the pool; an embedding
    request is finished within one forward pass.
    Fix: add --is-embedding, or keep the pool.
    """
    if _on(r) and not r.is_embedding:
        own = set_to("serve embeddings only", is_embedding=True)
        yield hit(
            "without a KV cache only embeddings can be served; --is-embedding is not set",
            *_fixes(r, own),
        )


@rule(
    "KV331",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source="arg_groups/kv_cache_hook.py:885",
    example=Example(
        "--prefill-only-disable-kv-cache --is-embedding --chunked-prefill-size -1 "
        "--disable-radix-cache --kv-cache-dtype nvfp4",
        gpu="b200",
    ),
    fragments=(
        "does not currently support --kv-cache-dtype=nvfp4",
        "does not currently support --kv-cache-dtype=mxfp8",
    ),
)
def prefill_only_has_no_scales(r: Resolution) -> Iterator[Hit]:
    """A server without KV cache takes no KV dtype with block scales.

    Why: nvfp4, fp4_mx_block16 and mxfp8 pools allocate scale buffers on a path of their own,
    which the empty pool does not have.
    Fix: leave the KV dtype at auto; nothing is stored, so nothing is saved by a smaller one.
    """
    if _on(r) and r.kv_cache_dtype in (*FP4_DTYPES, "mxfp8"):
        changes = [change for change in _changes(r) if "dtype" in change.option]
        own = Fix("leave the KV dtype at auto (nothing is stored)", tuple(changes))
        yield hit(
            f"KV dtype {r.kv_cache_dtype} keeps scale buffers beside the values; "
            "a server without KV cache has none",
            *_fixes(r, own),
        )


@rule(
    "KV332",
    stage=Stage.RESOLVE,
    option="chunked_prefill_size",
    source="arg_groups/kv_cache_hook.py:904",
    example=Example("--prefill-only-disable-kv-cache --is-embedding --disable-radix-cache"),
    fragments=("prefill-only-disable-kv-cache requires --chunked-prefill-size=-1",),
)
def prefill_only_needs_whole_prompts(r: Resolution) -> Iterator[Hit]:
    """Without KV cache a prompt must run in one piece.

    Why: the second chunk of a prompt would read what the first one stored.
    Fix: --chunked-prefill-size -1; long prompts then need more activation memory.
    """
    if _on(r) and r.chunked_prefill_size != -1:
        size = r.chunked_prefill_size
        found = "is chosen by the engine" if size is None else f"is {size}"
        own = set_to(
            "run each prompt in one piece (more activation memory)", chunked_prefill_size=-1
        )
        yield hit(
            f"the prefill chunk size {found}; without a KV cache it must be -1", *_fixes(r, own)
        )


@rule(
    "KV333",
    stage=Stage.RESOLVE,
    option="disable_radix_cache",
    source="arg_groups/kv_cache_hook.py:910",
    example=Example("--prefill-only-disable-kv-cache --is-embedding --chunked-prefill-size -1"),
    fragments=("prefill-only-disable-kv-cache requires --disable-radix-cache",),
)
def prefill_only_needs_no_radix(r: Resolution) -> Iterator[Hit]:
    """Without KV cache there is no prefix to reuse.

    Why: the radix cache hands out slots of earlier prompts, and those hold nothing.
    Fix: --disable-radix-cache; every prompt is computed from its start.
    """
    if _on(r) and not r.disable_radix_cache:
        own = set_to("turn prefix reuse off", disable_radix_cache=True)
        yield hit(
            "the radix cache is on and would hand out slots that hold no keys and values",
            *_fixes(r, own),
        )


@rule(
    "KV334",
    stage=Stage.RESOLVE,
    option="attn_cp_size",
    source="arg_groups/kv_cache_hook.py:919",
    example=Example(
        "--prefill-only-disable-kv-cache --is-embedding --chunked-prefill-size -1 "
        "--disable-radix-cache --tp-size 4 --attn-cp-size 2"
    ),
    fragments=(
        "incompatible with --attn-cp-size > 1",
        "--prefill-only-disable-kv-cache is incompatible with --enable-prefill-cp",
    ),
)
def prefill_only_has_no_context_parallel(r: Resolution) -> Iterator[Hit]:
    """Context-parallel prefill writes to the pool that is not there.

    Why: its attention path stores keys and values in the pool, and the empty pool refuses writes.
    Fix: drop --attn-cp-size and --enable-prefill-cp.
    """
    if not _on(r):
        return
    if above_one(r.attn_cp_size):
        yield hit(
            f"attention context parallelism over {r.attn_cp_size} ranks stores keys and "
            "values in the pool",
            *_fixes(r, drop("attn_cp_size")),
        )
    if r.enable_prefill_cp:
        yield hit(
            "context-parallel prefill stores keys and values in the pool",
            *_fixes(r, drop("enable_prefill_cp")),
            option="enable_prefill_cp",
        )


@rule(
    "KV335",
    stage=Stage.RESOLVE,
    option="enable_hisparse",
    source="arg_groups/kv_cache_hook.py:934",
    example=Example(
        "--prefill-only-disable-kv-cache --is-embedding --chunked-prefill-size -1 "
        "--disable-radix-cache --enable-hisparse"
    ),
    fragments=("--prefill-only-disable-kv-cache is incompatible with --enable-hisparse",),
)
def prefill_only_has_no_hisparse(r: Resolution) -> Iterator[Hit]:
    """HiSparse brings a KV pool of its own.

    Why: it selects a pool class and allocator that are not the empty ones.
    Fix: drop --enable-hisparse.
    """
    if _on(r) and r.enable_hisparse:
        yield hit("HiSparse allocates its own KV pool", *_fixes(r, drop("enable_hisparse")))


@rule(
    "KV336",
    stage=Stage.RESOLVE,
    option="prefill_attention_backend",
    source="arg_groups/kv_cache_hook.py:343",
    example=Example(
        "--prefill-only-disable-kv-cache --is-embedding --chunked-prefill-size -1 "
        "--disable-radix-cache",
        gpu="l40s",
    ),
    fragments=("currently requires the FA prefill backend",),
)
def prefill_only_needs_flash_attention(r: Resolution) -> Iterator[Hit]:
    """Only the FlashAttention back ends can leave the pool alone.

    Why: fa3 and fa4 have a path that takes keys and values straight from the layer; all other
    back ends go through the pool.
    Fix: --attention-backend fa3 (SM80 to SM90) or fa4 (SM100 and newer); older GPUs and other
    vendors have neither and need the pool.
    """
    if not _on(r):
        return
    backend = r.backends[0]
    if backend is None or backend in FLASH_BACKENDS:
        return
    found = f"the prefill attention back end is {backend}; without a KV cache it must be fa3 or fa4"
    wanted = flash_backend_for(r)
    if wanted is None:
        yield hit(f"{found}, and {r.platform.gpu.name} runs neither", KEEP_POOL)
        return
    own = Fix(f"run attention on {wanted}", tuple(_backend_changes(wanted, r)))
    yield hit(found, *_fixes(r, own))


VALIDATE_PREFILL_ONLY_DISABLE_KV_CACHE_ARGS: tuple[Part, ...] = (
    prefill_only_needs_embedding,
    prefill_only_has_no_scales,
    prefill_only_needs_whole_prompts,
    prefill_only_needs_no_radix,
    prefill_only_has_no_context_parallel,
    prefill_only_has_no_hisparse,
)

HANDLE_PREFILL_ONLY_DISABLE_KV_CACHE: tuple[Part, ...] = (prefill_only_needs_flash_attention,)
