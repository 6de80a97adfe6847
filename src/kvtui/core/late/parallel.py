"""Splits that the engine's argument checks let pass and its model loading does not.

Sources are the places in `srt` of 0.5.23 where a rank stops.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources

from kvtui.core.derived import attn_dp_enabled, gpus_needed, is_dummy, whole
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.late.parallel_drafts import LATE_DRAFTS
from kvtui.core.late.parallel_shapes import EXPERT_SHARDS, LATE_SHARDS
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule


@cache
def without_pipeline() -> frozenset[str]:
    """Architectures whose forward passes nothing on to a next stage."""
    path = resources.files("kvtui.core.tables") / "pipeline.toml"
    return frozenset(tomllib.loads(path.read_text(encoding="utf-8"))["without"])


@rule(
    "KV930", stage=Stage.LOAD, option="tp_size", source="entrypoints/engine.py:935",
    example=Example("--tp-size 16"), fragments=("invalid device ordinal",),
)  # fmt: skip
def gpus_on_the_machine(r: Resolution) -> Iterator[Hit]:
    """Every rank of a node needs a GPU of its own there.

    Why: ranks take GPUs from `--base-gpu-id` on, `--gpu-id-step` apart; one past the last GPU
    stops with an invalid device.

    Fix: use fewer ranks, or spread them over nodes with `--nnodes` and `--dist-init-addr`.
    """
    if str(r.device).split(":")[0] not in ("cuda", "xpu", "npu") or r.use_ray:
        return
    nodes = max(1, whole(r.nnodes, 1))
    ranks, found = -(-gpus_needed(r) // nodes), r.facts.gpu_count
    start, stride = max(0, whole(r.base_gpu_id)), max(1, whole(r.gpu_id_step, 1))
    last = start + (ranks - 1) * stride
    if last < found:
        return
    fixes = []
    if start or stride > 1:
        fixes.append(drop("base_gpu_id", "gpu_id_step", title="start from the first GPU"))
    if ranks > found:
        fixes.append(set_to("use the GPUs that are there", tp_size=found, pp_size=1, dp_size=1))
    yield hit(f"{ranks} ranks on this node need GPUs 0 to {last}, the machine has {found}", *fixes)


@rule(
    "KV931", stage=Stage.LOAD, option="tp_size", source="distributed/parallel_state.py:2646",
    example=Example("--tp-size 0"),
)  # fmt: skip
def sizes_are_positive(r: Resolution) -> Iterator[Hit]:
    """Widths are counted from one.

    Why: argument checks divide by some of them and pass the rest; no rank starts then.

    Fix: leave the option out.
    """
    for name in ("tp_size", "pp_size", "dp_size", "ep_size", "attn_cp_size"):
        if whole(getattr(r, name), 1) < 1:
            flag = "--" + name.replace("_", "-")
            yield hit(f"{flag} is {getattr(r, name)}", set_to("use 1", **{name: 1}), option=name)


@rule(
    "KV932", stage=Stage.LOAD, option="dist_init_addr", source="server_args.py:811",
    example=Example("--tp-size 16 --nnodes 2"),
)  # fmt: skip
def nodes_need_an_address(r: Resolution) -> Iterator[Hit]:
    """Nodes meet at an address that all of them are given.

    Why: without `--dist-init-addr` each node waits at its own loopback, on a port of its own;
    attention DP stops at once, it derives its ports from that address.

    Fix: give `--dist-init-addr HOST:PORT` of node 0 on every node.
    """
    if whole(r.nnodes, 1) <= 1 or r.dist_init_addr or r.use_ray:
        return
    message = f"--nnodes {r.nnodes} without --dist-init-addr"
    fix = drop("nnodes", title="run on one node")
    if attn_dp_enabled(r):
        yield hit(message, fix)
    elif r.nccl_port is None and "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE" not in r.env:
        yield Hit(message + ": nodes find each other only by chance", (fix,), Severity.WARNING)


@rule(
    "KV938", stage=Stage.LOAD, option="pp_size", source="model_executor/model_runner.py:514",
    example=Example("--tp-size 2 --pp-size 2", model="meta-llama/Llama-4-Scout-17B-16E-Instruct"),
    fragments=("Pipeline Parallel is not compatible with this model",),
)  # fmt: skip
def model_runs_in_stages(r: Resolution) -> Iterator[Hit]:
    """Pipeline stages need a model that hands its hidden states on, and a layer for each stage.

    Why: the engine asserts both after the weights are loaded.

    Fix: use tensor parallelism.
    """
    stages = whole(r.pp_size, 1)
    if stages <= 1 or is_dummy(r):
        return
    fix = set_to(f"split tensors instead, {stages * r.tp_size} ways", pp_size=1,
                 tp_size=stages * r.tp_size)  # fmt: skip
    if r.model.arch in without_pipeline() and r.model_impl != "transformers":
        yield hit(f"--pp-size {stages}: {r.model.arch} does not run in stages", fix)
    layers = r.model.num_hidden_layers
    if layers < stages:
        yield hit(f"--pp-size {stages} is more than the {layers} layers", fix)
    partition = r.env.get("SGLANG_PP_LAYER_PARTITION")
    if partition:
        parts = [int(part) for part in partition.split(",") if part.strip().isdigit()]
        if len(parts) != stages or sum(parts) != layers:
            name = "SGLANG_PP_LAYER_PARTITION"
            yield hit(
                f"{name}={partition} does not split {layers} layers into {stages} stages",
                set_to(f"unset {name}", **{f"env:{name}": None}),
            )


@rule(
    "KV939", stage=Stage.LOAD, option="dcp_size", source="distributed/parallel_state.py:2665",
    example=Example("--tp-size 4 --dcp-size 3"),
    fragments=("must be divisible by decode_context_parallel_size",),
)  # fmt: skip
def dcp_divides_tp(r: Resolution) -> Iterator[Hit]:
    """Decode-context groups are equal shares of the tensor-parallel group.

    Why: argument checks do not compare the two; building the groups does.

    Fix: choose a divisor of the tensor-parallel size.
    """
    size = whole(r.dcp_size, 1)
    if size > 1 and whole(r.tp_size, 1) % size:
        yield hit(
            f"--dcp-size {size} does not divide --tp-size {r.tp_size}",
            drop("dcp_size"),
            set_to(f"use {size} tensor-parallel ranks", tp_size=size),
        )


@rule(
    "KV942", stage=Stage.SERVE, option="tokenizer_worker_num",
    source="entrypoints/http_server.py:259",
    example=Example("--tokenizer-worker-num 2 --api-key secret"),
    fragments=("API key is not supported in multi-tokenizer mode",
               "are required for decoupled speculative decoding"),
)  # fmt: skip
def processes_around_the_ranks(r: Resolution) -> Iterator[Hit]:
    """Several tokenizer workers serve without a key; a decoupled drafter needs its endpoints.

    Why: workers answer requests themselves, past the place that checks keys; drafter and
    verifier are two servers that have to find each other.

    Fix: use one tokenizer worker; give the endpoints and the rank.
    """
    if whole(r.tokenizer_worker_num, 1) > 1 and r.api_key:
        yield hit(
            f"--tokenizer-worker-num {r.tokenizer_worker_num} with --api-key",
            drop("tokenizer_worker_num"),
            drop("api_key", title="serve without a key"),
        )
    needed = ("bind_endpoint", "connect_endpoints", "rank")
    missing = [n for n in needed if getattr(r, f"decoupled_spec_{n}") is None]
    if r.decoupled_spec_role != "null" and missing:
        flags = ", ".join("--decoupled-spec-" + n.replace("_", "-") for n in missing)
        yield hit(
            f"--decoupled-spec-role {r.decoupled_spec_role} without {flags}",
            drop("decoupled_spec_role"),
            option="decoupled_spec_role",
            stage=Stage.LOAD,
        )


LATE_PARALLEL: tuple[Part, ...] = (
    gpus_on_the_machine,
    sizes_are_positive,
    nodes_need_an_address,
    *LATE_SHARDS,
    *EXPERT_SHARDS,
    model_runs_in_stages,
    dcp_divides_tp,
    processes_around_the_ranks,
    *LATE_DRAFTS,
)
