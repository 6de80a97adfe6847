"""Decode-context parallelism (`srt/arg_groups/parallel_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

ALL_TO_ALL_DCP = ("a2a", "fi_a2a")


FABRIC_GPUS = ("GB200", "GB300")
"""GPUs whose NVLink domain spans hosts (utils/common.py, is_mnnvl_fabric_device)."""


def _fused_exchange(r: Resolution) -> bool:
    """True where FlashInfer's one-kernel exchange serves the DCP groups."""
    if not r.platform.is_sm100:
        return False
    if any(name in r.platform.gpu.name for name in FABRIC_GPUS):
        return True
    nodes = max(1, whole(r.nnodes, 1) // max(1, whole(r.pp_size, 1)))
    return bool((r.tp_size // nodes) % r.dcp_size == 0)


@step("arg_groups/overrides.py:1371")
def dcp_comm_backend_default(r: Resolution) -> None:
    """The exchange between decode-context ranks follows the GPU."""
    if r.dcp_comm_backend is not None:
        return
    if whole(r.dcp_size, 1) <= 1:
        backend = "ag_rs"
    elif _fused_exchange(r):
        backend = "fi_a2a"
    elif r.platform.is_cuda or r.platform.is_hip or r.platform.is_xpu:
        backend = "a2a"
    else:
        backend = "ag_rs"
    r.default("the GPU decides how decode-context ranks exchange", dcp_comm_backend=backend)


@rule(
    "KV455", stage=Stage.RESOLVE, option="dcp_size", source="arg_groups/parallel_hook.py:245",
    example=Example("--dcp-size 0"), fragments=("must be >= 1, but got",),
)  # fmt: skip
def dcp_size_positive(r: Resolution) -> Iterator[Hit]:
    """Decode-context ranks are counted from one.

    Why: the KV cache of a request is spread over that many ranks.

    Fix: leave the option out.
    """
    if whole(r.dcp_size, 1) < 1:
        yield hit(f"--dcp-size is {r.dcp_size}; it must be at least 1", drop("dcp_size"))


@rule(
    "KV456", stage=Stage.RESOLVE, option="dcp_size", source="arg_groups/parallel_hook.py:251",
    example=Example("--tp-size 4 --dcp-size 2 --enable-prefill-cp --cp-strategy zigzag"),
    fragments=("does not support --enable-prefill-cp",),
)  # fmt: skip
def dcp_or_prefill_cp(r: Resolution) -> Iterator[Hit]:
    """Decode-context and prefill-context parallelism exclude each other.

    Why: both want to own how a request's tokens are spread over ranks.

    Fix: keep the one that the workload needs: long decode, or long prefill.
    """
    if whole(r.dcp_size) > 1 and r.enable_prefill_cp:
        yield hit(
            f"--dcp-size {r.dcp_size} together with --enable-prefill-cp",
            drop("enable_prefill_cp"),
            drop("dcp_size"),
        )


@rule(
    "KV457", stage=Stage.RESOLVE, option="dcp_comm_backend",
    source="arg_groups/parallel_hook.py:253", example=Example("--dcp-comm-backend a2a"),
    fragments=("only affects the decode context-parallel attention reduction",),
)  # fmt: skip
def dcp_exchange_needs_dcp(r: Resolution) -> Iterator[Hit]:
    """An all-to-all exchange needs decode-context ranks to exchange between.

    Why: it only changes how partial attention results of those ranks are merged.

    Fix: drop the option, or spread the KV cache with `--dcp-size`.
    """
    if r.dcp_comm_backend in ALL_TO_ALL_DCP and whole(r.dcp_size, 1) <= 1:
        yield hit(
            f"--dcp-comm-backend {r.dcp_comm_backend} with --dcp-size {r.dcp_size}",
            drop("dcp_comm_backend"),
        )


@rule(
    "KV458", stage=Stage.RESOLVE, option="dcp_comm_backend",
    source="arg_groups/parallel_hook.py:260",
    example=Example("--tp-size 4 --dcp-size 2 --dcp-comm-backend fi_a2a", gpu="mi300x"),
    fragments=("delegates the exchange to FlashInfer",),
)  # fmt: skip
def fused_exchange_needs_cuda(r: Resolution) -> Iterator[Hit]:
    """FlashInfer's exchange runs on CUDA only.

    Why: it is a CUDA kernel over NVLink memory.

    Fix: leave the option out, the engine picks one that fits.
    """
    if r.dcp_comm_backend == "fi_a2a" and not r.platform.is_cuda:
        yield hit("--dcp-comm-backend fi_a2a needs CUDA", drop("dcp_comm_backend"))


@rule(
    "KV459", stage=Stage.RESOLVE, option="dcp_replicate_q_proj",
    source="arg_groups/parallel_hook.py:267", example=Example("--dcp-replicate-q-proj"),
    fragments=("--dcp-replicate-q-proj",),
)  # fmt: skip
def replicated_q_needs_all_to_all(r: Resolution) -> Iterator[Hit]:
    """Replicating the query projection pays only with an all-to-all exchange.

    Why: it spares the gather of queries, which `ag_rs` does in any case.

    Fix: drop the flag, or choose `--dcp-comm-backend a2a` with `--dcp-size` above one.
    """
    if not r.dcp_replicate_q_proj:
        return
    if whole(r.dcp_size, 1) <= 1:
        found = f"--dcp-size is {r.dcp_size}"
    elif r.dcp_comm_backend not in ALL_TO_ALL_DCP:
        found = f"--dcp-comm-backend is {r.dcp_comm_backend}"
    else:
        return
    yield hit(f"--dcp-replicate-q-proj: {found}", drop("dcp_replicate_q_proj"))


HANDLE_DECODE_CONTEXT_PARALLELISM: tuple[Part, ...] = (
    dcp_comm_backend_default,
    dcp_size_positive,
    dcp_or_prefill_cp,
    dcp_exchange_needs_dcp,
    fused_exchange_needs_cuda,
    replicated_q_needs_all_to_all,
)
