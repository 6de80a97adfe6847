"""Elastic expert parallelism (`srt/arg_groups/parallel_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, attn_tp_size, whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.graphs import DISABLED, FULL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

ELASTIC_ALGORITHMS = ("elasticity_aware", "elasticity_aware_hierarchical")

Condition = tuple[object, str, Fix]
"""Whether a requirement is broken, what was found, and the way out."""


def scaling(r: Resolution) -> bool:
    """True where the expert group may grow beyond its ranks at launch."""
    return (
        r.elastic_ep_backend is not None and r.max_ep_size is not None and r.max_ep_size > r.tp_size
    )


def _report(what: str, conditions: tuple[Condition, ...]) -> Iterator[Hit]:
    for broken, found, fix in conditions:
        if broken:
            yield hit(f"{what}: {found}", fix)


@step("arg_groups/parallel_hook.py:526")
def elastic_algorithm(r: Resolution) -> None:
    """Elastic expert parallelism balances with an algorithm that knows lost ranks."""
    if r.elastic_ep_backend is not None and r.enable_eplb and r.eplb_algorithm == "auto":
        r.default("ranks may come and go", eplb_algorithm="elasticity_aware")


@rule(
    "KV475", stage=Stage.RESOLVE, option="elastic_ep_backend",
    source="arg_groups/parallel_hook.py:534",
    example=Example(
        "--tp-size 2 --pp-size 2 --elastic-ep-backend nixl", model="Qwen/Qwen3-30B-A3B"
    ),
    fragments=("Elastic EP requires eplb_algorithm", "PP size should be set to 1 under elastic EP"),
)  # fmt: skip
def elastic_backend_needs(r: Resolution) -> Iterator[Hit]:
    """Elastic expert parallelism runs in one pipeline stage with an elasticity-aware balancer.

    Why: ranks that come back have to find the same layers and a placement that skips lost ranks.

    Fix: use one stage; leave `--eplb-algorithm` at `auto`.
    """
    if r.elastic_ep_backend is None:
        return
    yield from _report(
        f"--elastic-ep-backend {r.elastic_ep_backend}",
        (
            (r.enable_eplb and r.eplb_algorithm not in ELASTIC_ALGORITHMS,
             f"--eplb-algorithm is {r.eplb_algorithm}", drop("eplb_algorithm")),
            (r.pp_size != 1, f"--pp-size is {r.pp_size}", set_to("use one stage", pp_size=1)),
        ),
    )  # fmt: skip


@rule(
    "KV476", stage=Stage.RESOLVE, option="ep_join_mode", source="arg_groups/parallel_hook.py:549",
    example=Example("--elastic-ep-join-mode recover", model="Qwen/Qwen3-30B-A3B"),
    fragments=("--elastic-ep-join-mode requires", "Elastic EP scale-up requires one joining TP",
               "--elastic-ep-join-rank-offset is only valid"),
)  # fmt: skip
def joining_needs(r: Resolution) -> Iterator[Hit]:
    """A process joins a running expert group with its place stated.

    Why: a joining group is node rank 1 and starts right after the ranks that already serve.

    Fix: give `--elastic-ep-backend`, `--node-rank 1` and `--elastic-ep-join-rank-offset`.
    """
    scale = r.ep_join_mode == "scale"
    offset = whole(r.ep_join_rank_offset)
    if r.ep_join_mode is None and offset == 0:
        return
    yield from _report(
        f"--elastic-ep-join-mode {r.ep_join_mode}",
        (
            (r.ep_join_mode is not None and r.elastic_ep_backend is None,
             "--elastic-ep-backend is not set",
             set_to("connect over Mooncake", elastic_ep_backend="mooncake")),
            (scale and r.node_rank != 1, f"--node-rank is {r.node_rank}, it must be 1",
             set_to("join as node 1", node_rank=1)),
            (scale and offset <= 0, f"--elastic-ep-join-rank-offset is {offset}, it must be the "
             "present group size", drop("ep_join_mode")),
            (not scale and offset != 0, f"--elastic-ep-join-rank-offset {offset} needs scale",
             drop("ep_join_rank_offset")),
        ),
    )  # fmt: skip


@rule(
    "KV477", stage=Stage.RESOLVE, option="max_ep_size", source="arg_groups/parallel_hook.py:571",
    example=Example("--max-ep-size 8", model="Qwen/Qwen3-30B-A3B"),
    fragments=("--max-ep-size", "--elastic-ep-initial-size is only valid"),
)  # fmt: skip
def growth_needs_elastic(r: Resolution) -> Iterator[Hit]:
    """A size to grow to needs elastic expert parallelism.

    Why: without it the group is fixed at launch.

    Fix: drop the size, or set `--elastic-ep-backend mooncake`.
    """
    if r.max_ep_size is None and r.elastic_ep_initial_size is None:
        return
    yield from _report(
        "elastic expert parallelism",
        (
            (r.max_ep_size is not None and r.elastic_ep_backend is None,
             f"--max-ep-size {r.max_ep_size} without --elastic-ep-backend", drop("max_ep_size")),
            (r.max_ep_size is not None and r.elastic_ep_backend is not None
             and whole(r.max_ep_size) <= 0,
             f"--max-ep-size is {r.max_ep_size}", drop("max_ep_size")),
            (r.elastic_ep_initial_size is not None and not scaling(r),
             f"--elastic-ep-initial-size {r.elastic_ep_initial_size} without a larger "
             "--max-ep-size", drop("elastic_ep_initial_size")),
        ),
    )  # fmt: skip


@step("arg_groups/parallel_hook.py:628")
def scaling_layout(r: Resolution) -> None:
    """A group that may grow starts from its tensor-parallel size."""
    if not scaling(r):
        return
    r.declare("a growing group needs it", enable_dp_attention_local_control_broadcast=True)
    if r.ep_join_mode != "scale" and r.elastic_ep_initial_size is None:
        r.default("the group starts from its own ranks", elastic_ep_initial_size=r.tp_size)


def _topology(r: Resolution) -> tuple[Condition, ...]:
    width = attn_tp_size(r)
    replica = width * max(1, whole(r.attn_cp_size, 1))
    start = r.elastic_ep_initial_size or r.tp_size
    sizes = [r.max_ep_size, start]
    if r.ep_join_mode == "scale":
        sizes.append(r.ep_join_rank_offset)
    fits = all(whole(size) > 0 and size % replica == 0 for size in sizes)
    stop = drop("max_ep_size", title="serve without growth")
    groups = set_to("run one attention-DP group a rank, each with its LM head",
                    attn_dp_size=r.tp_size, dp_size=1, enable_dp_lm_head=True)  # fmt: skip
    return (
        (not fits, f"sizes {sizes} are not whole groups of {replica} attention ranks", stop),
        ((width > 1 or (r.ep_join_mode == "scale" and r.tp_size == 1))
         and r.moe_dense_tp_size != 1, f"--moe-dense-tp-size is {r.moe_dense_tp_size}",
         set_to("keep dense layers on one rank", moe_dense_tp_size=1)),
        (not attn_dp_enabled(r), "there are no attention-DP groups", groups),
        (not r.enable_dp_lm_head, "--enable-dp-lm-head is off",
         set_to("replicate the LM head", enable_dp_lm_head=True) if attn_dp_enabled(r)
         else groups),
        (r.attn_cp_size != 1, f"--attn-cp-size is {r.attn_cp_size}", drop("attn_cp_size")),
        (r.moe_dp_size != 1, f"--moe-dp-size is {r.moe_dp_size}", drop("moe_dp_size")),
        (r.ep_size != r.tp_size, f"--ep-size {r.ep_size} is not --tp-size {r.tp_size}",
         set_to("spread experts over all ranks", ep_size=r.tp_size)),
        (r.moe_a2a_backend != "nixl", f"--moe-a2a-backend is {r.moe_a2a_backend}",
         set_to("exchange tokens over NIXL", moe_a2a_backend="nixl")),
        (width % max(1, whole(r.dcp_size, 1)), f"--dcp-size {r.dcp_size} does not divide {width}",
         drop("dcp_size")),
        (r.elastic_ep_backend != "mooncake", f"--elastic-ep-backend is {r.elastic_ep_backend}",
         set_to("connect over Mooncake", elastic_ep_backend="mooncake")),
        (r.pp_size != 1, f"--pp-size is {r.pp_size}", set_to("use one stage", pp_size=1)),
    )  # fmt: skip


def _place(r: Resolution) -> tuple[Condition, ...]:
    start, offset = whole(r.elastic_ep_initial_size), whole(r.ep_join_rank_offset)
    stop = drop("max_ep_size", title="serve without growth")
    if r.ep_join_mode != "scale":
        return ((start != r.tp_size, f"--elastic-ep-initial-size {start} is not --tp-size "
                 f"{r.tp_size}", drop("elastic_ep_initial_size")),)  # fmt: skip
    target = offset + whole(r.tp_size)
    return (
        (start <= 0, "--elastic-ep-initial-size is not set", stop),
        (start > offset, f"--elastic-ep-initial-size {start} is more than the {offset} present "
         "ranks", stop),
        (target > r.max_ep_size, f"{target} ranks are more than --max-ep-size {r.max_ep_size}",
         set_to("allow that many ranks", max_ep_size=target)),
    )  # fmt: skip


def _serving(r: Resolution) -> tuple[Condition, ...]:
    graphs = r.cuda_graph_config
    full = graphs.decode.backend == FULL
    eager = set_to("decode without CUDA graphs", cuda_graph_backend_decode=DISABLED)
    return (
        (r.elastic_ep_scale_timeout <= 0, f"--elastic-ep-scale-timeout is "
         f"{r.elastic_ep_scale_timeout}", drop("elastic_ep_scale_timeout")),
        (r.tokenizer_worker_num != 1, f"--tokenizer-worker-num is {r.tokenizer_worker_num}",
         drop("tokenizer_worker_num")),
        (r.use_ray, "--use-ray is set", drop("use_ray")),
        (r.enable_elastic_expert_backup, "--enable-elastic-expert-backup is set",
         drop("enable_elastic_expert_backup")),
        (r.load_balance_method != "round_robin",
         f"--load-balance-method is {r.load_balance_method}", drop("load_balance_method")),
        (graphs.decode.backend not in (DISABLED, FULL),
         f"the decode graph back end is {graphs.decode.backend}", eager),
        (graphs.prefill.enabled, f"the prefill graph back end is {graphs.prefill.backend}",
         set_to("prefill without CUDA graphs", cuda_graph_backend_prefill=DISABLED)),
        (full and r.device != "cuda", f"decode graphs on {r.device}", eager),
        (full and r.speculative_algorithm is not None,
         f"decode graphs with --speculative-algorithm {r.speculative_algorithm}", eager),
        (full and (r.is_embedding or r.encoder_only), "decode graphs without decoding", eager),
        (full and r.dllm_algorithm is not None, "decode graphs with a diffusion model", eager),
        (full and r.forward_hooks, "decode graphs with --forward-hooks", eager),
        (full and r.enable_pdmux, "decode graphs with --enable-pdmux", eager),
    )  # fmt: skip


@rule(
    "KV478", stage=Stage.RESOLVE, option="max_ep_size", source="arg_groups/parallel_hook.py:583",
    example=Example(
        "--tp-size 2 --elastic-ep-backend mooncake --max-ep-size 8", model="Qwen/Qwen3-30B-A3B"
    ),
    fragments=("Elastic EP scale-up", "Elastic EP runtime scale-up", "Elastic EP CUDA graph"),
)  # fmt: skip
def growing_group_needs(r: Resolution) -> Iterator[Hit]:
    """An expert group that grows while serving fixes almost everything else.

    Why: ranks that join must find the same shards, the same exchange and graphs that can be
    captured again: attention DP with a replicated LM head, experts over all ranks by NIXL,
    Mooncake for membership, no context or pipeline split, and plain serving around it.

    Fix: change what each line names, or give up `--max-ep-size`.
    """
    if scaling(r):
        what = f"--max-ep-size {r.max_ep_size}"
        yield from _report(what, (*_topology(r), *_place(r), *_serving(r)))


HANDLE_ELASTIC_EP: tuple[Part, ...] = (
    elastic_algorithm,
    elastic_backend_needs,
    joining_needs,
    growth_needs_elastic,
    scaling_layout,
    growing_group_needs,
)
