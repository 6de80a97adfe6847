"""Token budgets of expert exchanges (`moe_hook.py` and `mega_moe_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import (
    attn_dp_enabled,
    from_instance,
    max_draft_tokens,
    max_prefill_buffer_tokens,
    whole,
)
from kvtui.core.findings import Stage, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.moe_a2a_common import set_env

FLASHINFER_MIN_TOKENS = 4096
"""Workspace of the FlashInfer exchange where nothing sets it (overrides.py, last lines)."""

FLASHINFER_BUDGET = "SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
MEGA_BUDGET = "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK"
DEEPEP_V2_BUDGET = "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
FLYDSL_DECODE = "SGLANG_AMD_FLYDSL_MEGA_MOE_DECODE_MTPR"

NO_FALLBACK = frozenset(
    {
        "DeepseekV4ForCausalLM",
        "InternS2PreviewForConditionalGeneration",
        "MellumForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
"""Architectures whose experts have no other path under MegaMoE (mega_moe_hook.py:52)."""


def _decode_graph(r: Resolution) -> tuple[int, int]:
    """(requests, tokens of each) in the largest decode graph of one DP rank."""
    decode = r.cuda_graph_config.decode
    if r.disaggregation_mode == "prefill" or not decode.enabled:
        return 0, 1
    requests = decode.max_bs or 0
    if r.max_running_requests is not None:
        requests = min(requests, max(1, r.max_running_requests // max(1, r.attn_dp_size)))
    return requests, max_draft_tokens(r) or 1


@rule(
    "KV1020", stage=Stage.RESOLVE, option="chunked_prefill_size",
    source="arg_groups/moe_hook.py:744",
    example=Example(
        "--tp-size 8 --attn-dp-size 8 --moe-a2a-backend flashinfer --moe-runner-backend deep_gemm "
        "--chunked-prefill-size -1", model="deepseek-ai/DeepSeek-V3",
    ),
    fragments=("FlashInfer MoE A2A requires chunked prefill", "exceeds its workspace"),
)  # fmt: skip
def flashinfer_workspace(r: Resolution) -> Iterator[Hit]:
    """The FlashInfer exchange dispatches a bounded number of tokens.

    Why: its workspace is allocated once; a larger prefill, prefill graph or verify batch would
    run past it on the first such step.

    Fix: keep chunked prefill on, and leave the workspace variable unset.
    """
    if r.moe_a2a_backend != "flashinfer":
        return
    prefills = r.disaggregation_mode != "decode"
    if prefills and whole(r.chunked_prefill_size) <= 0:
        yield hit(
            f"--moe-a2a-backend flashinfer with --chunked-prefill-size {r.chunked_prefill_size}",
            set_to("prefill in chunks of 8192 tokens", chunked_prefill_size=8192),
        )
        return
    chunk = max_prefill_buffer_tokens(r)
    requests, width = _decode_graph(r)
    needed = requests * width
    if prefills:
        prefill = r.cuda_graph_config.prefill
        needed = max(needed, chunk, (prefill.max_bs or 0) if prefill.enabled else 0)
    held = r.env_int(FLASHINFER_BUDGET, max(chunk, FLASHINFER_MIN_TOKENS))
    if needed > held:
        yield hit(
            f"the FlashInfer exchange holds {held} tokens a rank, the largest step has {needed}",
            set_env(f"set {FLASHINFER_BUDGET} to {needed}", FLASHINFER_BUDGET, needed),
        )


VALIDATE_FLASHINFER_A2A_TOKEN_BUDGET: tuple[Part, ...] = (flashinfer_workspace,)


def _needs_mega_budget(r: Resolution) -> bool:
    if r.moe_a2a_backend != "megamoe" or r.encoder_only or from_instance(r):
        return False
    fp4 = r.quantization in ("modelopt_fp4", "minimax_m3_nvfp4")
    fp4 = fp4 or "FP4" in str(r.model.hf_quant_config.get("quant_algo", ""))
    return fp4 or r.model.arch in NO_FALLBACK


def _mega_decode_tokens(r: Resolution) -> int:
    groups = max(1, r.attn_dp_size)
    requests = r.cuda_graph_config.decode.max_bs or 0
    if r.max_running_requests is not None:
        step = max(1, r.tp_size // groups)
        requests = min(requests, -(-(r.max_running_requests // groups) // step) * step)
    width = (r.speculative_num_draft_tokens or 1) if r.speculative_algorithm else 1
    return int(requests * width)


def _mega_prefill_tokens(r: Resolution) -> int:
    chunk = whole(r.chunked_prefill_size)
    context, groups = max(1, r.attn_cp_size), max(1, r.attn_dp_size)
    if r.enable_prefill_cp:
        return int(-(-chunk // context))
    parts = groups if attn_dp_enabled(r) else 1
    align = max(1, r.tp_size // parts // context)
    return int(-(-(chunk // parts) // align) * align)


@rule(
    "KV1021", stage=Stage.RESOLVE, option="chunked_prefill_size",
    source="arg_groups/mega_moe_hook.py:157",
    example=Example(
        "--tp-size 8 --moe-a2a-backend megamoe --chunked-prefill-size 16384",
        model="Qwen/Qwen3-30B-A3B-FP8",
    ),
    fragments=(MEGA_BUDGET, "with MegaMoE requires"),
)  # fmt: skip
def mega_moe_buffer(r: Resolution) -> Iterator[Hit]:
    """MegaMoE's symmetric buffer has to hold the largest step of one rank.

    Why: these experts have no other path, so a step that does not fit can't be run.

    Fix: raise the variable to the number named, or prefill in smaller chunks.
    """
    if not _needs_mega_budget(r) or r.platform.is_hip:
        return
    held = r.env_int(MEGA_BUDGET, 8192)
    decode = _mega_decode_tokens(r) if r.disaggregation_mode != "prefill" else 0
    if held < decode:
        yield hit(
            f"MegaMoE holds {held} tokens a rank, the largest decode step has {decode}",
            set_env(f"set {MEGA_BUDGET} to {decode}", MEGA_BUDGET, decode),
        )
    growing = whole(r.pp_size, 1) > 1 and r.enable_dynamic_chunking
    if r.disaggregation_mode == "decode" or growing:
        return
    if whole(r.chunked_prefill_size) <= 0:
        yield hit(
            f"MegaMoE with --chunked-prefill-size {r.chunked_prefill_size} has no bound on a step",
            set_to("prefill in chunks of 8192 tokens", chunked_prefill_size=8192),
        )
        return
    prefill = _mega_prefill_tokens(r)
    if prefill <= 0 or held < prefill:
        yield hit(
            f"MegaMoE holds {held} tokens a rank, a prefill chunk brings {prefill}",
            set_env(f"set {MEGA_BUDGET} to {max(prefill, decode)}", MEGA_BUDGET,
                    max(prefill, decode)),
            set_to(f"prefill in chunks of {held} tokens", chunked_prefill_size=held),
        )  # fmt: skip


@rule(
    "KV1022", stage=Stage.RESOLVE, option="max_running_requests",
    source="arg_groups/mega_moe_hook.py:124",
    example=Example(
        "--tp-size 8 --moe-a2a-backend megamoe", model="deepseek-ai/DeepSeek-V3", gpu="mi300x",
        env={"SGLANG_AMD_USE_FLYDSL_MEGA_MOE": "1", FLYDSL_DECODE: "64"},
    ),
    fragments=(FLYDSL_DECODE,),
)  # fmt: skip
def flydsl_decode_capacity(r: Resolution) -> Iterator[Hit]:
    """AMD's MegaMoE can keep a smaller buffer for decode steps that fit it.

    Why: requests of a rank times tokens of each must not pass the decode capacity, and it does
    not serve context-parallel attention.

    Fix: set the capacity to 0 (one buffer), or bound `--max-running-requests`.
    """
    held = r.env_int(FLYDSL_DECODE, 0)
    if (
        r.moe_a2a_backend != "megamoe"
        or r.encoder_only
        or not 0 < held < r.env_int("SGLANG_AMD_FLYDSL_MEGA_MOE_MTPR", 8192)
        or not (r.platform.is_hip and r.env_flag("SGLANG_AMD_USE_FLYDSL_MEGA_MOE"))
        or r.disaggregation_mode == "prefill"
    ):
        return
    off = set_env("use one buffer for all steps", FLYDSL_DECODE, 0)
    if r.attn_cp_size > 1:
        yield hit(f"{FLYDSL_DECODE} with --attn-cp-size {r.attn_cp_size}", off)
        return
    requests = r.max_running_requests
    if requests is None:
        yield hit(f"{FLYDSL_DECODE} without --max-running-requests", off)
        return
    if attn_dp_enabled(r):
        requests //= max(1, r.attn_dp_size)
    if r.speculative_algorithm:
        requests *= max(r.speculative_num_draft_tokens or 1, r.speculative_eagle_topk or 1)
    if requests > held:
        yield hit(f"{FLYDSL_DECODE} is {held}, a decode step has up to {requests} tokens", off)


VALIDATE_MEGA_MOE_TOKEN_BUDGET_FOR_MODEL: tuple[Part, ...] = (
    flydsl_decode_capacity,
    mega_moe_buffer,
)


@rule(
    "KV1023", stage=Stage.RESOLVE, option="speculative_moe_a2a_backend",
    source="arg_groups/moe_hook.py:607",
    example=Example(
        "--tp-size 8 --speculative-algorithm EAGLE --speculative-moe-a2a-backend deepep_v2",
        model="deepseek-ai/DeepSeek-V3",
    ),
    fragments=("DeepEP v2 MoE is not validated as a speculative draft backend",),
)  # fmt: skip
def deepep_v2_not_for_drafts(r: Resolution) -> Iterator[Hit]:
    """Draft models do not run on DeepEP v2.

    Why: it was not validated there, and a draft inherits the target's exchange.

    Fix: name another exchange for the draft.
    """
    exchange = r.speculative_moe_a2a_backend
    if exchange is None and r.speculative_algorithm not in (None, "NGRAM"):
        exchange = r.moe_a2a_backend
    if exchange == "deepep_v2":
        yield hit(
            "the draft model would exchange tokens by deepep_v2",
            set_to("let the draft exchange the plain way", speculative_moe_a2a_backend="none"),
        )


VALIDATE_DEEPEP_V2_SPECULATIVE_DRAFT: tuple[Part, ...] = (deepep_v2_not_for_drafts,)


@rule(
    "KV1024", stage=Stage.RESOLVE, option="chunked_prefill_size",
    source="arg_groups/moe_hook.py:667",
    example=Example("--tp-size 8 --moe-a2a-backend deepep_v2", model="deepseek-ai/DeepSeek-V3"),
    fragments=("DeepEP v2 per-rank prefill budget", "DeepEP v2 per-rank decode CUDA graph"),
)  # fmt: skip
def deepep_v2_buffer(r: Resolution) -> Iterator[Hit]:
    """DeepEP v2's buffer has to hold the largest step of one rank.

    Why: it is allocated once, for 128 tokens a rank unless the variable says more.

    Fix: raise the variable to the number named, or prefill in smaller chunks.
    """
    if r.moe_a2a_backend != "deepep_v2":
        return
    held = r.env_int(DEEPEP_V2_BUDGET, 128)
    requests, width = _decode_graph(r)
    needed = requests * width
    what = f"a decode graph of {requests} requests"
    if r.disaggregation_mode != "decode":
        ceiling = max_prefill_buffer_tokens(r) or whole(r.max_prefill_tokens)
        share = -(-ceiling // max(1, r.tp_size // max(1, r.attn_dp_size)))
        if share > needed:
            needed, what = share, f"a prefill of {ceiling} tokens"
    if needed > held:
        yield hit(
            f"DeepEP v2 holds {held} tokens a rank, {what} brings {needed}",
            set_env(f"set {DEEPEP_V2_BUDGET} to {needed}", DEEPEP_V2_BUDGET, needed),
        )


VALIDATE_DEEPEP_V2_DISPATCH_TOKEN_BUDGET: tuple[Part, ...] = (deepep_v2_buffer,)
