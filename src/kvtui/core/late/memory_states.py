"""STATE_RULES: recurrent state slots against memory and running requests."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.capacity.result import Capacity
from kvtui.core.derived import whole
from kvtui.core.facts import GIB
from kvtui.core.findings import Fix, Severity, Stage, drop, set_to
from kvtui.core.late.memory_fixes import judge, known, raise_fraction, spread
from kvtui.core.pools.geometry import geometry_of
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

HYBRID = "Qwen/Qwen3.5-27B"


def _state_fixes(r: Resolution, c: Capacity) -> list[Fix]:
    fixes = raise_fraction(c)
    if r.mamba_ssm_dtype != "bfloat16":
        fixes.append(set_to("keep states in bfloat16 (half the size, less exact)",
                            mamba_ssm_dtype="bfloat16"))  # fmt: skip
    return fixes


@rule(
    "KV955",
    stage=Stage.LOAD,
    option="max_mamba_cache_size",
    source="mem_cache/kv_cache_configurator.py:3393",
    example=Example("--tp-size 2 --max-mamba-cache-size 0", HYBRID, "h100"),
    fragments=("Not enough GPU memory for hybrid (mamba/linear-attention) state cache",),
)
def no_state_slots(r: Resolution) -> Iterator[Hit]:
    """A model with recurrent layers needs state slots.

    Why: Every request keeps a state of fixed size in each recurrent layer. Without a slot for one
    state nothing can run, and the engine stops.

    Fix: Leave --max-mamba-cache-size out, raise the memory fraction, or use a smaller state dtype.
    """
    c = known(r)
    if c is None or geometry_of(r).mambaish is None or c.state_slots > 0:
        return
    if r.max_mamba_cache_size is not None:
        dp = geometry_of(r).attn_dp
        yield hit(
            f"--max-mamba-cache-size {r.max_mamba_cache_size} gives each of {dp} groups"
            f" {max(0, whole(r.max_mamba_cache_size)) // dp} state slots, and one request needs"
            f" {c.slots_per_request}",
            drop("max_mamba_cache_size", title="let the engine size the state pool"),
        )
        return
    slot = geometry_of(r).state
    size = slot.bytes_per_request if slot is not None else 0
    yield judge(
        c.budget.value + spread(c) < size,
        f"a budget of {c.budget.value / GIB:.2f} GiB holds no state slot of {size / 2**20:.0f} MiB",
        *_state_fixes(r, c),
    )


@rule(
    "KV956",
    stage=Stage.LOAD,
    option="max_mamba_cache_size",
    source="mem_cache/kv_cache_configurator.py:3153",
    example=Example("--tp-size 2 --max-mamba-cache-size 2", HYBRID, "h100"),
    fragments=("state cache is too small to serve",),
)
def states_for_no_request(r: Resolution) -> Iterator[Hit]:
    """State slots must suffice for one running request.

    Why: A running request holds several slots: its own state and those that the radix cache keeps
    for its prefix. With fewer slots than one request needs the limit of running requests is zero.

    Fix: Raise --max-mamba-cache-size, or turn the radix cache off, which leaves one slot each.
    """
    c = known(r)
    if c is None or c.state_slots <= 0 or c.state_slots >= c.slots_per_request:
        return
    fixes = [
        set_to(
            "turn the radix cache off (no shared prefixes)", disable_radix_cache=True
        )
    ]  # fmt: skip
    stated = r.max_mamba_cache_size is not None
    if stated:
        fixes.insert(0, drop("max_mamba_cache_size", title="let the engine size the state pool"))
    yield judge(
        stated,
        f"{c.state_slots} state slots are fewer than the {c.slots_per_request} that one running"
        " request holds",
        *fixes,
        *([] if stated else _state_fixes(r, c)),
    )


@rule(
    "KV957",
    stage=Stage.SERVE,
    option="max_running_requests",
    severity=Severity.WARNING,
    source="mem_cache/kv_cache_configurator.py:3137",
    example=Example(
        "--tp-size 2 --max-mamba-cache-size 40 --max-running-requests 16", HYBRID, "h100"
    ),
    fragments=("max_running_requests is capped to", "by the mamba state cache"),
)
def requests_cut_by_states(r: Resolution) -> Iterator[Hit]:
    """State slots can allow fewer requests than asked.

    Why: Each running request holds several state slots, so the limit is slots over slots per
    request, whatever --max-running-requests says.

    Fix: Give the state pool as many slots as the requests need; tokens get less memory.
    """
    c = known(r)
    if c is None or not r.chose("max_running_requests") or c.limited_by != "states":
        return
    dp = geometry_of(r).attn_dp
    asked = max(1, whole(r.max_running_requests) // dp)
    if c.max_running_requests <= 0 or c.max_running_requests >= asked:
        return
    slots = asked * c.slots_per_request * dp
    fixes = [
        set_to(f"keep {slots:,} state slots (fewer tokens)", max_mamba_cache_size=slots),
        set_to(
            f"ask for {c.max_running_requests:,} requests",
            max_running_requests=c.max_running_requests * dp,
        ),
    ]
    lasting = c.state_bytes / max(1, c.state_slots + 1) * (asked * c.slots_per_request + 1)
    if lasting > c.budget.value * 0.9:
        del fixes[0]
    yield hit(
        f"{asked:,} requests were asked for and {c.max_running_requests:,} will run:"
        f" {c.state_slots:,} state slots at {c.slots_per_request} a request",
        *fixes,
    )


@rule(
    "KV968",
    stage=Stage.LOAD,
    option="max_mamba_cache_size",
    source="mem_cache/kv_cache_configurator.py:3401",
    example=Example("--tp-size 2 --max-mamba-cache-size 4000", HYBRID, "h100"),
)
def states_above_budget(r: Resolution) -> Iterator[Hit]:
    """State slots that were asked for must leave room for keys and values.

    Why: --max-mamba-cache-size is taken as given and comes off the budget first. Where nothing is
    left, the engine stops with the message about weights, although states are the cause.

    Fix: Ask for fewer slots, or for fewer running requests where the radix cache is off.
    """
    c = known(r)
    if c is None or c.state_bytes <= 0 or c.state_bytes < c.budget.value:
        return
    slots = max(1, int(c.budget.value / c.state_bytes * c.state_slots * 0.6))
    dp = geometry_of(r).attn_dp
    stated = r.max_mamba_cache_size is not None
    fix = (
        set_to(f"keep {slots * dp:,} state slots", max_mamba_cache_size=slots * dp)
        if stated
        else set_to(f"run at most {slots * dp:,} requests", max_running_requests=slots * dp)
    )
    yield judge(
        c.state_bytes > c.budget.value + spread(c),
        f"{c.state_slots:,} state slots take {c.state_bytes / GIB:.1f} GiB of a budget of"
        f" {c.budget.value / GIB:.1f} GiB and leave nothing for keys and values",
        fix,
    )


STATE_RULES: tuple[Part, ...] = (
    no_state_slots,
    states_above_budget,
    states_for_no_request,
    requests_cut_by_states,
)
