"""Allocation policy `prefill_complete`: pages are allocated once a prompt is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvtui.core.findings import Change, Fix, Stage, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import receives_in_host

HOOK = "arg_groups/pd_disaggregation_hook.py"
POLICY = "disaggregation_decode_allocation_policy"

Limit = tuple[Callable[[Resolution], bool], str, tuple[Change, ...]]
"""A predicate, what it finds, and the changes that end it (none where a person must choose)."""


def _parallel(r: Resolution) -> bool:
    return any(r.values[name] != 1 for name in ("pp_size", "attn_cp_size", "dcp_size"))


def _attention_tp(r: Resolution) -> bool:
    groups = r.dp_size if r.enable_dp_attention else 1
    return bool(r.tp_size != groups)


def _decode_prefixes(r: Resolution) -> bool:
    keeps = r.disaggregation_decode_enable_radix_cache or r.enable_hierarchical_cache
    return bool(r.disaggregation_mode == "decode" and keeps)


def _prefill_hicache(r: Resolution) -> bool:
    plain = r.hicache_storage_backend is None and r.hicache_write_policy == "write_back"
    return bool(r.disaggregation_mode == "prefill" and r.enable_hierarchical_cache and not plain)


LIMITS: tuple[Limit, ...] = (
    (
        lambda r: r.disaggregation_mode not in ("prefill", "decode"),
        "one server for prefill and decode",
        (),
    ),
    (
        lambda r: r.disaggregation_transfer_backend != "mooncake",
        "a transfer back end other than mooncake",
        (Change("disaggregation_transfer_backend", "mooncake"),),
    ),
    (
        _parallel,
        "pipeline or context parallelism",
        (Change("pp_size"), Change("attn_cp_size"), Change("dcp_size")),
    ),
    (_attention_tp, "attention split over tensor-parallel ranks", ()),
    (
        lambda r: bool(r.enable_pdmux or r.decoupled_spec_role != "null"),
        "PD multiplexing or decoupled speculation",
        (Change("enable_pdmux"), Change("decoupled_spec_role")),
    ),
    (lambda r: bool(r.enable_pd_role_switch), "role switching", (Change("enable_pd_role_switch"),)),
    (
        lambda r: bool(r.encoder_only or r.language_only),
        "a separate encoder",
        (Change("encoder_only"), Change("language_only")),
    ),
    (lambda r: bool(r.enable_hisparse), "HiSparse", (Change("enable_hisparse"),)),
    (
        receives_in_host,
        "receiving into host memory",
        (Change("disaggregation_decode_host_receive_threshold"),),
    ),
    (
        _decode_prefixes,
        "a radix cache or HiCache on the decode side",
        (Change("disaggregation_decode_enable_radix_cache"), Change("enable_hierarchical_cache")),
    ),
    (
        _prefill_hicache,
        "prefill HiCache other than write_back without a store",
        (Change("hicache_storage_backend"), Change("hicache_write_policy", "write_back")),
    ),
    (
        lambda r: r.env_flag("SGLANG_DISAGG_STAGING_BUFFER"),
        "staging buffers",
        (Change("env:SGLANG_DISAGG_STAGING_BUFFER"),),
    ),
    (
        lambda r: r.env_flag("SGLANG_RUST_SERVER"),
        "the Rust server",
        (Change("env:SGLANG_RUST_SERVER"),),
    ),
)
"""What the policy excludes. Source: pd_disaggregation_hook.py:197-237."""


@rule(
    "KV500",
    stage=Stage.RESOLVE,
    option=POLICY,
    source=f"{HOOK}:239",
    example=Example("--disaggregation-decode-allocation-policy prefill_complete"),
    fragments=("--disaggregation-decode-allocation-policy prefill_complete does not",),
)
def prefill_complete_limits(r: Resolution) -> Iterator[Hit]:
    """Allocation policy prefill_complete is for the plainest Mooncake pairs.

    Why: the decode side allocates pages only after the prompt is finished; the listed features
    count on pages that exist from the start.
    Fix: policy early, or drop what is listed.
    """
    if r.disaggregation_decode_allocation_policy != "prefill_complete":
        return
    found = [(words, changes) for applies, words, changes in LIMITS if applies(r)]
    if not found:
        return
    fixes = [set_to("allocate pages early", **{POLICY: "early"})]
    if all(changes for _, changes in found):
        chosen = tuple(
            change
            for _, changes in found
            for change in changes
            if change.value is not None or _is_chosen(r, change)
        )
        fixes.append(Fix("drop everything that the policy excludes", chosen))
    yield hit(f"policy prefill_complete excludes {', '.join(words for words, _ in found)}", *fixes)


def _is_chosen(r: Resolution, change: Change) -> bool:
    return change.option.startswith("env:") or r.chose(change.option)


@step(f"{HOOK}:53")
def try_prefill_once(r: Resolution) -> None:
    """Let prefill start before the decode side has pages."""
    complete = r.disaggregation_decode_allocation_policy == "prefill_complete"
    if complete and r.disaggregation_mode == "prefill" and r.optimistic_prefill_attempts == 0:
        r.declare(
            "policy prefill_complete starts prompts before pages are allocated",
            optimistic_prefill_attempts=1,
        )


PREFILL_COMPLETE: tuple[Part, ...] = (prefill_complete_limits, try_prefill_once)
