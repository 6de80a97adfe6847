"""DFLASH and DSPARK (`srt/arg_groups/speculative_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.speculative_drafts import (
    UnreadableDraft,
    dflash_block_size,
    draft_config,
    draft_is_causal_or_sliding,
)

RUNNING_REQUESTS = 48
"""Requests that speculation admits where nothing is set."""
DFLASH_TOKENS = 16
DRAFT_BACKENDS = (
    "flashinfer", "fa3", "fa4", "triton", "ascend", "trtllm_mha", "intel_xpu",
)  # fmt: skip
"""Attention back ends of DFLASH drafts (choices.py, DRAFT_ATTENTION_BACKEND_CHOICES)."""


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
