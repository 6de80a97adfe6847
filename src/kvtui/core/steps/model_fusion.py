"""When FlashInfer fuses the all-reduce with what follows it (overrides.py:924, 0.5.23)."""

from __future__ import annotations

from kvtui.core.derived import attn_dp_enabled, from_instance
from kvtui.core.model.archs import MIMO_V2
from kvtui.core.resolution import Part, Resolution, step
from kvtui.core.steps.model_common import arch, settle

FUSED_ARCHS = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV4ForCausalLM",
        "GptOssForCausalLM",
        "GlmMoeDsaForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "MistralLarge3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "Qwen4ExpForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronH_Omni_Reasoning_V3",
    }
)
"""Models whose layers know the fused kernel."""
MIMO_WIDTHS = (2, 4, 8, 16)


def _mimo_fuses(r: Resolution) -> bool:
    return (
        r.platform.is_sm100
        and r.model.dtype == "bfloat16"
        and r.tp_size in MIMO_WIDTHS
        and r.attn_cp_size == 1
        and not r.encoder_only
        and not r.enable_pdmux
    )


def _own_all_reduce(r: Resolution) -> bool:
    """DeepSeek V4.1 over four Blackwell ranks, where its own all-reduce is faster."""
    return (
        r.model.model_type == "deepseek_v41"
        and r.model.hf_config.get("hidden_size") == 5120
        and r.platform.is_blackwell
        and r.tp_size == 4
        and r.nnodes == 1
        and not r.disable_custom_all_reduce
    )


def fuses_by_default(r: Resolution) -> bool:
    """True where the engine switches the fused all-reduce on by itself."""
    known = _mimo_fuses(r) if arch(r) in MIMO_V2 else arch(r) in FUSED_ARCHS
    gpu = r.platform
    return (
        r.flashinfer_allreduce_fusion_backend is None
        and known
        and not _own_all_reduce(r)
        and (gpu.is_sm90 or gpu.is_sm100)
        and r.tp_size > 1
        and not attn_dp_enabled(r)
        and (r.nnodes == 1 or gpu.is_sm100)
        and r.moe_a2a_backend == "none"
    )


@step("arg_groups/overrides.py:955")
def flashinfer_allreduce_fusion_auto_enable(r: Resolution) -> None:
    """Fuse the all-reduce where model, GPU and layout know how."""
    if not from_instance(r) and fuses_by_default(r):
        backend = "cutedsl" if arch(r) in MIMO_V2 else "auto"
        why = "it saves a pass over the activations"
        r.default(why, flashinfer_allreduce_fusion_backend=backend)


@step("arg_groups/overrides.py:1006")
def enforce_disable_allreduce_fusion(r: Resolution) -> None:
    """The user's off switch wins over every default."""
    if r.enforce_disable_flashinfer_allreduce_fusion:
        settle(r, "fusion is switched off", flashinfer_allreduce_fusion_backend=None)


ALLREDUCE_FUSION: tuple[Part, ...] = (
    flashinfer_allreduce_fusion_auto_enable,
    enforce_disable_allreduce_fusion,
)
