"""DSPARK drafts (`srt/arg_groups/speculative_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.speculative_dflash import one_linear_step, running_requests_default
from kvtui.core.steps.speculative_drafts import (
    UnreadableDraft,
    bundles_dspark,
    draft_config,
    dspark_gamma,
)

DSPARK_GAMMA = 7


DSPARK_EXCHANGES = ("none", "megamoe", "mori")


@rule(
    "KV823", stage=Stage.RESOLVE, option="speculative_algorithm",
    source="arg_groups/speculative_hook.py:650",
    example=Example("--tp-size 2 --attn-dp-size 2 --speculative-algorithm DSPARK "
                    "--speculative-draft-model-path Qwen/Qwen3-0.6B"),
    fragments=("DSpark with dp attention", "DSpark ignores --speculative-moe-a2a-backend",
               "DSpark DP MoE", "DSpark pipeline parallelism requires"),
)  # fmt: skip
def dspark_needs(r: Resolution) -> Iterator[Hit]:
    """DSPARK drafts beside the target, with its LM head and its expert exchange.

    Why: the draft reads the target's head in every attention-DP group and shares its MoE
    exchange; pipeline stages are relayed on prefill servers only.

    Fix: change what the line names.
    """
    if r.speculative_algorithm != "DSPARK":
        return
    device, a2a = str(r.device), r.moe_a2a_backend
    npu = device.startswith("npu")
    dp = whole(r.attn_dp_size, 1) > 1
    uneven = r.env.get("SGLANG_RAGGED_VERIFY_MODE", "static") != "static"
    coordinated = r.env_flag("SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION")
    own = r.speculative_moe_a2a_backend
    for broken, found, fix in (
        (not device.startswith(("cuda", "npu", "xpu")), f"it does not run on {device}",
         drop("speculative_algorithm")),
        (dp and not r.enable_dp_lm_head, "attention DP without --enable-dp-lm-head",
         set_to("keep the LM head whole in each group", enable_dp_lm_head=True)),
        (dp and not npu and a2a not in DSPARK_EXCHANGES,
         f"attention DP with --moe-a2a-backend {a2a}", drop("moe_a2a_backend")),
        (dp and not npu and uneven and (a2a != "none" or coordinated),
         "attention DP needs SGLANG_RAGGED_VERIFY_MODE=static", drop("speculative_algorithm")),
        (dp and whole(r.attn_cp_size) > 1, f"attention DP with --attn-cp-size {r.attn_cp_size}",
         drop("attn_cp_size")),
        (dp and not npu and own is not None and own != a2a,
         f"--speculative-moe-a2a-backend {own} differs from the target's {a2a}",
         drop("speculative_moe_a2a_backend")),
        (r.pp_size != 1 and r.disaggregation_mode != "prefill",
         f"--pp-size {r.pp_size} outside a prefill server", set_to("use one stage", pp_size=1)),
    ):  # fmt: skip
        if broken:
            yield hit(f"--speculative-algorithm DSPARK: {found}", fix)


def _bundled_folder(r: Resolution) -> bool:
    return "dspark/config.json" in r.model.checkpoint.files


@step("arg_groups/speculative_hook.py:716")
def dspark_draft(r: Resolution) -> None:
    """A draft inside the target's checkpoint needs no path."""
    if r.speculative_algorithm != "DSPARK" or r.speculative_draft_model_path is not None:
        return
    if bundles_dspark(r.model.hf_config):
        r.default(
            "the target's checkpoint holds the draft",
            speculative_draft_model_path=r.model_path,
            speculative_draft_model_revision=r.revision,
        )
    elif _bundled_folder(r):
        r.default(
            "the target's folder holds the draft",
            speculative_draft_model_path=f"{r.model_path}/dspark",
        )


@rule(
    "KV824", stage=Stage.RESOLVE, option="speculative_draft_model_path",
    source="arg_groups/speculative_hook.py:749",
    example=Example("--speculative-algorithm DSPARK"),
    fragments=("DSpark dense speculative decoding requires",),
)  # fmt: skip
def dspark_needs_draft(r: Resolution) -> Iterator[Hit]:
    """DSPARK needs a draft checkpoint.

    Why: this target's checkpoint carries none, neither marked in config.json nor in a `dspark`
    folder.

    Fix: give `--speculative-draft-model-path`.
    """
    if r.speculative_algorithm == "DSPARK" and r.speculative_draft_model_path is None:
        yield hit("--speculative-draft-model-path is not set", drop("speculative_algorithm"))


def _gamma(r: Resolution) -> int | None:
    block = r.speculative_dspark_block_size
    if block is not None:
        return whole(block)
    gamma = None
    if r.speculative_draft_model_path is not None:
        try:
            gamma = dspark_gamma(draft_config(r))
        except UnreadableDraft:
            gamma = None
    if gamma is None and r.raw.speculative_num_draft_tokens is None:
        return DSPARK_GAMMA
    return gamma


@rule(
    "KV825", stage=Stage.RESOLVE, option="speculative_num_draft_tokens",
    source="arg_groups/speculative_hook.py:815",
    example=Example("--speculative-algorithm DSPARK --speculative-dspark-block-size 8 "
                    "--speculative-num-draft-tokens 4 "
                    "--speculative-draft-model-path Qwen/Qwen3-0.6B"),
    fragments=("DSpark speculative_num_draft_tokens must", "DSpark requires --speculative-dspark"),
)  # fmt: skip
def dspark_width_is_gamma_plus_one(r: Resolution) -> Iterator[Hit]:
    """DSPARK verifies its block and the anchor token before it.

    Why: a block of gamma drafted tokens makes a verify window of gamma + 1.

    Fix: give the block size alone.
    """
    if r.speculative_algorithm != "DSPARK":
        return
    block, tokens = r.speculative_dspark_block_size, r.raw.speculative_num_draft_tokens
    if block is not None and whole(block) <= 0:
        yield hit(
            f"--speculative-dspark-block-size is {block}", drop("speculative_dspark_block_size")
        )
        return
    gamma = _gamma(r)
    if tokens is not None and gamma is not None and tokens != gamma + 1:
        yield hit(
            f"--speculative-num-draft-tokens {tokens} with a block of {gamma}; it must be "
            f"{gamma + 1}",
            drop("speculative_num_draft_tokens"),
        )
    elif tokens is not None and whole(tokens) < 2:
        yield hit(
            f"--speculative-num-draft-tokens is {tokens}; it must be at least 2",
            drop("speculative_num_draft_tokens"),
        )


@step("arg_groups/speculative_hook.py:757")
def dspark_values(r: Resolution) -> None:
    """DSPARK verifies gamma + 1 tokens in one linear step."""
    if r.speculative_algorithm != "DSPARK":
        return
    one_linear_step(r)
    gamma = _gamma(r)
    if gamma is not None:
        r.default(
            "a block and its anchor are verified at once", speculative_num_draft_tokens=gamma + 1
        )
    running_requests_default(r)


HANDLE_DSPARK: tuple[Part, ...] = (
    dspark_needs,
    dspark_draft,
    dspark_needs_draft,
    dspark_width_is_gamma_plus_one,
    dspark_values,
)
