"""Ranks, nodes and stages at the last check (`validation_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Resolution, hit, rule


@rule(
    "KV1065", stage=Stage.CHECK, option="nnodes", source="arg_groups/validation_hook.py:179",
    example=Example("--tp-size 3 --nnodes 2 --dist-init-addr 10.0.0.1:5000"),
    fragments=("tp_size must be divisible by number of nodes",),
)  # fmt: skip
def ranks_fill_nodes(r: Resolution) -> Iterator[Hit]:
    """Ranks spread evenly over nodes.

    Why: every node starts `tp_size * pp_size / nnodes` of them.

    Fix: choose a number of nodes that divides the ranks.
    """
    nodes = whole(r.nnodes, 1)
    if r.ep_join_mode == "scale":
        return
    if nodes == 0 or (whole(r.tp_size, 1) * whole(r.pp_size, 1)) % nodes:
        yield hit(
            f"--tp-size {r.tp_size} x --pp-size {r.pp_size} is not divisible by --nnodes {nodes}",
            drop("nnodes", title="run on one node"),
        )


@rule(
    "KV1066", stage=Stage.CHECK, option="pp_max_micro_batch_size",
    source="arg_groups/validation_hook.py:184", example=Example("--pp-max-micro-batch-size 0"),
    fragments=("pp_max_micro_batch_size must be", "base_gpu_id must be", "gpu_id_step must be",
               "moe_dense_tp_size only supports", "orker num must >=",
               "schedule_conservativeness must be"),
)  # fmt: skip
def plain_numbers(r: Resolution) -> Iterator[Hit]:
    """Sizes and counts stay in their range.

    Why: the engine asserts each of them once everything else is resolved.

    Fix: leave the option out, or give a number in range.
    """
    dense = r.moe_dense_tp_size
    micro = r.pp_max_micro_batch_size
    for name, broken, wanted in (
        ("pp_max_micro_batch_size", micro is not None and micro < 1, "at least 1"),
        ("base_gpu_id", r.base_gpu_id < 0, "0 or more"),
        ("gpu_id_step", r.gpu_id_step < 1, "at least 1"),
        ("moe_dense_tp_size", dense not in (None, 1, r.tp_size), f"1 or {r.tp_size}"),
        ("tokenizer_worker_num", r.tokenizer_worker_num <= 0, "at least 1"),
        ("detokenizer_worker_num", r.detokenizer_worker_num <= 0, "at least 1"),
        ("mm_processor_worker_num", r.mm_processor_worker_num < 0, "0 or more"),
        ("mm_io_worker_num", r.mm_io_worker_num < 0, "0 or more"),
        ("schedule_conservativeness", r.schedule_conservativeness < 0, "0 or more"),
    ):
        if broken:
            flag = "--" + name.replace("_", "-")
            yield hit(f"{flag} is {getattr(r, name)}; it must be {wanted}", drop(name),
                      option=name)  # fmt: skip


def _pipeline_speculation(r: Resolution) -> str | None:
    name, relay = r.speculative_algorithm, r.env_flag("SGLANG_ENABLE_PP_SPEC")
    prefill = r.disaggregation_mode == "prefill"
    if name is None:
        return None
    if name == "DSPARK":
        if not prefill:
            return "DSPARK runs in stages on prefill servers only"
        return "SGLANG_ENABLE_PP_SPEC does not relay DSPARK" if relay else None
    if name != "EAGLE" or r.enable_multi_layer_eagle:
        return f"{name} does not run in stages, only single-layer EAGLE does"
    if not relay:
        return None if prefill else "drafts run in stages on prefill servers only"
    if r.disaggregation_mode != "null":
        return "SGLANG_ENABLE_PP_SPEC is for servers that prefill and decode"
    if r.speculative_adaptive:
        return "SGLANG_ENABLE_PP_SPEC relays a fixed draft width"
    if attn_dp_enabled(r):
        return "SGLANG_ENABLE_PP_SPEC needs one batch for all stages, not attention DP"
    return None


@rule(
    "KV1068", stage=Stage.CHECK, option="pp_size", source="arg_groups/validation_hook.py:129",
    example=Example("--pp-size 2 --speculative-algorithm EAGLE"),
    fragments=("Pipeline parallelism currently only supports EAGLE", "PP + speculative decoding",
               "Pipeline parallel DSPARK", "SGLANG_ENABLE_PP_SPEC",
               "--min-free-slots-delay is not supported"),
)  # fmt: skip
def pipeline_features(r: Resolution) -> Iterator[Hit]:
    """Few features run in pipeline stages.

    Why: drafts need the hidden states of the last stage before the first can go on; slots are
    bounded by the micro batch.

    Fix: use tensor parallelism instead, or drop the feature.
    """
    if whole(r.pp_size, 1) <= 1:
        return
    found = _pipeline_speculation(r)
    if found:
        one = set_to("use one stage", pp_size=1)
        yield hit(f"--pp-size {r.pp_size}: {found}", drop("speculative_algorithm"), one)
    if r.min_free_slots_delay is not None:
        yield hit(
            f"--pp-size {r.pp_size} with --min-free-slots-delay {r.min_free_slots_delay}",
            drop("min_free_slots_delay"),
            option="min_free_slots_delay",
        )


@rule(
    "KV1069", stage=Stage.CHECK, option="dp_size", source="arg_groups/validation_hook.py:199",
    example=Example("--tp-size 2 --dp-size 2 --nnodes 2 --dist-init-addr 10.0.0.1:5000"),
    fragments=("multi-node data-parallel replicas are not supported",),
)  # fmt: skip
def replicas_on_one_node(r: Resolution) -> Iterator[Hit]:
    """Replicas of one server stay on one node.

    Why: one controller starts them all.

    Fix: use attention data parallelism across nodes, or one server on each node.
    """
    if whole(r.dp_size, 1) > 1 and whole(r.nnodes, 1) != 1:
        yield hit(
            f"--dp-size {r.dp_size} over --nnodes {r.nnodes}",
            set_to("run one replica", dp_size=1),
            set_to("split attention instead", dp_size=1, attn_dp_size=r.dp_size),
        )


@rule(
    "KV1076", stage=Stage.CHECK, option="enable_two_batch_overlap",
    source="arg_groups/validation_hook.py:757",
    example=Example("--tp-size 8 --enable-two-batch-overlap", model="deepseek-ai/DeepSeek-V3"),
    fragments=("When enabling two batch overlap without an EP a2a backend",),
)  # fmt: skip
def two_batch_overlap_needs(r: Resolution) -> Iterator[Hit]:
    """Overlapping two batches needs something to overlap.

    Why: it hides an expert exchange, or the gather of attention-DP groups, behind compute.

    Fix: choose an exchange, or attention DP.
    """
    if r.enable_two_batch_overlap and r.moe_a2a_backend == "none" and not attn_dp_enabled(r):
        fixes: list[Fix] = [drop("enable_two_batch_overlap")]
        if whole(r.tp_size, 1) > 1:
            fixes.append(set_to("split attention over all ranks", attn_dp_size=r.tp_size))
        yield hit("--enable-two-batch-overlap without exchange and without attention DP", *fixes)
