"""Shapes of a model that do not divide between ranks (`srt/models`, `srt/layers` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvtui.core.derived import attn_tp_size, is_dummy, whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

EXPERT_KEYS = ("num_experts", "n_routed_experts", "num_local_experts")
GROUPED_INTEGER = ("awq", "awq_marlin", "gptq", "gptq_marlin")


def skipped(r: Resolution) -> bool:
    """True where no model of the engine's own is built on GPUs."""
    known = r.scratch.get("shapes_skipped")
    if known is None:
        known = r.scratch["shapes_skipped"] = (
            is_dummy(r)
            or r.model_impl == "transformers"
            or not r.model.is_known
            or str(r.device).startswith("cpu")
            or whole(r.tp_size, 1) < 1
        )
    return bool(known)


def text_number(r: Resolution, name: str) -> int:
    """A number of the language part's configuration, 0 where it has none."""
    return whole(r.model.hf_text_config.get(name))


def expert_count(r: Resolution) -> int:
    """Routed experts of one MoE layer, 0 for a dense model."""
    return next((n for n in (text_number(r, key) for key in EXPERT_KEYS) if n), 0)


def block_of(config: Mapping[str, Any]) -> int:
    """Columns that share one scale of a block-quantized checkpoint, 0 for none."""
    block = config.get("weight_block_size")
    return whole(block[0]) if isinstance(block, (list, tuple)) and block else 0


def best_tp(r: Resolution, count: int) -> tuple[Fix, ...]:
    """A fix with the most ranks below the present ones that divide `count` and the heads."""
    heads, kv_heads = whole(r.model.num_attention_heads), r.model.total_num_kv_heads
    for size in range(whole(r.tp_size, 1) - 1, 0, -1):
        even = kv_heads % size == 0 or size % max(1, kv_heads) == 0
        if count % size == 0 and heads % size == 0 and even:
            return (set_to(f"use {size} tensor-parallel ranks", tp_size=size),)
    return ()


@rule(
    "KV933", stage=Stage.LOAD, option="tp_size", source="models/qwen3.py",
    example=Example("--tp-size 5"),
)  # fmt: skip
def heads_divide(r: Resolution) -> Iterator[Hit]:
    """Query heads are split evenly between the ranks of an attention group.

    Why: every model of the engine asserts it while it builds its layers.

    Fix: choose a tensor-parallel size that divides the heads, or more attention-DP groups.
    """
    if skipped(r):
        return
    heads, ranks = whole(r.model.num_attention_heads), attn_tp_size(r)
    if heads and heads % ranks:
        yield hit(
            f"{heads} attention heads do not divide between {ranks} ranks", *best_tp(r, heads)
        )


@rule(
    "KV934", stage=Stage.LOAD, option="tp_size", source="models/qwen3.py",
    example=Example("--tp-size 6", model="Qwen/Qwen3.5-27B"),
)  # fmt: skip
def kv_heads_divide(r: Resolution) -> Iterator[Hit]:
    """KV heads are split evenly, or each is copied to as many ranks.

    Why: a rank holds whole heads; models assert that one number divides the other.

    Fix: choose a tensor-parallel size that divides the KV heads, or a multiple of them.
    """
    if skipped(r) or r.model.attention_arch == "MLA":
        return
    heads, ranks = r.model.total_num_kv_heads, attn_tp_size(r)
    if not heads:
        return
    uneven = heads % ranks if heads >= ranks else ranks % heads
    if uneven:
        yield hit(
            f"{heads} KV heads neither divide between {ranks} ranks nor into them",
            *best_tp(r, heads),
        )


def _state_shape(r: Resolution) -> tuple[int, str]:
    """The number that a recurrent layer splits, and what it is."""
    config = r.model.hf_text_config
    kda = config.get("linear_attn_config")
    if isinstance(kda, Mapping) and kda.get("num_heads"):
        return whole(kda["num_heads"]), "linear-attention heads"
    if config.get("linear_num_key_heads"):
        return text_number(r, "linear_num_key_heads"), "linear-attention key heads"
    return text_number(r, "mamba_num_heads"), "Mamba heads"


@rule(
    "KV935", stage=Stage.LOAD, option="tp_size", source="layers/attention/mamba/mamba.py:245",
    example=Example("--tp-size 16", model="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
    fragments=("Tensor parallel world size must divide num heads",
               "tensor parallel world size does not divide num_groups", "KDA num_heads"),
)  # fmt: skip
def state_divides(r: Resolution) -> Iterator[Hit]:
    """Recurrent layers split their heads and groups evenly.

    Why: a rank keeps the state of whole heads, and of whole groups unless there is one.

    Fix: choose a tensor-parallel size that divides both.
    """
    if skipped(r) or r.model.mambaish is None:
        return
    ranks = attn_tp_size(r)
    (heads, what), groups = _state_shape(r), 0
    if what == "Mamba heads":
        groups = text_number(r, "n_groups")
    for count, name in ((heads, what), (groups if groups > 1 else 0, "Mamba groups")):
        if count and count % ranks:
            yield hit(f"{count} {name} do not divide between {ranks} ranks", *best_tp(r, count))


def _dense_width(r: Resolution) -> int:
    """Inner width of a dense model's MLP, 0 where layers differ or are experts."""
    return 0 if expert_count(r) else text_number(r, "intermediate_size")


@rule(
    "KV936", stage=Stage.LOAD, option="tp_size", source="layers/quantization/fp8.py:570",
    example=Example("--tp-size 16", model="Qwen/Qwen3-32B-FP8"),
    fragments=("is not divisible by weight quantization block_k",
               "is not divisible by weight quantization block_n",
               "aligned with the quantized weight shape", "is not divisible by group_size"),
)  # fmt: skip
def dense_shards_are_whole_blocks(r: Resolution) -> Iterator[Hit]:
    """A rank's share of the MLP is whole, in whole quantization blocks.

    Why: scales belong to blocks or groups of weights; a shard that cuts one has no scale for the
    rest.

    Fix: use fewer tensor-parallel ranks; more pipeline stages can hold the rest.
    """
    width = 0 if skipped(r) else _dense_width(r)
    ranks = attn_tp_size(r) if whole(r.attn_dp_size, 1) > 1 else whole(r.tp_size, 1)
    if not width or ranks == 1:
        return
    config = r.model.hf_quant_config
    block = block_of(config) if r.model.quantization == "fp8" else 0
    if r.model.quantization in GROUPED_INTEGER:
        block = max(0, whole(config.get("group_size")))
    unit = block or 1
    if width % (ranks * unit):
        yield hit(
            f"an MLP of {width} columns is no whole number of "
            + (f"blocks of {block} on each of {ranks} ranks" if block else f"columns on {ranks}"),
            *best_tp(r, width // unit),
        )


LATE_SHARDS: tuple[Part, ...] = (
    heads_divide,
    kv_heads_divide,
    state_divides,
    dense_shards_are_whole_blocks,
)


@rule(
    "KV937", stage=Stage.LOAD, option="ep_size", source="distributed/parallel_state.py:2740",
    example=Example("--tp-size 4 --ep-size 3", model="Qwen/Qwen3-30B-A3B"),
    fragments=("must be divisible by ep_size",),
)  # fmt: skip
def expert_groups_fill_tp(r: Resolution) -> Iterator[Hit]:
    """Expert-parallel groups are equal shares of the tensor-parallel group.

    Why: a rank outside every group stops while groups are built; argument checks do not look.

    Fix: choose a divisor of the tensor-parallel size.
    """
    ranks, shares = whole(r.tp_size, 1), whole(r.ep_size, 1) * max(1, whole(r.moe_dp_size, 1))
    if ranks < 1 or shares < 1 or r.ep_join_mode == "scale" or ranks % shares == 0:
        return
    yield hit(
        f"--ep-size {r.ep_size} does not divide --tp-size {ranks}",
        drop("ep_size"),
        set_to("spread experts over all ranks", ep_size=ranks),
    )


@rule(
    "KV940", stage=Stage.LOAD, option="ep_size",
    source="layers/moe/fused_moe_triton/layer.py:414",
    example=Example("--tp-size 8 --ep-size 8 --ep-num-redundant-experts 3",
                    model="Qwen/Qwen3-30B-A3B"),
)  # fmt: skip
def experts_divide(r: Resolution) -> Iterator[Hit]:
    """Experts, spare ones included, are split evenly between expert-parallel ranks.

    Why: every rank holds as many experts; the layer asserts it.

    Fix: change `--ep-size`, or the number of redundant experts.
    """
    experts = 0 if skipped(r) else expert_count(r)
    shares, spare = whole(r.ep_size, 1), whole(r.ep_num_redundant_experts)
    if experts and shares > 1 and (experts + spare) % shares:
        fixes = [drop("ep_size")]
        if spare:
            even = -(-spare // shares) * shares - experts % shares
            fixes.insert(0, set_to(f"keep {even} redundant experts",
                                   ep_num_redundant_experts=even))  # fmt: skip
        total = f"{experts} + {spare}" if spare else str(experts)
        yield hit(f"{total} experts do not divide between {shares} ranks", *fixes)


@rule(
    "KV941", stage=Stage.LOAD, option="tp_size",
    source="model_executor/model_runner_components/moe_ep_setup.py:139",
    example=Example("--tp-size 8", model="Qwen/Qwen3-30B-A3B-FP8"),
    fragments=("For quantized MoE models, please make sure", "must be divisible by moe_tp_size",
               "The output_size of gate's and up's weight"),
)  # fmt: skip
def expert_shards_are_whole_blocks(r: Resolution) -> Iterator[Hit]:
    """A rank's share of an expert is whole, in whole FP8 blocks.

    Why: tensor-parallel ranks without expert parallelism cut every expert, and a cut through a
    block leaves weights without a scale. The engine stops before it loads weights.

    Fix: spread whole experts with `--ep-size`, or use fewer ranks.
    """
    width = 0 if skipped(r) else text_number(r, "moe_intermediate_size")
    ranks, shares = whole(r.tp_size, 1), max(1, whole(r.ep_size, 1))
    if not width or not expert_count(r) or ranks % shares:
        return
    cuts = max(1, ranks // shares // max(1, whole(r.moe_dp_size, 1)))
    block = block_of(r.model.hf_quant_config)
    if r.platform.is_hip or r.env_flag("SGLANG_SHARED_EXPERT_TP1"):
        block = 0
    if width % (cuts * (block or 1)) == 0:
        return
    unit = f"blocks of {block}" if block else "columns"
    fixes = [set_to(f"spread whole experts over {ranks} ranks", ep_size=ranks)]
    if shares == 1:
        fixes.extend(best_tp(r, width // (block or 1)))
    yield hit(
        f"an expert of {width} columns, cut {cuts} ways, is no whole number of {unit} a rank",
        *fixes,
    )


EXPERT_SHARDS: tuple[Part, ...] = (
    expert_groups_fill_tp,
    experts_divide,
    expert_shards_are_whole_blocks,
)
