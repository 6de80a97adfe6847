"""CP-TP group sharing: prefill context parallelism over the tensor-parallel group.

Mirrors `srt/arg_groups/cp_tp_group_sharing_hook.py` (0.5.23), which context parallelism calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvtui.core.derived import architecture
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.graphs import DISABLED, PREFILL, GraphConfig
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import above_one, spec_name

HOOK = "arg_groups/cp_tp_group_sharing_hook.py"
GLM = "Glm5NextForConditionalGeneration"
QWEN = "Qwen4ExpForConditionalGeneration"
STRATEGY = {GLM: "interleave", QWEN: "zigzag"}
"""Models that share the group, and how they split prompts. Source: hook:22 and 42."""
SHARED = "--tp-size 8 --enable-prefill-cp --attn-cp-size 8 --json-model-override-args "
QWEN_LAUNCH = f'{SHARED} \'{{"architectures": ["{QWEN}"]}}\' --cp-strategy zigzag'
"""A launch of the second model, written over a model of the catalogue."""
HYBRID = "Qwen/Qwen3.5-27B"
CP_OFF = drop("enable_prefill_cp", "attn_cp_size", "cp_strategy",
              title="drop prefill context parallelism")  # fmt: skip


def shares_group(r: Resolution) -> bool:
    """True where the model runs context parallelism over the tensor-parallel group."""
    if not r.enable_prefill_cp or not above_one(r.attn_cp_size):
        return False
    return architecture(r) in STRATEGY


@rule(
    "KV390",
    stage=Stage.RESOLVE,
    option="attn_cp_size",
    source=f"{HOOK}:36",
    example=Example(QWEN_LAUNCH.replace("--attn-cp-size 8", "--attn-cp-size 4"), model=HYBRID),
    fragments=("CP-TP group sharing requires",),
)
def shared_group_width(r: Resolution) -> Iterator[Hit]:
    """A shared group is as wide as both parallelisms and split the model's own way.

    Why: attention is split over the same ranks as experts and linear attention.
    Fix: --attn-cp-size equal to --tp-size, and the model's --cp-strategy.
    """
    if not shares_group(r):
        return
    if r.attn_cp_size != r.tp_size:
        yield hit(
            f"--attn-cp-size {r.attn_cp_size} differs from --tp-size {r.tp_size}",
            set_to("use all ranks", attn_cp_size=r.tp_size),
            CP_OFF,
        )
    strategy = STRATEGY[architecture(r)]
    if r.cp_strategy != strategy:
        yield hit(
            f"--cp-strategy is {r.cp_strategy}; this model splits prompts by {strategy}",
            set_to(f"split by {strategy}", cp_strategy=strategy),
            CP_OFF,
            option="cp_strategy",
        )


def _speculates_as_ported(r: Resolution) -> bool:
    if architecture(r) != GLM:
        return False
    native = (
        spec_name(r) in ("EAGLE", "NEXTN")
        and r.speculative_draft_model_path in (None, r.model_path)
        and r.speculative_eagle_topk in (None, 1)
    )
    return bool(r.speculative_algorithm == "DFLASH" or native)


@rule(
    "KV391",
    stage=Stage.RESOLVE,
    option="speculative_algorithm",
    source=f"{HOOK}:56",
    example=Example(f"{QWEN_LAUNCH} --speculative-algorithm NGRAM", model=HYBRID),
    fragments=(
        "--speculative-algorithm is not supported with CP-TP",
        "CP/TP group sharing only supports DFLASH",
    ),
)
def shared_group_speculation(r: Resolution) -> Iterator[Hit]:
    """A shared group speculates on GLM only: DFLASH, or its own layer with top-k 1.

    Why: no other draft is ported to ranks that hold parts of a prompt.
    Fix: drop speculative decoding.
    """
    if not shares_group(r) or r.speculative_algorithm is None:
        return
    if not _speculates_as_ported(r):
        yield hit(
            f"{r.speculative_algorithm} is not ported to a shared group",
            drop("speculative_algorithm"),
            CP_OFF,
        )


Limit = tuple[Callable[[Resolution], bool], str]

COMMON: tuple[Limit, ...] = (
    (lambda r: bool(r.enable_dsa_cache_layer_split), "enable_dsa_cache_layer_split"),
    (lambda r: above_one(r.dcp_size), "dcp_size"),
    (lambda r: bool(r.enable_mixed_chunk), "enable_mixed_chunk"),
    (lambda r: above_one(r.moe_dp_size), "moe_dp_size"),
)
QWEN_LIMITS: tuple[Limit, ...] = (
    (lambda r: above_one(r.ep_size), "ep_size"),
    (lambda r: r.moe_a2a_backend != "none", "moe_a2a_backend"),
    (lambda r: bool(r.enable_waterfill), "enable_waterfill"),
    (lambda r: above_one(r.pp_size), "pp_size"),
    (lambda r: r.disaggregation_mode == "decode", "disaggregation_mode"),
)
GLM_PAIR_LIMITS: tuple[Limit, ...] = (
    (lambda r: r.disaggregation_mode == "decode", "disaggregation_mode"),
    (lambda r: r.disaggregation_transfer_backend != "mooncake",
     "disaggregation_transfer_backend"),
    (lambda r: r.speculative_algorithm != "DFLASH", "speculative_algorithm"),
    (lambda r: above_one(r.pp_size), "pp_size"),
    (lambda r: above_one(r.dp_size), "dp_size"),
    (lambda r: above_one(r.ep_size), "ep_size"),
)  # fmt: skip
"""What a shared group excludes, by model. Source: hook:71-102."""


def _limits(r: Resolution) -> tuple[Limit, ...]:
    if architecture(r) == QWEN:
        return (*COMMON, *QWEN_LIMITS)
    return COMMON if r.disaggregation_mode == "null" else (*COMMON, *GLM_PAIR_LIMITS)


@rule(
    "KV392",
    stage=Stage.RESOLVE,
    option="enable_prefill_cp",
    source=f"{HOOK}:105",
    example=Example(f"{QWEN_LAUNCH} --enable-mixed-chunk", model=HYBRID),
    fragments=("is not supported with CP-TP group sharing",),
)
def shared_group_limits(r: Resolution) -> Iterator[Hit]:
    """A shared group excludes other ways to split the model.

    Why: ranks hold parts of a prompt and parts of the experts at once.
    Fix: drop the named option.
    """
    if not shares_group(r):
        return
    for applies, option in _limits(r):
        if applies(r):
            fix = set_to("speculate with DFLASH", speculative_algorithm="DFLASH")
            if option != "speculative_algorithm":
                fix = drop(option)
            flag = option.replace("_", "-")
            yield hit(
                f"--{flag} {getattr(r, option)} does not go with a shared group",
                fix,
                CP_OFF,
                option=option,
            )
    if r.disaggregation_mode == "prefill" and r.env_flag("SGLANG_DISAGG_STAGING_BUFFER"):
        unset = set_to(
            "unset SGLANG_DISAGG_STAGING_BUFFER", **{"env:SGLANG_DISAGG_STAGING_BUFFER": None}
        )
        yield hit("staging buffers are laid out by tensor-parallel ranks", unset, CP_OFF)


@rule(
    "KV393",
    stage=Stage.RESOLVE,
    option="tp_size",
    source=f"{HOOK}:123",
    example=Example(QWEN_LAUNCH.replace(" 8", " 32"), model=HYBRID),
    fragments=("must be divisible by --tp-size",),
)
def shared_group_heads(r: Resolution) -> Iterator[Hit]:
    """Linear-attention heads divide over the shared group.

    Why: linear attention keeps its heads split over all tensor-parallel ranks.
    Fix: a --tp-size that divides the heads.
    """
    state = r.model.mambaish if shares_group(r) else None
    odd = state.indivisible(r.tp_size) if state is not None and r.tp_size else None
    if odd is not None:
        yield hit(f"{odd[1]} {odd[0]} don't divide over {r.tp_size} ranks", CP_OFF)


@step(f"{HOOK}:128")
def share_group(r: Resolution) -> None:
    """Mark the group as shared; Qwen then captures no prefill."""
    if not shares_group(r):
        return
    r.default(
        "the model runs context parallelism over the tensor-parallel group",
        enable_cp_tp_group_sharing=True,
    )
    config = r.cuda_graph_config
    if architecture(r) == QWEN and isinstance(config, GraphConfig):
        r.declare(
            "sequence exchanges of a shared group change with the batch",
            cuda_graph_config=config.with_phase(PREFILL, backend=DISABLED),
        )


RESOLVE_CP_TP_GROUP_SHARING: tuple[Part, ...] = (
    shared_group_width,
    shared_group_speculation,
    shared_group_limits,
    shared_group_heads,
    share_group,
)
"""Spliced into context parallelism, after the checks of the single models."""
