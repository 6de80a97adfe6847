"""Conditions between the radix cache, host tiers and the sliding-window pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import above_one, number
from kvtui.core.steps.other_cache_lmcache import LMCACHE_GATES
from kvtui.core.steps.pd_offload import DECODE_OFFLOAD_GATES

HOOK = "arg_groups/kv_cache_hook.py"
SWA_RATIO_DEFAULT = 0.8
MAMBA_RATIO_DEFAULT = 0.9
"""Pool shares where nobody set them. Source: arg_groups/fields/schedule.py:160 and 225."""


def _host_pool(r: Resolution) -> bool:
    return bool(r.disaggregation_decode_retraction_backup == "host_pool")


def to_cpu_tensor(r: Resolution) -> Fix:
    """The fix that backs retracted requests up without a host pool."""
    title = "back retracted requests up one by one (slower to restore)"
    changes: dict[str, Any] = {"disaggregation_decode_retraction_backup": "cpu_tensor"}
    threshold = number(r.disaggregation_decode_host_receive_threshold)
    if threshold is not None and threshold < 1:
        changes["disaggregation_decode_host_receive_threshold"] = None
    return set_to(title, **changes)


@rule(
    "KV350",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_retraction_backup",
    source=f"{HOOK}:356",
    example=Example("--disaggregation-decode-retraction-backup host_pool"),
    fragments=("retraction-backup=host_pool is only",),
)
def host_pool_retraction_is_for_decode(r: Resolution) -> Iterator[Hit]:
    """Retraction into a host pool exists on decode servers.

    Why: only a PD decode server builds the host pool that takes retracted requests. A host
    receive threshold below 1 asks for that pool too.
    Fix: drop the option, or make this a decode server.
    """
    if not _host_pool(r) or r.disaggregation_mode == "decode":
        return
    threshold = number(r.disaggregation_decode_host_receive_threshold)
    if threshold is not None and threshold < 1:
        option = "disaggregation_decode_host_receive_threshold"
        found = f"a host receive threshold of {threshold:g} asks for a host pool for retraction"
        undo = drop(option, "disaggregation_decode_retraction_backup")
    else:
        option = "disaggregation_decode_retraction_backup"
        found = "retraction into a host pool is set"
        undo = drop(option)
    yield hit(
        f"{found}, which only a decode server has; the mode is {r.disaggregation_mode}",
        undo,
        set_to(
            "make this a decode server (needs prefill servers and a router)",
            disaggregation_mode="decode",
        ),
        option=option,
    )


@rule(
    "KV351",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_retraction_backup",
    source=f"{HOOK}:361",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-retraction-backup host_pool "
        "--tp-size 8 --dcp-size 2",
        model="deepseek-ai/DeepSeek-V3",
        gpu="h200",
    ),
    fragments=("does not support --dcp-size > 1",),
)
def host_pool_retraction_has_no_dcp(r: Resolution) -> Iterator[Hit]:
    """Retraction into a host pool excludes decode context parallelism.

    Why: the backup copies whole pages, and under DCP a rank holds a part of each.
    Fix: cpu_tensor backup, or --dcp-size 1.
    """
    if _host_pool(r) and above_one(r.dcp_size):
        yield hit(
            f"each of {r.dcp_size} DCP ranks holds a part of a page, and the host pool "
            "takes whole pages",
            to_cpu_tensor(r),
            drop("dcp_size"),
        )


@rule(
    "KV352",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_retraction_backup",
    source=f"{HOOK}:368",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-retraction-backup host_pool "
        "--enable-priority-scheduling"
    ),
    fragments=("--disable-priority-preemption when priority scheduling is enabled",),
)
def host_pool_retraction_has_no_preemption(r: Resolution) -> Iterator[Hit]:
    """Retraction into a host pool excludes preemption by priority.

    Why: a preempted request would need a second place in the host pool.
    Fix: --disable-priority-preemption keeps the order of priorities without preempting.
    """
    preempts = r.enable_priority_scheduling and not r.disable_priority_preemption
    if _host_pool(r) and preempts:
        yield hit(
            "priority scheduling preempts requests, which the host pool can't take",
            set_to("keep priorities, preempt nobody", disable_priority_preemption=True),
            to_cpu_tensor(r),
        )


def _tlru_number(config: Any, key: str) -> float | None:
    return number(config.get(key, 0))


@rule(
    "KV353",
    stage=Stage.RESOLVE,
    option="radix_eviction_policy_config",
    source=f"{HOOK}:373",
    example=Example("--radix-eviction-policy tlru"),
    fragments=("--radix-eviction-policy tlru",),
)
def tlru_thresholds(r: Resolution) -> Iterator[Hit]:
    """Eviction policy tlru needs a threshold above its prompt estimate.

    Why: nodes longer than `threshold` minus `next_prompt_estimate` count as safe to drop; with
    no such distance the policy is plain LRU, and the engine refuses it.
    Fix: --radix-eviction-policy-config '{"threshold": 1024}', or policy lru.
    """
    if r.radix_eviction_policy != "tlru":
        return
    config = r.radix_eviction_policy_config or {}
    fixes = (
        set_to(
            "let prefixes of 1024 tokens count as safe",
            radix_eviction_policy_config={"threshold": 1024, "next_prompt_estimate": 0},
        ),
        set_to(
            "evict the least recently used",
            radix_eviction_policy="lru",
            radix_eviction_policy_config=None,
        ),
    )
    if not isinstance(config, dict):
        yield hit(f"the policy's configuration is {config!r}; it must be a JSON object", *fixes)
        return
    threshold, estimate = (_tlru_number(config, k) for k in ("threshold", "next_prompt_estimate"))
    if threshold is None or estimate is None:
        yield hit("threshold and next_prompt_estimate must be numbers", *fixes)
    elif threshold < 0 or estimate < 0:
        yield hit(
            f"threshold is {threshold:g} and next_prompt_estimate {estimate:g}; neither "
            "may be negative",
            *fixes,
        )
    elif threshold <= estimate:
        yield hit(
            f"threshold {threshold:g} must be above next_prompt_estimate {estimate:g}", *fixes
        )


@rule(
    "KV356",
    stage=Stage.RESOLVE,
    option="enable_hierarchical_cache",
    source=f"{HOOK}:393",
    example=Example("--enable-hierarchical-cache --disable-radix-cache"),
    fragments=("enable-hierarchical-cache and disable-radix-cache are mutually exclusive",),
)
def hicache_needs_radix(r: Resolution) -> Iterator[Hit]:
    """HiCache needs the radix cache.

    Why: host memory holds prefixes that the radix tree knows; without the tree there is nothing
    to keep. A decode server turns the tree off unless told otherwise.
    Fix: drop --disable-radix-cache; on a decode server add
    --disaggregation-decode-enable-radix-cache.
    """
    if not (r.enable_hierarchical_cache and r.disable_radix_cache):
        return
    off = drop("enable_hierarchical_cache", title="drop HiCache (prefixes stay in GPU memory)")
    if r.disaggregation_mode == "decode" and not r.disaggregation_decode_enable_radix_cache:
        keep = set_to(
            "keep the radix cache on this decode server",
            disaggregation_decode_enable_radix_cache=True,
        )
        yield hit("a decode server turns the radix cache off, and HiCache needs it", keep, off)
        return
    found = "the radix cache is off, and HiCache needs it"
    if r.chose("disable_radix_cache"):
        yield hit(found, drop("disable_radix_cache"), off)
    else:
        yield hit(f"{found}: {r.origin('disable_radix_cache').why or 'the engine sets so'}", off)


@step(f"{HOOK}:414")
def note_swa_ratio_choice(r: Resolution) -> None:
    """Remember whether anybody set the window-layer share before pools are sized."""
    if r._swa_full_tokens_ratio_explicitly_set is None:
        r.default(
            "recorded before pools are sized",
            _swa_full_tokens_ratio_explicitly_set=r.swa_full_tokens_ratio is not None,
        )


@rule(
    "KV357",
    stage=Stage.RESOLVE,
    option="swa_full_tokens_ratio",
    source=f"{HOOK}:427",
    example=Example("--swa-full-tokens-ratio 1.5", model="openai/gpt-oss-20b"),
    fragments=("--swa-full-tokens-ratio should be in range",),
)
def swa_ratio_range(r: Resolution) -> Iterator[Hit]:
    """The window-layer share lies above 0 and at most 1.

    Why: it is the number of window-layer tokens over full-layer tokens.
    Fix: a value in that range; 0.8 is the engine's own.
    """
    raw = r.swa_full_tokens_ratio
    ratio = SWA_RATIO_DEFAULT if raw is None else number(raw)
    if ratio is None or not 0 < ratio <= 1:
        yield hit(
            f"the ratio is {raw}; it must be above 0 and at most 1",
            set_to("use 0.8", swa_full_tokens_ratio=0.8),
        )


@step("arg_groups/fields/schedule.py:160")
def fill_pool_shares(r: Resolution) -> None:
    """Take the engine's shares of window layers and states where neither user nor model did."""
    if r.swa_full_tokens_ratio is None:
        r.default("the engine's own share", swa_full_tokens_ratio=SWA_RATIO_DEFAULT)
    if r.mamba_full_memory_ratio is None:
        r.default("the engine's own share", mamba_full_memory_ratio=MAMBA_RATIO_DEFAULT)


@rule(
    "KV358",
    stage=Stage.RESOLVE,
    option="swa_prefix_tails",
    source=f"{HOOK}:430",
    example=Example("--swa-prefix-tails -1", model="openai/gpt-oss-20b"),
    fragments=("--swa-prefix-tails should be a non-negative integer",),
)
def swa_tails_not_negative(r: Resolution) -> Iterator[Hit]:
    """The number of kept prefix tails is zero or more.

    Why: it counts window tails that stay cached.
    Fix: 0 or a positive number.
    """
    tails = number(r.swa_prefix_tails)
    if tails is not None and tails < 0:
        yield hit(f"{tails:g} prefix tails are asked for; the least is 0", drop("swa_prefix_tails"))


HANDLE_CACHE_COMPATIBILITY: tuple[Part, ...] = (
    host_pool_retraction_is_for_decode,
    host_pool_retraction_has_no_dcp,
    host_pool_retraction_has_no_preemption,
    tlru_thresholds,
    hicache_needs_radix,
    *DECODE_OFFLOAD_GATES,
    note_swa_ratio_choice,
    swa_ratio_range,
    fill_pool_shares,
    swa_tails_not_negative,
    *LMCACHE_GATES,
)
