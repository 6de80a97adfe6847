"""Receiving KV pages into host memory on a decode server."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import number, receives_in_host

HOOK = "arg_groups/pd_disaggregation_hook.py"


@rule(
    "KV502",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_host_receive_threshold",
    source=f"{HOOK}:63",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-host-receive-threshold 1.5"
    ),
    fragments=("--disaggregation-decode-host-receive-threshold must be between 0 and 1",),
)
def host_receive_range(r: Resolution) -> Iterator[Hit]:
    """The host receive threshold lies between 0 and 1.

    Why: it is the share of used GPU pages above which pages are received into host memory; 1
    means never.
    Fix: a value in that range.
    """
    raw = r.disaggregation_decode_host_receive_threshold
    threshold = number(raw)
    if threshold is None or not 0 <= threshold <= 1:
        yield hit(
            f"the threshold is {raw}; it must be between 0 and 1",
            drop(
                "disaggregation_decode_host_receive_threshold",
                title="receive into GPU memory always",
            ),
        )


@rule(
    "KV503",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_host_receive_threshold",
    source=f"{HOOK}:69",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-host-receive-threshold 0.5 "
        "--enable-pd-role-switch"
    ),
    fragments=("Decode host receive does not yet support HiSparse or role switching",),
)
def host_receive_alone(r: Resolution) -> Iterator[Hit]:
    """Receiving into host memory excludes HiSparse and role switching.

    Why: HiSparse owns the host pool, and a switched role would need it rebuilt.
    Fix: drop one of the two.
    """
    if not receives_in_host(r):
        return
    threshold = drop(
        "disaggregation_decode_host_receive_threshold", title="receive into GPU memory"
    )
    for option in ("enable_hisparse", "enable_pd_role_switch"):
        if getattr(r, option):
            yield hit(
                f"--{option.replace('_', '-')} can't run while pages are received into host memory",
                threshold,
                drop(option),
            )


@rule(
    "KV504",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_retraction_backup",
    source=f"{HOOK}:75",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-host-receive-threshold 0.5 "
        "--disaggregation-decode-retraction-backup cpu_tensor"
    ),
    fragments=("Decode host KV buffering requires host_pool retraction",),
)
def host_receive_needs_host_pool(r: Resolution) -> Iterator[Hit]:
    """Receiving into host memory needs retraction into a host pool.

    Why: both use the one host pool of the decode server.
    Fix: drop --disaggregation-decode-retraction-backup.
    """
    if receives_in_host(r) and r.disaggregation_decode_retraction_backup == "cpu_tensor":
        yield hit(
            "pages are received into a host pool, and retraction is set to CPU tensors",
            drop("disaggregation_decode_retraction_backup"),
            drop("disaggregation_decode_host_receive_threshold"),
        )


@step(f"{HOOK}:76")
def retract_to_host_pool(r: Resolution) -> None:
    """Retract into the host pool that pages are received into."""
    if receives_in_host(r):
        r.declare(
            "pages are received into a host pool, and retraction shares it",
            disaggregation_decode_retraction_backup="host_pool",
        )


HOST_RECEIVE: tuple[Part, ...] = (
    host_receive_range,
    host_receive_alone,
    host_receive_needs_host_pool,
    retract_to_host_pool,
)
