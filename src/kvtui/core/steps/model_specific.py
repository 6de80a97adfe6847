"""Model-specific adjustments, assembled in the engine's order.

Mirrors `handle_model_specific_adjustments` of `srt/arg_groups/model_hook.py` (0.5.23): refusals
by architecture, the collected overrides, then each family's branch and its checks.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, attn_tp_size, from_instance, uses_mla, whole
from kvtui.core.findings import Stage, drop
from kvtui.core.graphs import DISABLED, PREFILL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.deepseek_v4 import APPLY_DEEPSEEK_V4_DEFAULTS, VALIDATE_DEEPSEEK_V4_CP
from kvtui.core.steps.deepseek_v41 import VALIDATE_DEEPSEEK_V41_FEATURES
from kvtui.core.steps.model_backend_rules import MODEL_BACKENDS
from kvtui.core.steps.model_common import (
    DEEPSEEK_FAMILY,
    arch,
    listed,
    overriding,
    quant_config,
    quant_method,
    settle,
    stays_unquantized,
)
from kvtui.core.steps.model_dsa import DSA_BRANCH, dsa_layer_split_needs
from kvtui.core.steps.model_fusion import ALLREDUCE_FUSION
from kvtui.core.steps.model_mamba_cache import (
    HANDLE_MAMBA_RADIX_CACHE,
    REGISTRY_ARCHS,
    mamba_radix_cache_resolution,
)
from kvtui.core.steps.model_override_base import by_architecture
from kvtui.core.steps.model_override_rules import MODEL_OVERRIDE_RULES, hip_draft_experts
from kvtui.core.steps.model_overrides_attention import ATTENTION_OVERRIDES
from kvtui.core.steps.model_overrides_families import FAMILY_OVERRIDES
from kvtui.core.steps.model_overrides_moe import MOE_OVERRIDES, auto_runner, no_exchange

HOOK = "arg_groups/model_hook.py"
OVERRIDES = by_architecture(ATTENTION_OVERRIDES, MOE_OVERRIDES, FAMILY_OVERRIDES)
CP_DECODE_ATTN_TP = (
    "DeepseekV4ForCausalLM",
    "DeepseekV4ForCausalLMNextN",
    "DeepseekV4ForCausalLMDSpark",
    "GlmMoeDsaForCausalLM",
    "GlmMoeDsaForCausalLMNextN",
)
"""Models whose attention weights are whole on every context-parallel rank."""
KIMI = ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration")


@step(f"{HOOK}:146")
def before_overrides(r: Resolution) -> None:
    """Deterministic serving fuses no all-reduce; recurrent prefix caches start switched off."""
    if r.enable_deterministic_inference:
        settle(
            r, "results must not depend on the batch",
            enforce_disable_flashinfer_allreduce_fusion=True,
        )  # fmt: skip
    r.default("decided by the model", uses_mamba_radix_cache=False)


@rule(
    "KV110",
    stage=Stage.RESOLVE,
    option="pp_size",
    source=f"{HOOK}:178",
    example=Example(
        overriding(architectures=["InternS2MobiusForConditionalGeneration"]) + " --pp-size 2"
    ),
    fragments=("Intern-S2-Mobius does not support",),
)
def mobius_on_one_stage(r: Resolution) -> Iterator[Hit]:
    """Intern-S2-Mobius runs in one pipeline stage with whole experts.

    Why: its 2,560 experts share four banks of weights that can't be split.

    Fix: drop --pp-size and --ep-size.
    """
    if arch(r) != "InternS2MobiusForConditionalGeneration":
        return
    for name in ("pp_size", "ep_size"):
        if getattr(r, name) != 1:
            flag = "--" + name.replace("_", "-")
            yield hit(f"{flag} {getattr(r, name)}, 1 at most", drop(name), option=name)


@rule(
    "KV112",
    stage=Stage.RESOLVE,
    option="enable_cp_decode_attn_tp",
    source=f"{HOOK}:194",
    example=Example("--enable-cp-decode-attn-tp"),
    fragments=("--enable-cp-decode-attn-tp is only supported for models",),
)
def cp_decode_attn_tp_models(r: Resolution) -> Iterator[Hit]:
    """Splitting attention weights in decode is for DeepSeek V4 and GLM 5.

    Why: only their attention weights are whole on each context-parallel rank.

    Fix: drop --enable-cp-decode-attn-tp.
    """
    if r.enable_cp_decode_attn_tp and not from_instance(r) and arch(r) not in CP_DECODE_ATTN_TP:
        yield hit(
            f"--enable-cp-decode-attn-tp with {arch(r)}; it serves {listed(CP_DECODE_ATTN_TP)}",
            drop("enable_cp_decode_attn_tp"),
        )


@step("arg_groups/overrides.py:454")
def registry_mamba_cache(r: Resolution) -> None:
    """Models of the linear-attention registry settle their prefix cache before the overrides."""
    if not from_instance(r) and arch(r) in REGISTRY_ARCHS:
        mamba_radix_cache_resolution.body(r)


@step("arg_groups/overrides.py:277")
def model_overrides(r: Resolution) -> None:
    """Apply what the architecture declares; all rows look at the launch before any applies."""
    if from_instance(r):
        return
    found = [(one, one.declared(r)) for one in OVERRIDES.get(arch(r), ())]
    for one, values in found:
        r._source = one.source
        settle(r, one.why, **values)


@step("arg_groups/kimi_k3_hook.py:20")
def kimi_linear_defaults(r: Resolution) -> None:
    """Linear-attention kernels of Kimi hybrids, with and without speculation."""
    if arch(r) not in KIMI:
        return
    half_state = r.mamba_ssm_dtype == "bfloat16" and r.platform.is_sm100
    if half_state and r.linear_attn_decode_backend is None:
        r.default("it is the fastest for 16-bit states", linear_attn_decode_backend="triton")
    if r.speculative_algorithm is None:
        return
    if r.linear_attn_verify_backend is None:
        r.default("it verifies drafts in one kernel", linear_attn_verify_backend="nv_cutedsl")
    dspark = r.speculative_algorithm == "DSPARK" and r.platform.is_sm100
    if dspark and r.speculative_draft_attention_backend is None:
        r.default("the draft is dense", speculative_draft_attention_backend="trtllm_mha")


@step("arg_groups/glm5_next_hook.py:20")
def glm5_next_defaults(r: Resolution) -> None:
    """Linear-attention kernels of GLM 5 Next under speculation."""
    if arch(r) != "Glm5NextForConditionalGeneration" or not r.platform.is_sm100:
        return
    if r.speculative_algorithm is not None and r.linear_attn_verify_backend is None:
        r.default("it verifies drafts in one kernel", linear_attn_verify_backend="nv_cutedsl")


def _mla_branch(r: Resolution) -> bool:
    family = arch(r) in DEEPSEEK_FAMILY - {"LongcatFlashForCausalLMNextN"}
    return family and not r.model.is_dsa


@step(f"{HOOK}:424")
def mla_prefill_cp_graphs(r: Resolution) -> None:
    """MLA context parallelism runs prefill without graphs."""
    if _mla_branch(r) and r.enable_prefill_cp and uses_mla(r):
        r.declare(
            "context parallelism can't be captured",
            cuda_graph_config=r.cuda_graph_config.with_phase(PREFILL, backend=DISABLED),
        )


def _is_kimi_int4(r: Resolution) -> bool:
    """The 4-bit expert recipe of Kimi K2 Thinking and K2.5."""
    groups = quant_config(r).get("config_groups")
    group = groups.get("group_0") if isinstance(groups, dict) else None
    weights = group.get("weights") if isinstance(group, dict) else None
    if quant_method(r) != "compressed-tensors" or not isinstance(weights, dict):
        return False
    recipe = {"num_bits": 4, "group_size": 32, "strategy": "group", "type": "int"}
    return all(weights.get(key) == value for key, value in recipe.items())


def _native_fp8(r: Resolution) -> str | None:
    """fp8 where the tensors say so although config.json doesn't."""
    files = r.model.checkpoint.tensor_bytes
    scaled = files is not None and any("weight_scale_inv" in name for name in files)
    return "fp8" if arch(r) == "DeepseekV3ForCausalLM" and scaled else None


@step("arg_groups/overrides.py:764")
def deepseek_moe_quant_resolution(r: Resolution) -> None:
    """Quantization and expert kernels of the DeepSeek family on SM100."""
    family = arch(r) in DEEPSEEK_FAMILY - {"LongcatFlashForCausalLMNextN"}
    if not family or not r.platform.is_sm100:
        return
    method = r.quantization
    if method is None and not stays_unquantized(r):
        method = quant_method(r) or _native_fp8(r)
        if method is not None:
            r.default("the checkpoint says so", quantization=method)
    int4, longcat = _is_kimi_int4(r), arch(r).startswith("LongcatFlash")
    served = method in ("fp8", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed", None) or int4
    if served and no_exchange(r) and auto_runner(r) and not longcat:
        why = "it runs this model's experts as one kernel here"
        r.default(why, moe_runner_backend="flashinfer_trtllm")
    plain_scales = quant_config(r).get("scale_fmt") != "ue8m0"
    fp8_matrices = r.fp8_gemm_runner_backend == "auto" and method in ("fp8", "modelopt_fp8")
    if longcat and fp8_matrices and plain_scales:
        why = "it takes this checkpoint's scales"
        r.default(why, fp8_gemm_runner_backend="flashinfer_trtllm")


@step("arg_groups/overrides.py:847")
def deepseek_hip_resolution(r: Resolution) -> None:
    """Fused all-reduce of GLM 5 and draft experts beside FP4 checkpoints, on ROCm."""
    if not r.platform.is_hip or arch(r) not in DEEPSEEK_FAMILY:
        return
    if r.model.is_dsa:
        r.env.setdefault("SGLANG_OPT_USE_TOPK_V2", "false")
    if arch(r) == "GlmMoeDsaForCausalLM" and not attn_dp_enabled(r) and r.nnodes == 1:
        settle(
            r, "it is faster in decode",
            enable_aiter_allreduce_fusion=True, disable_aiter_allreduce_fusion_in_prefill=True,
        )  # fmt: skip
    unset = None in (r.speculative_moe_runner_backend, r.speculative_moe_a2a_backend)
    if r.quantization == "modelopt_fp4" and r.speculative_algorithm == "EAGLE" and unset:
        fp8 = r.env_flag("SGLANG_NVFP4_CKPT_FP8_NEXTN_MOE")
        settle(
            r, "the draft layer is not FP4",
            speculative_moe_runner_backend="deep_gemm" if fp8 else "triton",
            speculative_moe_a2a_backend="deepep" if fp8 else "none",
        )  # fmt: skip


@rule(
    "KV118",
    stage=Stage.RESOLVE,
    option="tp_size",
    source=f"{HOOK}:595",
    example=Example(
        overriding(architectures=["MiMoV2ForCausalLM"], attention_projection_layout="fused_qkv")
        + " --tp-size 8",
        model="XiaomiMiMo/MiMo-V2-Flash",
        gpu="h200",
    ),
    fragments=("requires effective attention TP size", "unsupported attention_projection_layout"),
)
def mimo_fused_heads(r: Resolution) -> Iterator[Hit]:
    """MiMo V2 with fused projections splits attention by a divisor of its KV heads.

    Why: its query, key and value weights are stored interleaved for a fixed number of ranks.

    Fix: choose --tp-size and attention groups so that their quotient divides that number.
    """
    if arch(r) != "MiMoV2ForCausalLM" or r.encoder_only:
        return
    layout = r.model.hf_config.get("attention_projection_layout")
    if layout in (None, "split"):
        return
    stored = whole(r.model.hf_config.get("num_key_value_heads"), r.model.total_num_kv_heads)
    width = attn_tp_size(r)
    if layout != "fused_qkv" or stored % width:
        yield hit(
            f"attention over {width} ranks; the weights are interleaved for {stored}",
            drop("tp_size"),
        )


@step("arg_groups/overrides.py:917")
def sparse_head_overlap_disable(r: Resolution) -> None:
    """A sparse embedding head runs without overlap scheduling."""
    if "SGLANG_EMBEDDINGS_SPARSE_HEAD" in r.env:
        settle(r, "a sparse embedding head is in use", disable_overlap_schedule=True)


HANDLE_MODEL_SPECIFIC_ADJUSTMENTS: tuple[Part, ...] = (
    before_overrides,
    mobius_on_one_stage,
    dsa_layer_split_needs,
    cp_decode_attn_tp_models,
    registry_mamba_cache,
    *MODEL_OVERRIDE_RULES,
    model_overrides,
    kimi_linear_defaults,
    glm5_next_defaults,
    *APPLY_DEEPSEEK_V4_DEFAULTS,
    *DSA_BRANCH,
    mla_prefill_cp_graphs,
    deepseek_moe_quant_resolution,
    hip_draft_experts,
    deepseek_hip_resolution,
    *VALIDATE_DEEPSEEK_V41_FEATURES,
    *VALIDATE_DEEPSEEK_V4_CP,
    *MODEL_BACKENDS,
    mimo_fused_heads,
    *HANDLE_MAMBA_RADIX_CACHE,
    sparse_head_overlap_disable,
    *ALLREDUCE_FUSION,
)
