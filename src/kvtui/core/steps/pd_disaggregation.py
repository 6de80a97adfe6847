"""Roles of a prefill/decode pair: transfer back ends, host receive, decode radix cache."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, num_dp_ranks
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.options import catalogue
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import above_one, number
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


def _receives_in_host(r: Resolution) -> bool:
    threshold = number(r.disaggregation_decode_host_receive_threshold)
    return threshold is not None and threshold < 1


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
    if not _receives_in_host(r):
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
    if _receives_in_host(r) and r.disaggregation_decode_retraction_backup == "cpu_tensor":
        yield hit(
            "pages are received into a host pool, and retraction is set to CPU tensors",
            drop("disaggregation_decode_retraction_backup"),
            drop("disaggregation_decode_host_receive_threshold"),
        )


@step(f"{HOOK}:76")
def retract_to_host_pool(r: Resolution) -> None:
    """Retract into the host pool that pages are received into."""
    if _receives_in_host(r):
        r.declare(
            "pages are received into a host pool, and retraction shares it",
            disaggregation_decode_retraction_backup="host_pool",
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


def _rust_bootstrap(r: Resolution) -> bool:
    """True where the Rust server's own port serves the registry of the pair.

    Source: managers/disagg_service.py:54; all built-in back ends but fake use that registry.
    """
    rust = r.disaggregation_mode == "prefill" and r.env_flag("SGLANG_RUST_SERVER")
    return bool(rust and r.disaggregation_transfer_backend != "fake")


def _default_bootstrap_port() -> int:
    return int(catalogue().defaults["disaggregation_bootstrap_port"])


@rule(
    "KV508",
    stage=Stage.RESOLVE,
    option="disaggregation_bootstrap_port",
    source=f"{HOOK}:275",
    example=Example(
        "--disaggregation-mode prefill --disaggregation-bootstrap-port 9000",
        env={"SGLANG_RUST_SERVER": "1"},
    ),
    fragments=("serves the PD KV bootstrap registry on the api",),
)
def rust_bootstrap_port(r: Resolution) -> Iterator[Hit]:
    """The Rust server serves the pair's registry on its own port.

    Why: there is one listener, so the registry can't have another port.
    Fix: drop --disaggregation-bootstrap-port; decode servers and router use --port.
    """
    port = r.disaggregation_bootstrap_port
    if _rust_bootstrap(r) and port not in (_default_bootstrap_port(), r.port):
        yield hit(
            f"the registry is served on port {r.port}, and {port} is set",
            drop("disaggregation_bootstrap_port"),
        )


@step(f"{HOOK}:289")
def alias_bootstrap_port(r: Resolution) -> None:
    """Let the registry's port follow the server's where the Rust server runs it."""
    if _rust_bootstrap(r) and r.disaggregation_bootstrap_port == _default_bootstrap_port():
        r.declare(
            "the Rust server runs the registry on its own port",
            disaggregation_bootstrap_port=r.port,
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
    host_receive_range,
    host_receive_alone,
    host_receive_needs_host_pool,
    retract_to_host_pool,
    decode_radix_alone,
    decode_radix_with_dp,
    set_decode_radix,
    fill_decode_extra_slots,
    prefill_sends_for_real,
    rust_bootstrap_port,
    alias_bootstrap_port,
    staging_needs_backend,
    *ROLE_SWITCH_GATES,
)
