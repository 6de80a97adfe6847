"""Collectives at layer boundaries and sequence-parallel norms.

Mirrors `srt/arg_groups/boundary_reduction.py` and `layernorm_sp_hook.py` of 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvtui.core.derived import architecture, attn_dp_enabled, is_dummy, whole
from kvtui.core.facts import MissingFact
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.graphs import BREAKABLE, DISABLED, PREFILL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.moe_a2a_common import MUSE_LAYOUTS

REDUCE_SCATTER_V = frozenset(
    {
        "BailingMoELinearForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "LongcatFlashForCausalLM",
        "LongcatFlashForCausalLMNextN",
        "Step3VLForConditionalGeneration",
    }
)
ALL_REDUCE = frozenset(
    {
        "KimiK3ForConditionalGeneration",
        "KimiK3LinearForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3ForSequenceClassification",
        "Qwen3Model",
        "Qwen3ForRewardModel",
        "MossVLForCausalLM",
        "MossVLForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "Qwen4ExpForCausalLMMTP",
    }
)
ALL_REDUCE_TYPES = ("qwen3", "qwen3_vl_text")
DEFAULT_REDUCTION = "rs+rsv"
NESTED = ("text_config", "llm_config", "language_config")

MUSE_SPARK = "MuseSparkForConditionalGeneration"
SEQUENCE_PARALLEL_NORM = ("MuseSparkForConditionalGeneration", "Qwen3ForCausalLM")
"""Architectures with sequence-sharded norms (layers/layernorm_sp.py:54)."""
MEGA_MOE_TOKENS = 8192
"""Default of SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK (environ.py:1470)."""


def reduction_of(config: Any) -> str:
    """The collective that a configuration's model prefers at layer boundaries."""
    names = set(config.get("architectures") or ())
    if names & REDUCE_SCATTER_V:
        return "rsv"
    if names & ALL_REDUCE:
        return "ar"
    if config.get("model_type") == "minicpmv" and str(config.get("version", "")) == "4.5":
        return "ar"
    if config.get("model_type") in ALL_REDUCE_TYPES:
        return "ar"
    for key in NESTED:
        nested = config.get(key)
        if nested is not None and hasattr(nested, "get"):
            return reduction_of(nested)
    return DEFAULT_REDUCTION


@step("arg_groups/boundary_reduction.py:57")
def resolve_boundary_reduction(r: Resolution) -> None:
    """`auto` becomes what the target's and the draft's layers prefer."""
    target = draft = r.boundary_reduction
    if target == "auto":
        target = draft = DEFAULT_REDUCTION if is_dummy(r) else reduction_of(r.model.hf_config)
        path = r.speculative_draft_model_path
        if not is_dummy(r) and r.speculative_algorithm and path and path != r.model_path:
            try:
                draft = reduction_of(r.facts.checkpoint(path).config)
            except MissingFact:
                draft = DEFAULT_REDUCTION
    r.default(
        "the model's layers prefer it",
        boundary_reduction=target,
        speculative_boundary_reduction=draft,
    )


RESOLVE_BOUNDARY_REDUCTION: tuple[Part, ...] = (resolve_boundary_reduction,)


def _muse_layout(r: Resolution) -> tuple[tuple[object, str], ...]:
    mega = r.enable_megamoe_for_layernorm_sp
    a2a = r.moe_a2a_backend
    return (
        ((r.tp_size, r.ep_size) not in MUSE_LAYOUTS,
         f"--tp-size {r.tp_size} with --ep-size {r.ep_size}; both must be 4 or both 8"),
        (r.quantization != "modelopt_fp4" and not (r.quantization is None and mega),
         f"--quantization is {r.quantization}; weights must be NVFP4"),
        (a2a not in ("none", "flashinfer") if mega else a2a != "flashinfer",
         f"--moe-a2a-backend is {a2a}"),
        (r.moe_runner_backend != "flashinfer_trtllm",
         f"--moe-runner-backend is {r.moe_runner_backend}; it must be flashinfer_trtllm"),
    )  # fmt: skip


@rule(
    "KV480", stage=Stage.RESOLVE, option="enable_layernorm_sp",
    source="arg_groups/layernorm_sp_hook.py:118", example=Example("--enable-layernorm-sp"),
    fragments=("--enable-layernorm-sp",),
)  # fmt: skip
def sequence_parallel_norm_needs(r: Resolution) -> Iterator[Hit]:
    """Sequence-parallel norms run on few models and without other splits of the sequence.

    Why: the sequence is sharded over the whole tensor-parallel group between layers, which
    attention DP, pipeline stages and most drafts would have to gather first.

    Fix: drop the flag.
    """
    if not r.enable_layernorm_sp:
        return
    name = architecture(r)
    muse = name == MUSE_SPARK
    draft = r.speculative_algorithm
    conditions: tuple[tuple[object, str], ...] = (
        (name not in SEQUENCE_PARALLEL_NORM, f"{name} has none"),
        (whole(r.tp_size, 1) <= 1, f"--tp-size is {r.tp_size}, there is nothing to shard"),
        *(_muse_layout(r) if muse else ()),
        (attn_dp_enabled(r), f"--attn-dp-size is {r.attn_dp_size}"),
        (draft is not None and not (muse and draft == "DFLASH"),
         f"--speculative-algorithm is {draft}"),
        (whole(r.pp_size, 1) > 1, f"--pp-size is {r.pp_size}"),
        (muse and not r.enable_megamoe_for_layernorm_sp
         and r.env_flag("SGLANG_MOE_NVFP4_DISPATCH"), "SGLANG_MOE_NVFP4_DISPATCH is set"),
    )  # fmt: skip
    fix = drop("enable_layernorm_sp", "enable_megamoe_for_layernorm_sp")
    for broken, found in conditions:
        if broken:
            yield hit(f"--enable-layernorm-sp: {found}", fix)


def _shortfall(r: Resolution) -> str | None:
    chunk = whole(r.chunked_prefill_size)
    budget = chunk if chunk > 0 else whole(r.max_prefill_tokens)
    capacity = r.env_int("SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK", MEGA_MOE_TOKENS)
    share = -(-budget // max(1, r.tp_size))
    if budget <= 0 or share > capacity:
        return f"{share} tokens a rank, the buffer holds {capacity}"
    prefill = r.cuda_graph_config.prefill
    if prefill.backend != BREAKABLE:
        return None
    if chunk <= 0:
        return f"breakable prefill graphs with --chunked-prefill-size {chunk}"
    if not prefill.bs or max(prefill.bs) < chunk:
        return f"the largest prefill graph is smaller than the chunk of {chunk} tokens"
    return None


@rule(
    "KV481", stage=Stage.RESOLVE, option="enable_megamoe_for_layernorm_sp",
    source="arg_groups/layernorm_sp_hook.py:29",
    example=Example("--enable-megamoe-for-layernorm-sp"),
    fragments=("--enable-megamoe-for-layernorm-sp", "Muse MegaMoE"),
)  # fmt: skip
def mega_moe_norm_needs(r: Resolution) -> Iterator[Hit]:
    """MegaMoE prefill for sequence-parallel norms is a Muse Spark option.

    Why: it shares one buffer between prefill shards, sized for one chunk, and mixed batches would
    go past it.

    Fix: drop the flag.
    """
    if not r.enable_megamoe_for_layernorm_sp:
        return
    fixes: tuple[Fix, ...] = (drop("enable_megamoe_for_layernorm_sp"),)
    if not r.enable_layernorm_sp:
        yield hit("--enable-megamoe-for-layernorm-sp without --enable-layernorm-sp", *fixes)
        return
    if architecture(r) != MUSE_SPARK:
        yield hit(f"--enable-megamoe-for-layernorm-sp on {architecture(r)}", *fixes)
        return
    if r.enable_mixed_chunk:
        yield hit("mixed chunks go past sequence-parallel prefill", drop("enable_mixed_chunk"))
    found = _shortfall(r)
    if found:
        lower = set_to("prefill in chunks of 8192 tokens", chunked_prefill_size=8192)
        yield hit(f"MegaMoE prefill: {found}", lower, *fixes)


@step("arg_groups/layernorm_sp_hook.py:76")
def mega_moe_norm_graphs(r: Resolution) -> None:
    """MegaMoE prefill is captured in breakable graphs or not at all."""
    if (
        r.enable_layernorm_sp
        and r.enable_megamoe_for_layernorm_sp
        and architecture(r) == MUSE_SPARK
        and r.cuda_graph_config.prefill.backend != BREAKABLE
    ):
        r.declare(
            "MegaMoE prefill captures breakable graphs only",
            cuda_graph_config=r.cuda_graph_config.with_phase(PREFILL, backend=DISABLED),
        )


HANDLE_LAYERNORM_SP: tuple[Part, ...] = (
    sequence_parallel_norm_needs,
    mega_moe_norm_needs,
    mega_moe_norm_graphs,
)
