"""DFLASH and DSPARK (`srt/arg_groups/speculative_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.speculative_drafts import (
    UnreadableDraft,
    bundles_dspark,
    dflash_block_size,
    draft_config,
    draft_is_causal_or_sliding,
    dspark_gamma,
)

RUNNING_REQUESTS = 48
"""Requests that speculation admits where nothing is set."""
DFLASH_TOKENS = 16
DSPARK_GAMMA = 7
DRAFT_BACKENDS = (
    "flashinfer", "fa3", "fa4", "triton", "ascend", "trtllm_mha", "intel_xpu",
)  # fmt: skip
"""Attention back ends of DFLASH drafts (choices.py, DRAFT_ATTENTION_BACKEND_CHOICES)."""
DSPARK_EXCHANGES = ("none", "megamoe", "mori")

BLOCK_DRAFTS = ("DFLASH", "DSPARK")


def running_requests_default(r: Resolution) -> None:
    """Speculation admits 48 requests unless the user says otherwise."""
    if r.max_running_requests is None:
        r.default("speculative decoding admits 48 requests", max_running_requests=RUNNING_REQUESTS)


def one_linear_step(r: Resolution) -> None:
    """Block drafts make one linear step; other values would only size buffers wrongly."""
    why = f"{r.speculative_algorithm} drafts one linear block"
    r.declare(why, speculative_num_steps=1, speculative_eagle_topk=1)


@rule(
    "KV820", stage=Stage.RESOLVE, option="speculative_algorithm",
    source="arg_groups/speculative_hook.py:283",
    example=Example("--tp-size 2 --attn-dp-size 2 --speculative-algorithm DFLASH "
                    "--speculative-draft-model-path Qwen/Qwen3-0.6B"),
    fragments=("DFLASH with dp attention", "DFLASH speculative decoding is not supported",
               "DFLASH speculative decoding requires",
               "Currently DFLASH speculative decoding only supports"),
)  # fmt: skip
def dflash_needs(r: Resolution) -> Iterator[Hit]:
    """DFLASH drafts from one pipeline stage, with the LM head kept whole under attention DP.

    Why: the draft borrows the target's head and the hidden states of all target layers.

    Fix: change what the line names.
    """
    if r.speculative_algorithm != "DFLASH":
        return
    device = str(r.device)
    dp = attn_dp_enabled(r) and device != "npu"
    coordinated = r.env_flag("SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION")
    for broken, found, fix in (
        (not device.startswith(("cuda", "npu", "xpu")), f"it does not run on {device}",
         drop("speculative_algorithm")),
        (dp and not r.enable_dp_lm_head, "attention DP without --enable-dp-lm-head",
         set_to("keep the LM head whole in each group", enable_dp_lm_head=True)),
        (dp and r.attn_cp_size != 1, f"attention DP with --attn-cp-size {r.attn_cp_size}",
         drop("attn_cp_size")),
        (dp and coordinated, "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION is set",
         drop("speculative_algorithm")),
        (r.pp_size != 1, f"--pp-size is {r.pp_size}", set_to("use one stage", pp_size=1)),
        (r.speculative_draft_model_path is None, "--speculative-draft-model-path is not set",
         drop("speculative_algorithm")),
    ):  # fmt: skip
        if broken:
            yield hit(f"--speculative-algorithm DFLASH: {found}", fix)


@rule(
    "KV821", stage=Stage.RESOLVE, option="speculative_dflash_block_size",
    source="arg_groups/speculative_hook.py:366",
    example=Example("--speculative-algorithm DFLASH --speculative-dflash-block-size 8 "
                    "--speculative-num-draft-tokens 4 "
                    "--speculative-draft-model-path Qwen/Qwen3-0.6B"),
    fragments=("DFLASH requires --speculative-dflash-block-size", "For DFLASH they must match"),
)  # fmt: skip
def dflash_block_is_draft_width(r: Resolution) -> Iterator[Hit]:
    """A DFLASH block is what one step verifies.

    Why: both options name the same number of tokens.

    Fix: give one of them.
    """
    block = r.raw.speculative_dflash_block_size
    if r.speculative_algorithm != "DFLASH" or block is None:
        return
    tokens = r.raw.speculative_num_draft_tokens
    if whole(block) <= 0:
        yield hit(
            f"--speculative-dflash-block-size is {block}", drop("speculative_dflash_block_size")
        )
    elif tokens is not None and tokens != block:
        yield hit(
            f"--speculative-dflash-block-size {block} with --speculative-num-draft-tokens {tokens}",
            drop("speculative_num_draft_tokens"),
        )


@step("arg_groups/speculative_hook.py:325")
def dflash_values(r: Resolution) -> None:
    """DFLASH verifies one block: the option's, the draft's, or 16 tokens."""
    if r.speculative_algorithm != "DFLASH":
        return
    one_linear_step(r)
    if r.speculative_dflash_block_size is not None:
        r.default(
            "a block is verified at once",
            speculative_num_draft_tokens=r.speculative_dflash_block_size,
        )
    elif r.speculative_num_draft_tokens is None:
        block = None
        if r.speculative_draft_model_path is not None:
            try:
                block = dflash_block_size(draft_config(r))
            except UnreadableDraft:
                block = None
        r.default("the draft's block size", speculative_num_draft_tokens=block or DFLASH_TOKENS)
    running_requests_default(r)


@rule(
    "KV822", stage=Stage.RESOLVE, option="speculative_draft_window_size",
    source="arg_groups/speculative_hook.py:426",
    example=Example("--speculative-algorithm DFLASH --speculative-draft-window-size 4 "
                    "--speculative-draft-model-path Qwen/Qwen3-0.6B"),
    fragments=("--speculative-draft-window-size must be >=",),
)  # fmt: skip
def draft_window_holds_block(r: Resolution) -> Iterator[Hit]:
    """The window of a DFLASH draft must hold one block.

    Why: the draft's cache keeps that many tokens, and it writes a block at a time.

    Fix: widen the window.
    """
    window, block = r.speculative_draft_window_size, whole(r.speculative_num_draft_tokens)
    if r.speculative_algorithm == "DFLASH" and window is not None and 0 < window < block:
        yield hit(
            f"--speculative-draft-window-size {window} is less than the block of {block} tokens",
            set_to(f"use a window of {block}", speculative_draft_window_size=block),
        )


@step("arg_groups/speculative_hook.py:862")
def dflash_draft_backend(r: Resolution) -> None:
    """The draft runs on the target's prefill back end where that serves drafts."""
    if r.speculative_algorithm != "DFLASH":
        return
    otherwise = "triton" if r.platform.is_hip or r.platform.is_xpu else "flashinfer"
    backend = r.speculative_draft_attention_backend or r.backends[0]
    why = "the draft follows the target"
    if backend is None or backend not in DRAFT_BACKENDS:
        why, backend = f"DFLASH drafts do not run on {backend}", otherwise
    elif (
        backend == "trtllm_mha"
        and r.speculative_draft_model_path is not None
        and not draft_is_causal_or_sliding(draft_config(r))
    ):
        why = "the draft attends both ways, which trtllm_mha does not"
        backend = "fa4" if r.platform.is_sm100 else otherwise
    r.declare(why, speculative_draft_attention_backend=backend)


HANDLE_DFLASH: tuple[Part, ...] = (
    dflash_needs,
    dflash_block_is_draft_width,
    dflash_values,
    draft_window_holds_block,
    dflash_draft_backend,
)


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
