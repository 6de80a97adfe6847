"""Context and decode-context parallelism (`srt/arg_groups/parallel_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import architecture, from_instance, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.model.archs import MIMO_V2
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_shard_cp_tp import RESOLVE_CP_TP_GROUP_SHARING

DEEPSEEK_V4 = "DeepseekV4ForCausalLM"
DEEPSEEK_V32 = "DeepseekV32ForCausalLM"
NO_SCATTERED_INPUT = frozenset(
    {
        "InklingForConditionalGeneration",
        "InklingForConditionalGenerationMTP",
        "KimiK3ForConditionalGeneration",
        "KimiK3LinearForCausalLM",
    }
)
"""Architectures whose forward never enters input-scattered attention; model types below too."""
NEMOTRON_TYPES = ("nemotron_h", "nemotron_h_puzzle")
LONGCAT_TYPE = "longcat_flash"


VALIDATE_PREFILL_CP_PLATFORM: tuple[Part, ...] = ()
"""The engine's only refusal here is for MUSA GPUs, which the catalogue has none of."""


def _model_type(r: Resolution) -> str:
    return str(r.model.hf_text_config.get("model_type", ""))


@rule(
    "KV460", stage=Stage.RESOLVE, option="attn_cp_size", source="arg_groups/parallel_hook.py:78",
    example=Example(
        "--tp-size 4 --attn-cp-size 2", model="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    ),
    fragments=("does not support --attn-cp-size > 1", "LongCat-Flash does not support"),
)  # fmt: skip
def model_without_context_parallelism(r: Resolution) -> Iterator[Hit]:
    """Nemotron-H and LongCat-Flash do not run context-parallel attention.

    Why: their layers carry state or token rows that the split of the sequence would tear.

    Fix: run without context parallelism; tensor parallelism keeps the same GPUs busy.
    """
    if whole(r.attn_cp_size, 1) <= 1 or from_instance(r):
        return
    kind = _model_type(r)
    if kind in NEMOTRON_TYPES or (kind == LONGCAT_TYPE and r.enable_prefill_cp):
        yield hit(
            f"--attn-cp-size {r.attn_cp_size}: {kind} has no context-parallel attention",
            drop("attn_cp_size", "enable_prefill_cp", title="run without context parallelism"),
        )


@step("arg_groups/parallel_hook.py:88")
def boundary_parallelism(r: Resolution) -> None:
    """Input-scattered attention is switched off where the model's forward has no such scope."""
    if not r.enable_attn_tp_input_scattered or from_instance(r):
        return
    if architecture(r) in NO_SCATTERED_INPUT or _model_type(r) in (*NEMOTRON_TYPES, LONGCAT_TYPE):
        r.declare(
            f"{architecture(r)} has no input-scattered attention",
            enable_attn_tp_input_scattered=False,
        )


@rule(
    "KV461", stage=Stage.RESOLVE, option="enable_prefill_cp",
    source="arg_groups/parallel_hook.py:113",
    example=Example("--enable-prefill-cp --cp-strategy zigzag", gpu="mi300x"),
    fragments=("Prefill CP on HIP is only supported",),
)  # fmt: skip
def prefill_cp_on_rocm(r: Resolution) -> Iterator[Hit]:
    """On ROCm, prefill context parallelism serves DeepSeek-V4 only.

    Why: no other model's kernels there take a split sequence.

    Fix: drop the flag.
    """
    if (
        r.enable_prefill_cp
        and r.platform.is_hip
        and not from_instance(r)
        and architecture(r) != DEEPSEEK_V4
    ):
        yield hit(
            f"--enable-prefill-cp on ROCm: {architecture(r)} is not {DEEPSEEK_V4}",
            drop("enable_prefill_cp"),
        )


@rule(
    "KV462", stage=Stage.RESOLVE, option="cp_strategy", source="arg_groups/parallel_hook.py:122",
    example=Example(
        "--tp-size 8 --enable-prefill-cp --cp-strategy zigzag", model="deepseek-ai/DeepSeek-V3.2"
    ),
    fragments=("prefill CP does not support --cp-strategy", "only supports --cp-strategy zigzag",
               "prefill CP only supports text inference"),
)  # fmt: skip
def cp_strategy_of_model(r: Resolution) -> Iterator[Hit]:
    """Some models split the sequence in one way only.

    Why: DeepSeek V3.2's indexer needs interleaved tokens, MiMo V2's windows need zigzag halves
    and do not split embeddings of images and sound.

    Fix: choose the model's strategy; serve text only.
    """
    if not r.enable_prefill_cp or from_instance(r):
        return
    name = architecture(r)
    needed = None
    if name == DEEPSEEK_V32 and r.cp_strategy == "zigzag":
        needed = "interleave"
    elif name in MIMO_V2 and r.cp_strategy != "zigzag":
        needed = "zigzag"
    if needed:
        yield hit(
            f"--cp-strategy {r.cp_strategy}: {name} takes {needed}",
            set_to(f"use {needed}", cp_strategy=needed),
        )
    media = name in MIMO_V2 and r.model.is_multimodal
    if media and not r.language_only and not r.language_model_only:
        yield hit(
            "--enable-prefill-cp on a multimodal MiMo V2",
            set_to("serve text only", language_only=True),
            drop("enable_prefill_cp"),
            option="enable_prefill_cp",
        )


BEFORE_GROUP_SHARING: tuple[Part, ...] = (
    model_without_context_parallelism,
    boundary_parallelism,
    prefill_cp_on_rocm,
    cp_strategy_of_model,
)
"""The part of `handle_context_parallelism` before it asks `resolve_cp_tp_group_sharing`."""


@rule(
    "KV464", stage=Stage.RESOLVE, option="cp_strategy", source="arg_groups/parallel_hook.py:148",
    example=Example("--enable-prefill-cp"), fragments=("--cp-strategy must be set",),
)  # fmt: skip
def prefill_cp_needs_strategy(r: Resolution) -> Iterator[Hit]:
    """Prefill context parallelism needs to be told how to split the sequence.

    Why: there is no default that serves every attention kernel.

    Fix: `zigzag` balances causal attention, `interleave` deals tokens round.
    """
    if r.enable_prefill_cp and r.cp_strategy is None:
        yield hit(
            "--enable-prefill-cp without --cp-strategy",
            set_to("split in zigzag halves", cp_strategy="zigzag"),
            set_to("deal tokens round", cp_strategy="interleave"),
            drop("enable_prefill_cp"),
        )


@rule(
    "KV465", stage=Stage.RESOLVE, option="attn_cp_size", source="arg_groups/parallel_hook.py:155",
    example=Example("--tp-size 4 --attn-cp-size 3"),
    fragments=("must be divisible by attn_cp_size", "attn_dp_size * attn_cp_size"),
)  # fmt: skip
def attn_cp_divides_tp(r: Resolution) -> Iterator[Hit]:
    """Context-parallel ranks are equal shares of the tensor-parallel group.

    Why: `tp_size` is the whole group; attention DP and CP divide it.

    Fix: choose sizes whose product divides the tensor-parallel size.
    """
    size, groups = whole(r.attn_cp_size, 1), max(1, whole(r.attn_dp_size, 1))
    if size > 1 and whole(r.tp_size) % (size * groups):
        yield hit(
            f"--tp-size {r.tp_size} is not divisible by --attn-cp-size {size}"
            + (f" x --attn-dp-size {groups}" if groups > 1 else ""),
            set_to(f"use {size * groups} tensor-parallel ranks", tp_size=size * groups),
            drop("attn_cp_size"),
        )


@rule(
    "KV466", stage=Stage.RESOLVE, option="enable_aiter_allreduce_fusion",
    source="arg_groups/parallel_hook.py:163",
    example=Example("--tp-size 4 --attn-cp-size 2 --enable-aiter-allreduce-fusion"),
    fragments=("Aiter allreduce fusion is not supported with context parallelism",),
)  # fmt: skip
def aiter_fusion_without_cp(r: Resolution) -> Iterator[Hit]:
    """AITER's fused all-reduce does not run with context parallelism.

    Why: the fusion assumes that the TP group reduces as one.

    Fix: drop the fusion.
    """
    split = whole(r.attn_cp_size) > 1 or whole(r.moe_dp_size) > 1
    if r.enable_aiter_allreduce_fusion and split:
        yield hit(
            f"--enable-aiter-allreduce-fusion with --attn-cp-size {r.attn_cp_size} and "
            f"--moe-dp-size {r.moe_dp_size}",
            drop("enable_aiter_allreduce_fusion"),
        )


@rule(
    "KV467", stage=Stage.RESOLVE, option="moe_dp_size", source="arg_groups/parallel_hook.py:167",
    example=Example("--tp-size 4 --moe-dp-size 3", model="Qwen/Qwen3-30B-A3B"),
    fragments=("must be divisible by moe_dp_size", "ep_size * moe_dp_size"),
)  # fmt: skip
def moe_dp_fits(r: Resolution) -> Iterator[Hit]:
    """Expert replicas and expert-parallel ranks make up the tensor-parallel group.

    Why: MoE layers divide the same ranks into `moe_dp_size` copies of `ep_size` shares, without
    pipeline stages.

    Fix: leave `--moe-dp-size` out, or make the product fit.
    """
    copies, shares = whole(r.moe_dp_size, 1), whole(r.ep_size, 1)
    if copies <= 1:
        return
    found = None
    if whole(r.tp_size) % copies:
        found = f"--tp-size {r.tp_size} is not divisible by it"
    elif shares * copies > whole(r.tp_size):
        found = f"times --ep-size {shares} is more than --tp-size {r.tp_size}"
    elif r.pp_size != 1:
        found = f"--pp-size is {r.pp_size}"
    elif shares > 1 and shares * copies != r.tp_size:
        found = f"times --ep-size {shares} is not --tp-size {r.tp_size}"
    if found:
        yield hit(f"--moe-dp-size {copies}: {found}", drop("moe_dp_size"))


@rule(
    "KV468", stage=Stage.RESOLVE, option="moe_dp_size", source="arg_groups/parallel_hook.py:189",
    example=Example("--tp-size 4 --moe-dp-size 2", model="Qwen/Qwen3-30B-A3B"),
    fragments=("attn_cp_size != moe_dp_size",),
)  # fmt: skip
def moe_dp_equals_attn_cp(r: Resolution) -> Iterator[Hit]:
    """Expert replicas go with context-parallel ranks one to one.

    Why: each context rank brings its own tokens to its own copy of the experts.

    Fix: make both sizes equal, or drop `--moe-dp-size`.
    """
    copies = whole(r.moe_dp_size, 1)
    if r.attn_cp_size != copies and copies != 1:
        fixes = [drop("moe_dp_size")]
        if copies > 1:
            fixes.append(set_to("split attention into as many context ranks", attn_cp_size=copies))
        yield hit(f"--moe-dp-size {copies} with --attn-cp-size {r.attn_cp_size}", *fixes)


AFTER_GROUP_SHARING: tuple[Part, ...] = (
    prefill_cp_needs_strategy,
    attn_cp_divides_tp,
    aiter_fusion_without_cp,
    moe_dp_fits,
    moe_dp_equals_attn_cp,
)
"""The rest of `handle_context_parallelism`."""

HANDLE_CONTEXT_PARALLELISM: tuple[Part, ...] = (
    *BEFORE_GROUP_SHARING,
    *RESOLVE_CP_TP_GROUP_SHARING,
    *AFTER_GROUP_SHARING,
)
