"""POOL_RULES: pools that come out too small to serve, by family."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from kvtui.core.capacity.budget import sizes_from_budget
from kvtui.core.capacity.predict import rule_of
from kvtui.core.derived import whole
from kvtui.core.facts import GIB
from kvtui.core.findings import Fix, Severity, Stage, drop, set_to
from kvtui.core.late.memory_fixes import judge, known, raise_fraction, spread
from kvtui.core.late.memory_states import STATE_RULES
from kvtui.core.pools.classes import pool_family
from kvtui.core.pools.geometry import Geometry, geometry_of
from kvtui.core.pools.sizes import from_tokens, swa_ratio
from kvtui.core.pools.unified import unified
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

V4_MODEL = "deepseek-ai/DeepSeek-V4-Flash"
SLIDING = "openai/gpt-oss-20b"
ROUNDING_PAGES = 4
"""Pages that rounding may add to the exact quotient."""
USUAL_CONTEXT = 32768
"""A pool below this is worth a warning even where the model's own context was not asked for."""


def _sliding_floor(g: Geometry, floor: int) -> int:
    """The smallest sliding pool above `floor`, in whole pages."""
    return (floor // g.page_size + 1) * g.page_size


def _least_tokens(r: Resolution, g: Geometry, floor: int) -> int | None:
    """The smallest token count whose sliding share exceeds `floor`, None where none does."""
    page, ratio = g.page_size, swa_ratio(r)
    if ratio <= 0:
        return None
    first = int(_sliding_floor(g, floor) / ratio) // page
    counts = ((first + more) * page for more in range(ROUNDING_PAGES))
    return next((one for one in counts if not from_tokens(r, g, one).shortfall), None)


@rule(
    "KV953",
    stage=Stage.LOAD,
    option="swa_full_tokens_ratio",
    source="model_executor/pool_configurator.py:211",
    example=Example("--tp-size 4 --max-total-tokens 4096", V4_MODEL, "h200"),
    fragments=("cannot hold even one request", "the prefill admission floor is"),
)
def sliding_pool_floor(r: Resolution) -> Iterator[Hit]:
    """The sliding-window pool must hold more than a window and a page.

    Why: A request is admitted only if its window and one page fit the sliding pool, which is a
    share of the full one. With few tokens or a small share nothing would ever be admitted, so the
    engine stops.

    Fix: Allow more tokens, or raise --swa-full-tokens-ratio.
    """
    c = known(r)
    if c is None or not c.sizes.shortfall.startswith("swa:"):
        return
    g = geometry_of(r)
    _, held, floor = c.sizes.shortfall.split(":")
    exact = whole(r.max_total_tokens) > 0 and c.tokens.kind == "exact"
    best = sizes_from_budget(r, g, c.budget.value + spread(c) - c.state_bytes, rule_of(r))
    fixes: list[Fix] = []
    least = _least_tokens(r, g, int(floor))
    if exact and least is not None:
        fixes.append(set_to(f"allow {least:,} tokens", max_total_tokens=least))
    ratio = ceil(_sliding_floor(g, int(floor)) / max(c.tokens.whole, 1) * 100) / 100
    if swa_ratio(r) < ratio <= 1:
        fixes.append(set_to(f"give the sliding pool a ratio of {ratio:g} (fewer full tokens)",
                            swa_full_tokens_ratio=ratio))  # fmt: skip
    yield judge(
        exact or bool(best.shortfall),
        f"the sliding-window pool gets {int(held):,} tokens and must hold more than"
        f" {int(floor):,} (a window of {g.window} and a page of {g.page_size})",
        *fixes,
        *([] if exact else raise_fraction(c)),
    )


@rule(
    "KV954",
    stage=Stage.LOAD,
    option="max_running_requests",
    source="model_executor/pool_configurator.py:1025",
    example=Example(
        "--disable-radix-cache --max-running-requests 4096", SLIDING, "rtx4090"
    ),
    fragments=("leaves no room for the full KV pool", "SWA pool cap"),
)  # fmt: skip
def sliding_pool_cap(r: Resolution) -> Iterator[Hit]:
    """Sliding pools sized for many requests can leave none for full layers.

    Why: With the radix cache off and a request limit, the sliding pool is built for the windows
    of all requests at once, before the full layers get anything.

    Fix: Lower --max-running-requests, or raise the memory fraction.
    """
    c = known(r)
    if c is None or not c.sizes.shortfall.startswith("cap:"):
        return
    _, held, size = c.sizes.shortfall.split(":")
    asked = whole(r.max_running_requests)
    fits = max(1, int(asked * max(c.budget.value, 0) * 0.5 / max(float(size), 1.0)))
    yield judge(
        float(size) > c.budget.value + spread(c),
        f"the sliding-window pool for {asked:,} requests takes {float(size) / GIB:.1f} GiB"
        f" ({int(held):,} tokens) of a budget of {c.budget.value / GIB:.1f} GiB",
        set_to(f"run at most {fits:,} requests", max_running_requests=fits),
    )


@rule(
    "KV958",
    stage=Stage.SERVE,
    option="max_running_requests",
    severity=Severity.WARNING,
    source="mem_cache/kv_cache_configurator.py:3127",
    example=Example("--max-total-tokens 256 --max-running-requests 512"),
    fragments=("max_running_requests was reduced from the requested",),
)
def requests_cut_by_tokens(r: Resolution) -> Iterator[Hit]:
    """A small pool allows fewer requests than asked.

    Why: The engine runs at most half as many requests as the pool has tokens.

    Fix: Allow more tokens, or ask for fewer requests.
    """
    c = known(r)
    if c is None or not r.chose("max_running_requests") or c.limited_by != "tokens":
        return
    dp = geometry_of(r).attn_dp
    asked = max(1, whole(r.max_running_requests) // dp)
    if 0 < c.max_running_requests < asked:
        yield hit(
            f"{asked:,} requests were asked for and {c.max_running_requests:,} will run: half of"
            f" the pool's {c.tokens.whole:,} tokens",
            set_to(
                f"ask for {c.max_running_requests:,} requests",
                max_running_requests=c.max_running_requests * dp,
            ),
        )


@rule(
    "KV959",
    stage=Stage.SERVE,
    option="context_length",
    severity=Severity.WARNING,
    source="managers/tp_worker.py:180",
    example=Example("--max-total-tokens 8192 --context-length 32768"),
)
def pool_below_context(r: Resolution) -> Iterator[Hit]:
    """The pool can be smaller than the context length.

    Why: --context-length reserves nothing. A request can't be longer than the pool has tokens,
    and longer ones are refused or cut when they arrive.

    Fix: Lower the context length to what fits, or make the pool larger: an FP8 cache, a higher
    fraction, more GPUs.
    """
    c = known(r)
    if c is None or c.tokens.whole <= 0:
        return
    g = geometry_of(r)
    tokens = c.full_tokens or c.tokens.whole
    if tokens >= g.context or r.is_embedding or r.disaggregation_mode == "prefill":
        return
    page = g.page_size
    fits = max(page, int(tokens * 0.95) // page * page)
    fixes = [set_to(f"serve contexts of up to {fits:,} tokens", context_length=fits)]
    if r.chose("max_total_tokens"):
        fixes.append(drop("max_total_tokens", title="let memory decide the tokens"))
    message = (
        f"the pool holds {tokens:,} tokens, less than one request of the context length"
        f" {g.context:,}"
    )
    asked = r.chose("context_length") or r.chose("max_total_tokens") or tokens < USUAL_CONTEXT
    yield Hit(message, tuple(fixes), Severity.WARNING if asked else Severity.NOTE)


@rule(
    "KV967",
    stage=Stage.LOAD,
    option="enable_unified_memory",
    source="mem_cache/unified_memory_pool.py:1562",
    example=Example(
        "--enable-unified-memory --max-total-tokens 64 --swa-full-tokens-ratio 0.1", SLIDING
    ),
    fragments=("ONE worst-case request (bs=1 floor",),
)
def unified_floor(r: Resolution) -> Iterator[Hit]:
    """A unified pool must hold one request of either kind.

    Why: The two kinds of layers share bytes, and the smallest split that can serve one request
    must fit into them.

    Fix: Allow more tokens, or drop --enable-unified-memory.
    """
    c = known(r)
    g = geometry_of(r)
    if c is None or not g.unified or c.tokens.whole <= 0:
        return
    shape = unified(r, g, c.sizes)
    if shape.total_bytes < shape.floor_bytes:
        yield judge(
            whole(r.max_total_tokens) > 0,
            f"the unified pool has {shape.total_bytes / 2**20:.0f} MiB and one request needs"
            f" {shape.floor_bytes / 2**20:.0f} MiB",
            drop("max_total_tokens") if whole(r.max_total_tokens) > 0 else
            drop("enable_unified_memory"),
        )  # fmt: skip


@rule(
    "KV966",
    stage=Stage.SERVE,
    option="kv_cache_dtype",
    source="mem_cache/memory_pool.py:2150",
    example=Example("--kv-cache-dtype nvfp4", SLIDING, "b200"),
)
def fp4_without_scales(r: Resolution) -> Iterator[Hit]:
    """An FP4 cache needs a pool with block scales.

    Why: Only plain MHA and MLA pools, and those beside recurrent states, keep the scales that FP4
    values need. Other pools are built without them and the first write fails.

    Fix: Use --kv-cache-dtype fp8_e4m3.
    """
    g = geometry_of(r)
    family = pool_family(g)
    if r.kv_cache_dtype not in ("nvfp4", "fp4_mx_block16") or family not in ("swa", "minimax"):
        return
    names = (one.name for one in r.pool.buffers) if r.pool is not None else ()
    if r.pool is None or any("scale" in name for name in names):
        return
    yield hit(
        f"{r.pool.class_name} has no block scales, which {r.kv_cache_dtype} values need",
        set_to("use fp8_e4m3 (twice the bytes per token)", kv_cache_dtype="fp8_e4m3"),
    )


POOL_RULES: tuple[Part, ...] = (
    *STATE_RULES,
    sliding_pool_cap,
    sliding_pool_floor,
    unified_floor,
    fp4_without_scales,
    requests_cut_by_tokens,
    pool_below_context,
)
