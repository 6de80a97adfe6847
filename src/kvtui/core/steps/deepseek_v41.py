"""What DeepSeek V4.1 excludes, and its bounded replay of window layers.

Mirrors `validate_deepseek_v41_features` and its neighbours in
`srt/arg_groups/deepseek_v4_hook.py` (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, from_instance, whole
from kvtui.core.findings import Stage, drop
from kvtui.core.graphs import BREAKABLE, DISABLED
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.deepseek_v4 import HOOK, is_v41
from kvtui.core.steps.model_common import overriding

REPLAY_TOKENS = 128
"""Tokens of a window that a prefix hit runs again."""

ENCODER_REPLAY = "enable_encoder_swa_bounded_replay"
DECODER_REPLAY = "enable_decoder_swa_bounded_replay"


def _captures_otherwise(r: Resolution) -> bool:
    return r.cuda_graph_config.prefill.backend not in (DISABLED, BREAKABLE)


def _static_verify(r: Resolution) -> bool:
    return bool(r.env.get("SGLANG_RAGGED_VERIFY_MODE", "static") == "static")


@rule(
    "KV147",
    stage=Stage.RESOLVE,
    option=None,
    source=f"{HOOK}:341",
    example=Example(
        overriding(model_type="deepseek_v41") + " --tp-size 8 --enable-two-batch-overlap",
        model="deepseek-ai/DeepSeek-V4-Flash",
        gpu="h200",
    ),
    fragments=("DeepSeek-V4.1 does not support", "DeepSeek-V4.1 TRT-LLM requires"),
)
def v41_excludes(r: Resolution) -> Iterator[Hit]:
    """DeepSeek V4.1 goes without some features.

    Why: its shared KV sources and replayed windows are not wired for other speculation than
    DSpark, HiSparse, the unified KV layout, two-batch overlap and pipeline stages.

    Fix: drop the option that is named.
    """
    if not is_v41(r):
        return
    trtllm = r.dsv4_attn_backend == "trtllm"
    algorithm = r.speculative_algorithm
    parts = {
        "speculative_algorithm": algorithm is not None and str(algorithm).upper() != "DSPARK",
        "enable_hisparse": r.enable_hisparse,
        "enable_two_batch_overlap": r.enable_two_batch_overlap,
        "pp_size": whole(r.pp_size, 1) > 1,
        ENCODER_REPLAY: trtllm and r.enable_encoder_swa_bounded_replay,
        "cuda_graph_backend_prefill": trtllm and _captures_otherwise(r),
    }
    for name, on in parts.items():
        if on:
            flag = "--" + name.replace("_", "-")
            yield hit(f"{flag} with DeepSeek V4.1", drop(name), option=name)


@rule(
    "KV148",
    stage=Stage.RESOLVE,
    option=ENCODER_REPLAY,
    source=f"{HOOK}:286",
    example=Example("--enable-encoder-swa-bounded-replay"),
    fragments=("enable-encoder-swa-bounded-replay",),
)
def encoder_replay_needs(r: Resolution) -> Iterator[Hit]:
    """Bounded replay in the encoder is for DeepSeek V4.1 with plain prefill.

    Why: a prefix hit runs the last window of 128 tokens again inside the next chunk, which only
    V4.1 on CUDA or gfx95 does, in eager or breakable prefill, with room for one more page.

    Fix: drop --enable-encoder-swa-bounded-replay.
    """
    if not r.enable_encoder_swa_bounded_replay or from_instance(r):
        return
    conflict = "the model is not DeepSeek V4.1" if not is_v41(r) else _replay_conflict(r)
    if conflict is not None:
        yield hit(f"--enable-encoder-swa-bounded-replay: {conflict}", drop(ENCODER_REPLAY))


def _replay_conflict(r: Resolution) -> str | None:
    hip = r.platform.is_hip
    least = REPLAY_TOKENS + whole(r.page_size, 1)
    parts = {
        "the GPU is neither NVIDIA's nor gfx95": not (r.platform.is_cuda or r.platform.is_gfx95),
        "prefill graphs are not breakable ones": _captures_otherwise(r)
        or (hip and r.cuda_graph_config.prefill.backend != DISABLED),
        "context parallelism is on": whole(r.attn_cp_size, 1) > 1,
        "attention data parallelism is on (ROCm)": hip and attn_dp_enabled(r),
        "unified memory is on": r.enable_unified_memory,
        "this is a decode server": r.disaggregation_mode == "decode",
        "this is a prefill server on ROCm": hip and r.disaggregation_mode == "prefill",
        "mixed chunks are on": r.enable_mixed_chunk,
        "LoRA is on": r.enable_lora,
        "radix sessions are on": r.enable_session_radix_cache,
        "--max-running-requests is not positive": whole(r.max_running_requests) <= 0,
        f"chunks are smaller than {least} tokens": whole(r.chunked_prefill_size) < least,
    }
    return next((text for text, on in parts.items() if on), None)


@rule(
    "KV149",
    stage=Stage.RESOLVE,
    option="disaggregation_mode",
    source=f"{HOOK}:359",
    example=Example(
        overriding(model_type="deepseek_v41") + " --tp-size 8 --speculative-algorithm DSPARK"
        " --disaggregation-mode prefill --disaggregation-transfer-backend mori",
        model="deepseek-ai/DeepSeek-V4-Flash",
        gpu="h200",
    ),
    fragments=("DeepSeek-V4.1 DSpark PD requires",),
)
def v41_dspark_under_pd(r: Resolution) -> Iterator[Hit]:
    """DSpark of DeepSeek V4.1 under disaggregation needs static verification.

    Why: both servers have to hold the same block of draft KV, sent by Mooncake or NIXL, with
    context parallelism on the prefill server alone.

    Fix: drop speculation, or meet the condition.
    """
    if not is_v41(r) or r.disaggregation_mode == "null" or r.speculative_algorithm is None:
        return
    prefill_cp = (
        r.disaggregation_mode == "prefill" and r.enable_prefill_cp and r.cp_strategy == "interleave"
    )
    some_cp = r.enable_prefill_cp or whole(r.attn_cp_size, 1) != 1
    wrong = (
        not _static_verify(r)
        or r.disaggregation_transfer_backend not in ("mooncake", "nixl")
        or (some_cp and not prefill_cp)
        or whole(r.dcp_size, 1) != 1
    )
    if wrong:
        yield hit(
            f"DSpark with --disaggregation-mode {r.disaggregation_mode} over "
            f"{r.disaggregation_transfer_backend}",
            drop("speculative_algorithm"),
        )


def _odd_attention_dp(r: Resolution) -> bool:
    """Attention DP other than one rank a group with exchanges that bounded replay knows."""
    if not attn_dp_enabled(r):
        return False
    exchanges = ("none",) if r.platform.is_hip else ("none", "megamoe")
    whole_group = r.attn_dp_size == r.tp_size and r.attn_cp_size == 1
    return not (whole_group and r.moe_a2a_backend in exchanges)


@rule(
    "KV168",
    stage=Stage.RESOLVE,
    option=DECODER_REPLAY,
    source=f"{HOOK}:411",
    example=Example(
        overriding(model_type="deepseek_v41")
        + " --tp-size 8 --enable-decoder-swa-bounded-replay --attn-dp-size 2",
        model="deepseek-ai/DeepSeek-V4-Flash",
        gpu="h200",
    ),
    fragments=("--enable-decoder-swa-bounded-replay cannot be combined",),
)
def decoder_replay_needs(r: Resolution) -> Iterator[Hit]:
    """Bounded replay in the decoder needs plain prefill and plain attention groups.

    Why: ranks that replay have to enter the same steps as the others.

    Fix: drop --enable-decoder-swa-bounded-replay.
    """
    if not is_v41(r) or not r.enable_decoder_swa_bounded_replay:
        return
    if _captures_otherwise(r):
        yield hit("bounded replay with full prefill graphs", drop(DECODER_REPLAY))
    if _odd_attention_dp(r):
        yield hit("bounded replay with this attention data parallelism", drop(DECODER_REPLAY))


@step(f"{HOOK}:420")
def decoder_replay_default(r: Resolution) -> None:
    """Bounded replay in the decoder is on where nothing stands against it."""
    if not is_v41(r) or r.enable_decoder_swa_bounded_replay is not None:
        return
    cp = r.enable_prefill_cp or whole(r.attn_cp_size, 1) != 1 or whole(r.dcp_size, 1) != 1
    on = (
        (r.platform.is_cuda or (r.platform.is_hip and r.disaggregation_mode == "null"))
        and not cp
        and not r.enable_return_hidden_states
        and not _captures_otherwise(r)
        and not _odd_attention_dp(r)
    )
    r.default(
        "nothing stands against it" if on else "not with these options", **{DECODER_REPLAY: on}
    )


VALIDATE_DEEPSEEK_V41_FEATURES: tuple[Part, ...] = (
    v41_excludes,
    v41_dspark_under_pd,
    decoder_replay_needs,
    decoder_replay_default,
)
"""Runs before the context-parallel checks, as the engine has it."""

ENCODER_REPLAY_BUDGET: tuple[Part, ...] = (encoder_replay_needs,)
"""Runs with the capability adjustments, once chunks and pages are final."""
