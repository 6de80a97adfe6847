"""Roles of a prefill/decode pair: transfer back ends, host receive, decode radix cache."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, num_dp_ranks
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import above_one, number
from kvtui.core.steps.pd_bootstrap import RUST_BOOTSTRAP
from kvtui.core.steps.pd_host_receive import HOST_RECEIVE
from kvtui.core.steps.pd_prefill_complete import PREFILL_COMPLETE
from kvtui.core.steps.pd_role_switch import ROLE_SWITCH_GATES

HOOK = "arg_groups/pd_disaggregation_hook.py"
STAGING = "SGLANG_DISAGG_STAGING_BUFFER"
STAGING_BACKENDS = ("mooncake", "nixl")
"""Transfer back ends with a staging buffer. Source: pd_disaggregation_hook.py:155."""
MAX_SLOTS_WITH_EXTRA = 32
"""Requests a worker up to which a decode server keeps spare slots.
Source: pd_disaggregation_hook.py:135."""


@step(f"{HOOK}:31")
def read_mooncake_tcp(r: Resolution) -> None:
    """Take transfer back end mooncake_tcp as Mooncake over TCP without RDMA devices."""
    if r.disaggregation_transfer_backend == "mooncake_tcp":
        r.env.setdefault("MC_FORCE_TCP", "1")
        r.declare(
            "mooncake_tcp is Mooncake with its TCP transport forced",
            disaggregation_transfer_backend="mooncake",
            disaggregation_ib_device=None,
        )


@rule(
    "KV501",
    stage=Stage.SERVE,
    option="dcp_size",
    source=f"{HOOK}:56",
    severity=Severity.WARNING,
    example=Example(
        "--disaggregation-mode prefill --tp-size 8 --dcp-size 2",
        model="deepseek-ai/DeepSeek-V3",
        gpu="h200",
    ),
)
def prefill_dcp_costs(r: Resolution) -> Iterator[Hit]:
    """Decode context parallelism on a prefill server only pays for equal layouts.

    Why: it adds communication to prefill and helps decode; both sides must use the same layout.
    Fix: drop --dcp-size on the prefill side unless the decode side has it.
    """
    if r.disaggregation_mode == "prefill" and above_one(r.dcp_size):
        yield hit(
            f"--dcp-size {r.dcp_size} adds communication to prefill and fits a decode side of "
            "the same layout only",
            drop("dcp_size"),
        )


def _decode_radix(r: Resolution) -> bool:
    return bool(r.disaggregation_mode == "decode" and r.disaggregation_decode_enable_radix_cache)


@rule(
    "KV506",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_enable_radix_cache",
    source=f"{HOOK}:100",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-radix-cache --enable-hisparse",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="h200",
    ),
    fragments=("--disaggregation-decode-enable-radix-cache is incompatible",),
)
def decode_radix_alone(r: Resolution) -> Iterator[Hit]:
    """The decode radix cache excludes HiSparse and transfer back end fake.

    Why: HiSparse pages are not where the tree says, and fake moves no pages that could be
    reused.
    Fix: drop --disaggregation-decode-enable-radix-cache or the other.
    """
    if not _decode_radix(r):
        return
    off = drop("disaggregation_decode_enable_radix_cache", title="keep no prefixes on decode")
    if r.enable_hisparse:
        yield hit(
            "HiSparse keeps pages where the radix tree can't find them",
            off,
            drop("enable_hisparse"),
        )
    if r.disaggregation_transfer_backend == "fake":
        yield hit(
            "transfer back end fake moves no pages, so none could be reused",
            off,
            drop("disaggregation_transfer_backend", title="transfer with mooncake"),
            option="disaggregation_transfer_backend",
        )


@step(f"{HOOK}:116")
def set_decode_radix(r: Resolution) -> None:
    """A decode server keeps no radix cache unless told to."""
    if r.disaggregation_mode != "decode":
        return
    if r.disaggregation_decode_enable_radix_cache:
        r.declare(
            "--disaggregation-decode-enable-radix-cache turns it on", disable_radix_cache=False
        )
    else:
        r.declare("a decode server keeps no prefixes", disable_radix_cache=True)


@step(f"{HOOK}:130")
def fill_decode_extra_slots(r: Resolution) -> None:
    """Reserve request slots on a decode server for pages that are under way."""
    if r.disaggregation_mode != "decode" or r.disaggregation_decode_extra_slots is not None:
        return
    extra = 0
    running = number(r.max_running_requests)
    if running is not None:
        per_worker = max(1, int(running) // max(1, num_dp_ranks(r)))
        extra = per_worker * 2 if per_worker <= MAX_SLOTS_WITH_EXTRA else 0
    r.default(
        "small batches get twice their size, large ones none",
        disaggregation_decode_extra_slots=extra,
    )


@rule(
    "KV507",
    stage=Stage.RESOLVE,
    option="disaggregation_transfer_backend",
    source=f"{HOOK}:145",
    example=Example("--disaggregation-mode prefill --disaggregation-transfer-backend fake"),
    fragments=("Prefill server does not support 'fake'",),
)
def prefill_sends_for_real(r: Resolution) -> Iterator[Hit]:
    """A prefill server can't use transfer back end fake.

    Why: fake only lets a decode server run without a partner.
    Fix: mooncake, nixl, mori or ascend.
    """
    if r.disaggregation_mode == "prefill" and r.disaggregation_transfer_backend == "fake":
        yield hit(
            "transfer back end fake sends nothing, and a prefill server must send",
            drop("disaggregation_transfer_backend", title="transfer with mooncake"),
        )


@rule(
    "KV509",
    stage=Stage.RESOLVE,
    option="disaggregation_transfer_backend",
    source=f"{HOOK}:157",
    example=Example(
        "--disaggregation-mode decode --disaggregation-transfer-backend mori",
        env={STAGING: "1"},
    ),
    fragments=("SGLANG_DISAGG_STAGING_BUFFER requires",),
)
def staging_needs_backend(r: Resolution) -> Iterator[Hit]:
    """The staging buffer exists in Mooncake and NIXL.

    Why: other transfer back ends send pages from where they lie.
    Fix: mooncake or nixl, or no SGLANG_DISAGG_STAGING_BUFFER.
    """
    backend = r.disaggregation_transfer_backend
    in_pair = r.disaggregation_mode in ("prefill", "decode")
    if in_pair and r.env_flag(STAGING) and backend not in STAGING_BACKENDS:
        yield hit(
            f"transfer back end {backend} has no staging buffer",
            drop("disaggregation_transfer_backend", title="transfer with mooncake"),
            set_to(f"unset {STAGING}", **{f"env:{STAGING}": None}),
        )


@rule(
    "KV512",
    stage=Stage.SERVE,
    option="disaggregation_decode_enable_radix_cache",
    source=f"{HOOK}:111",
    severity=Severity.WARNING,
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-radix-cache --tp-size 2 "
        "--attn-dp-size 2"
    ),
)
def decode_radix_with_dp(r: Resolution) -> Iterator[Hit]:
    """The decode radix cache under attention data parallelism needs a router that knows it.

    Why: each attention-DP group has a tree of its own, so a request only finds its prefix where
    it ran before.
    Fix: a router that routes by prefix, or one group.
    """
    if _decode_radix(r) and attn_dp_enabled(r):
        yield hit(
            f"{r.attn_dp_size} attention-DP groups keep a tree each; prefixes are only "
            "found with routing by prefix"
        )


HANDLE_PD_DISAGGREGATION: tuple[Part, ...] = (
    read_mooncake_tcp,
    *PREFILL_COMPLETE,
    prefill_dcp_costs,
    *HOST_RECEIVE,
    decode_radix_alone,
    decode_radix_with_dp,
    set_decode_radix,
    fill_decode_extra_slots,
    prefill_sends_for_real,
    *RUST_BOOTSTRAP,
    staging_needs_backend,
    *ROLE_SWITCH_GATES,
)
