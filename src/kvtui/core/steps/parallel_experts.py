"""Expert placement and its parallel widths (`srt/arg_groups/parallel_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import architecture, attn_tp_size, from_instance, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

RECORDER_PASSES = 1000
"""Passes that the expert recorder keeps where nothing else sets it."""

SHARED_EXPERTS_A2A = ("deepep", "megamoe", "mooncake", "ascend_fuseep", "mori")


@rule(
    "KV470", stage=Stage.RESOLVE, option="dwdp_size", source="arg_groups/parallel_hook.py:455",
    example=Example("--tp-size 4 --dwdp-size 2", model="deepseek-ai/DeepSeek-V3", gpu="b200"),
    fragments=("DWDP", "dwdp_size"),
)  # fmt: skip
def dwdp_needs(r: Resolution) -> Iterator[Hit]:
    """Distributed-weight data parallelism owns the layout of a prefill server.

    Why: it spreads expert weights statically over one attention-DP group per rank, and fetches
    them ahead of each layer; draft models, migration, pipeline stages and two-batch overlap would
    break that schedule.

    Fix: make `--dwdp-size` equal `--tp-size` and drop what it excludes.
    """
    if whole(r.dwdp_size, 1) <= 1:
        return
    for broken, found, fix in (
        (r.dwdp_size != r.tp_size, f"--tp-size is {r.tp_size}, it must be equal",
         set_to("use as many tensor-parallel ranks", tp_size=r.dwdp_size)),
        (r.disaggregation_mode not in ("null", "prefill"),
         f"--disaggregation-mode is {r.disaggregation_mode}", drop("dwdp_size")),
        (r.enable_eplb, "--enable-eplb moves experts", drop("enable_eplb")),
        (r.speculative_algorithm is not None,
         f"--speculative-algorithm is {r.speculative_algorithm}", drop("speculative_algorithm")),
        (r.pp_size != 1, f"--pp-size is {r.pp_size}", set_to("use one stage", pp_size=1)),
        (r.enable_two_batch_overlap, "--enable-two-batch-overlap is set",
         drop("enable_two_batch_overlap")),
    ):  # fmt: skip
        if broken:
            yield hit(f"--dwdp-size {r.dwdp_size}: {found}", fix)


@step("arg_groups/parallel_hook.py:487")
def dwdp_layout(r: Resolution) -> None:
    """DWDP sets the whole expert layout."""
    if whole(r.dwdp_size, 1) <= 1:
        return
    r.declare(
        "--dwdp-size sets the layout",
        attn_dp_size=r.dwdp_size,
        dp_size=1,
        enable_dp_attention_local_control_broadcast=True,
        enable_dp_lm_head=True,
        moe_dense_tp_size=1,
        ep_size=r.dwdp_size,
        moe_dp_size=1,
        moe_a2a_backend="none",
        disable_cuda_graph=True,
    )
    r.env["SGLANG_SCHEDULER_SKIP_ALL_GATHER"] = "1"


HANDLE_DWDP: tuple[Part, ...] = (dwdp_needs, dwdp_layout)


@rule(
    "KV471", stage=Stage.RESOLVE, option="shared_experts_tp_size",
    source="arg_groups/parallel_hook.py:214",
    example=Example("--tp-size 8 --shared-experts-tp-size 3", model="moonshotai/Kimi-K3"),
    fragments=("--shared-experts-tp-size",),
)  # fmt: skip
def shared_experts_width(r: Resolution) -> Iterator[Hit]:
    """A narrower shard of shared experts is a Kimi-K3 option with expert all-to-all.

    Why: only that model keeps its shared experts apart from the routed ones, and the width has to
    divide the ranks of one attention group.

    Fix: drop the option.
    """
    size = r.shared_experts_tp_size
    if size is None:
        return
    width = attn_tp_size(r)
    if size < 1 or width % size:
        found = f"it does not divide the {width} ranks of an attention group"
    elif from_instance(r) or architecture(r) != "KimiK3ForConditionalGeneration":
        found = "the model is not Kimi-K3"
    elif r.moe_a2a_backend not in SHARED_EXPERTS_A2A:
        found = f"--moe-a2a-backend {r.moe_a2a_backend} is none of {', '.join(SHARED_EXPERTS_A2A)}"
    else:
        return
    yield hit(f"--shared-experts-tp-size {size}: {found}", drop("shared_experts_tp_size"))


HANDLE_SHARED_EXPERTS_TP: tuple[Part, ...] = (shared_experts_width,)


@step("arg_groups/parallel_hook.py:749")
def eplb_and_dispatch(r: Resolution) -> None:
    """Moving experts needs a recorder, and a way to choose between copies of an expert."""
    if r.enable_eplb and r.expert_distribution_recorder_mode is None:
        r.default("EPLB reads the recorder", expert_distribution_recorder_mode="stat")
    if r.ep_dispatch_algorithm is None and (r.enable_eplb or r.init_expert_location != "trivial"):
        r.default(
            "all ranks must choose the same copy of an expert"
            if r.moe_a2a_backend == "none"
            else "the all-to-all back end routes each token to one rank",
            ep_dispatch_algorithm="dynamic" if r.moe_a2a_backend == "none" else "static",
        )


@rule(
    "KV472", stage=Stage.RESOLVE, option="ep_dispatch_algorithm",
    source="arg_groups/parallel_hook.py:780",
    example=Example(
        "--tp-size 4 --ep-size 4 --ep-dispatch-algorithm static", model="Qwen/Qwen3-30B-A3B"
    ),
    fragments=("picks a different physical replica per rank",),
)  # fmt: skip
def dispatch_agrees_across_ranks(r: Resolution) -> Iterator[Hit]:
    """Without all-to-all, every rank has to pick the same copy of an expert.

    Why: ranks add up partial results over the same tokens; `static` and `lp` choose per rank.

    Fix: dispatch dynamically, or choose an all-to-all back end.
    """
    if r.moe_a2a_backend == "none" and r.ep_dispatch_algorithm in ("static", "lp"):
        yield hit(
            f"--ep-dispatch-algorithm {r.ep_dispatch_algorithm} with --moe-a2a-backend none",
            set_to("dispatch dynamically", ep_dispatch_algorithm="dynamic"),
        )


@rule(
    "KV473", stage=Stage.RESOLVE, option="enable_eplb", source="arg_groups/parallel_hook.py:794",
    example=Example("--tp-size 4 --enable-eplb", model="Qwen/Qwen3-30B-A3B"),
)  # fmt: skip
def eplb_needs_expert_ranks(r: Resolution) -> Iterator[Hit]:
    """Balancing experts needs more than one expert-parallel rank.

    Why: with one rank there is nowhere to move an expert; the engine asserts it without a word.

    Fix: spread experts over the tensor-parallel group, or drop the flag.
    """
    if r.enable_eplb and r.ep_join_mode != "scale" and whole(r.ep_size, 1) <= 1:
        fixes = [drop("enable_eplb")]
        if whole(r.tp_size, 1) > 1:
            fixes.insert(0, set_to(f"spread experts over {r.tp_size} ranks", ep_size=r.tp_size))
        yield hit(f"--enable-eplb with --ep-size {r.ep_size}", *fixes)


HANDLE_EPLB_AND_DISPATCH: tuple[Part, ...] = (
    eplb_and_dispatch,
    dispatch_agrees_across_ranks,
    eplb_needs_expert_ranks,
)


@step("arg_groups/parallel_hook.py:797")
def expert_distribution_metrics(r: Resolution) -> None:
    """Reports of expert balance need a recorder and its depth."""
    if r.expert_balancedness_report_mode != "off" and r.expert_distribution_recorder_mode is None:
        r.default("the report reads the recorder", expert_distribution_recorder_mode="stat")
    if r.expert_distribution_recorder_buffer_size is not None:
        return
    if r.eplb_rebalance_num_iterations is not None:
        depth = r.eplb_rebalance_num_iterations
    elif r.expert_distribution_recorder_mode is not None:
        depth = RECORDER_PASSES
    else:
        return
    r.default("it covers one rebalancing period", expert_distribution_recorder_buffer_size=depth)


HANDLE_EXPERT_DISTRIBUTION_METRICS: tuple[Part, ...] = (expert_distribution_metrics,)
