"""LATE_MEMORY: launches that pass every check and then run out of memory, or serve little.

An error stands only where the death is certain beyond the likely error of the estimate; where it
is near, a warning says so. Mirrors what srt/mem_cache/kv_cache_configurator.py refuses after the
weights are in place (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.capacity.predict import try_predict
from kvtui.core.capacity.result import Capacity
from kvtui.core.derived import whole
from kvtui.core.facts import GIB
from kvtui.core.findings import Fix, Severity, Stage, drop, set_to
from kvtui.core.late.memory_fixes import (
    fraction_window,
    more_gpus,
    on_fly_fp8,
    raised_fraction,
    spread,
)
from kvtui.core.late.memory_host import HOST_RULES
from kvtui.core.late.memory_pools import POOL_RULES
from kvtui.core.pools.geometry import geometry_of
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule


def _gib(value: float) -> str:
    return f"{value / GIB:.1f} GiB"


@rule(
    "KV950",
    stage=Stage.LOAD,
    option="mem_fraction_static",
    source="mem_cache/kv_cache_configurator.py:3050",
    example=Example("", "meta-llama/Llama-3.3-70B-Instruct", "h100"),
    fragments=("Loaded weights leave no GPU memory for the KV cache",),
)
def weights_leave_no_room(r: Resolution) -> Iterator[Hit]:
    """Weights leave no room for the cache.

    Why: The memory fraction is the share of a GPU that weights and cache may take together, so
    weights that are larger than this share leave nothing. The engine finds out once they are
    loaded, minutes after the start.

    Fix: Raise --mem-fraction-static where the weights fit the GPU at all; else use more GPUs or a
    quantised checkpoint.
    """
    c = try_predict(r)
    if c is None:
        return
    around = spread(c)
    if c.budget.value > around:
        return
    taken = _gib(c.weights_bytes + c.draft_bytes)
    share = _gib(c.baseline.value * c.fraction)
    least = fraction_window(c)[0]
    message = (
        f"weights take {taken} of the {share} that fraction {c.fraction:.3g} gives them and the"
        f" cache on each GPU; a cache needs a fraction above {least:.3f}"
        if least < 1
        else f"weights take {taken} on each GPU, which has {_gib(c.baseline.value)} free"
    )
    fixes = _room_fixes(r, c)
    if c.budget.value < -around:
        yield hit(message, *fixes)
    else:
        near = f"{message}; the estimate is too close to tell"
        yield Hit(near, tuple(fixes), Severity.WARNING)


def _room_fixes(r: Resolution, c: Capacity) -> list[Fix]:
    raised = raised_fraction(c)
    fixes = [] if raised is None else [
        set_to(f"raise the fraction to {raised:g} (less for activations)",
               mem_fraction_static=raised)
    ]  # fmt: skip
    fixes += [one for one in (more_gpus(r, c), on_fly_fp8(r, c)) if one is not None]
    return fixes


@rule(
    "KV951",
    stage=Stage.LOAD,
    option="max_total_tokens",
    source="model_executor/pool_configurator.py:95",
    example=Example("--max-total-tokens 32 --page-size 64"),
    fragments=("Not enough memory. Please try to increase --mem-fraction-static",),
)
def cap_below_a_page(r: Resolution) -> Iterator[Hit]:
    """A token cap must hold at least one page.

    Why: The cap is rounded down to whole pages. Below one page the pool would hold nothing, and
    the engine's message then speaks of the memory fraction, which is not the cause.

    Fix: Raise --max-total-tokens or drop it.
    """
    limit = r.max_total_tokens
    if not isinstance(limit, int) or isinstance(limit, bool):
        return
    page = geometry_of(r).page_size
    if limit < page:
        yield hit(
            f"--max-total-tokens {limit} is less than a page of {page} tokens, so the pool would"
            " hold none",
            drop("max_total_tokens"),
        )


@rule(
    "KV960",
    stage=Stage.LOAD,
    option="max_running_requests",
    source="mem_cache/memory_pool.py:205",
    example=Example(
        "--tp-size 8 --context-length 2800000",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        "h100",
        {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"},
    ),
)
def request_table(r: Resolution) -> Iterator[Hit]:
    """The table of requests is outside the memory budget.

    Why: Each running request has a row of 4 bytes for every token of context, whatever it uses:
    (requests + 1) x context x 4 bytes. The table comes out of what the fraction leaves free, and
    a long context with the usual 2,048 requests can need more than that.

    Fix: Lower --max-running-requests, or the context length.
    """
    c = try_predict(r)
    if c is None or c.tokens.whole <= 0:
        return
    slack, table = c.free_after.value + c.working.value + c.request_table.value, c.request_table
    if table.value <= max(slack, 0.0):
        return
    row = table.value / (c.max_running_requests + 1)
    room = max(1, int((slack - c.working.value) * 0.8 / row))
    fixes = [
        set_to(
            f"run at most {room:,} requests on each rank",
            max_running_requests=room * max(1, whole(r.attn_dp_size, 1)),
        )
    ]
    columns = int((slack - c.working.value) * 0.8 / 4 / (c.max_running_requests + 1)) // 1024 * 1024
    if r.chose("context_length") and columns > 0:
        fixes.append(set_to(f"serve contexts of up to {columns:,} tokens", context_length=columns))
    message = (
        f"the request table takes {_gib(table.value)} ({c.max_running_requests:,} requests x"
        f" {geometry_of(r).context:,} tokens x 4 bytes); fraction {c.fraction:.3g} leaves"
        f" {_gib(slack)} for it, graphs and activations"
    )
    certain = table.value > slack * 1.1 + GIB / 2
    yield hit(message, *fixes) if certain else Hit(message, tuple(fixes), Severity.WARNING)


@rule(
    "KV961",
    stage=Stage.SERVE,
    option="mem_fraction_static",
    severity=Severity.WARNING,
    source="mem_cache/kv_cache_configurator.py:2990",
    example=Example("--mem-fraction-static 0.97 --chunked-prefill-size 32768"),
)
def graphs_need_room(r: Resolution) -> Iterator[Hit]:
    """Graphs and activations come out of what the fraction leaves.

    Why: The cache takes all of its share at once. Graph capture and the first long prompt then
    need memory outside it, and an out-of-memory error there asks for a lower fraction, not a
    higher one.

    Fix: Lower --mem-fraction-static, the prefill chunk, or the largest captured batch.
    """
    c = try_predict(r)
    if c is None or c.tokens.whole <= 0:
        return
    left = c.free_after.value + c.working.value
    if c.working.value * (1 - c.working.error) <= left or left < 0:
        return
    highest = fraction_window(c)[1]
    fixes = []
    if highest > fraction_window(c)[0] + 0.005:
        fixes.append(set_to(f"lower the fraction to {highest:g} (fewer tokens)",
                            mem_fraction_static=highest))  # fmt: skip
    fixes.append(set_to("prefill in chunks of 2048 tokens", chunked_prefill_size=2048))
    yield hit(
        f"fraction {c.fraction:.3g} leaves {_gib(left)} on each GPU for graphs and activations,"
        f" which are likely to take {_gib(c.working.value)}",
        *fixes,
    )


LATE_MEMORY: tuple[Part, ...] = (
    weights_leave_no_room,
    cap_below_a_page,
    *POOL_RULES,
    request_table,
    graphs_need_room,
    *HOST_RULES,
)
