"""Expert kernels, quantization and matrix settings that architectures declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtui.core.derived import attn_dp_enabled
from kvtui.core.resolution import Resolution
from kvtui.core.steps.model_common import (
    quant_config,
    quant_method,
    resolved_quantization,
    stays_unquantized,
)
from kvtui.core.steps.model_override_base import NEMOTRON_H, Override, Values, row

QWEN_MOE = (
    "Qwen3MoeForCausalLM Qwen3VLMoeForConditionalGeneration Qwen3NextForCausalLM"
    " Qwen3_5MoeForConditionalGeneration InternS2PreviewForConditionalGeneration"
    " Qwen3_5ForConditionalGeneration Qwen4ExpForConditionalGeneration"
)
MODELOPT = ("modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed")

FUSED_EXPERTS = "it runs this model's experts as one kernel here"
OWN_METHOD = "the checkpoint says so"
FP32_GATES = "router matrices run faster in TF32"


def auto_runner(r: Resolution) -> bool:
    """True while no MoE runner is chosen."""
    return bool(r.moe_runner_backend == "auto")


def no_exchange(r: Resolution) -> bool:
    """True where experts exchange no tokens between ranks."""
    return bool(r.moe_a2a_backend == "none")


def plain_cuda(r: Resolution) -> bool:
    """True for an NVIDIA GPU with experts that exchange nothing."""
    return r.device == "cuda" and not r.platform.is_hip and no_exchange(r)


def _sm90_to_120(r: Resolution) -> bool:
    return r.platform.is_sm90 or r.platform.is_sm100 or r.platform.is_sm120


def _runner(name: str) -> Values:
    return {"moe_runner_backend": name}


def _formats(groups: Any) -> list[str]:
    if not isinstance(groups, Mapping):
        return []
    return [str(one.get("format", "")) for one in groups.values() if isinstance(one, Mapping)]


def _nvfp4_packed(r: Resolution) -> bool:
    config = quant_config(r)
    return any(
        "nvfp4" in text
        for text in [str(config.get("format", "")), *_formats(config.get("config_groups"))]
    )


def is_mxfp4_packed(r: Resolution) -> bool:
    """True for a checkpoint whose weight groups are stored as packed MXFP4."""
    text = r.model.hf_config.get("text_config", r.model.hf_config)
    config = text.get("quantization_config") if hasattr(text, "get") else None
    groups = config.get("config_groups") if isinstance(config, Mapping) else None
    return any("mxfp4" in one for one in _formats(groups))


def w4a16_experts(r: Resolution, mark: str) -> bool:
    """True where ModelOpt keeps 16-bit activations for some expert layers."""
    layers = quant_config(r).get("quantized_layers")
    return isinstance(layers, Mapping) and any(
        mark in str(name)
        and isinstance(info, Mapping)
        and str(info.get("quant_algo", "")).upper() == "W4A16_NVFP4"
        for name, info in layers.items()
    )


def _beam_runner(r: Resolution) -> Values:
    method = r.quantization or quant_method(r)
    if method == "modelopt":
        method = quant_config(r).get("quant_algo")
    fits = method in ("modelopt_fp4", "NVFP4") and r.platform.is_sm100
    return _runner("flashinfer_trtllm") if fits and auto_runner(r) and no_exchange(r) else {}


def _cohere_runner(r: Resolution) -> bool:
    served = r.model.quantization is None or _nvfp4_packed(r)
    return auto_runner(r) and r.platform.is_sm100 and served


def own_quantization(r: Resolution) -> Values:
    """The checkpoint's own method on SM100, where the option leaves it free."""
    free = r.quantization is None and not stays_unquantized(r)
    method = quant_method(r)
    return {"quantization": method} if r.platform.is_sm100 and free and method else {}


def _glm4_runner(r: Resolution) -> bool:
    served = resolved_quantization(r) in ("modelopt_fp4", None)
    return r.platform.is_sm100 and served and no_exchange(r) and auto_runner(r)


def qwen_w4a16(r: Resolution) -> bool:
    """True for a Qwen MoE on SM100 whose experts keep 16-bit activations."""
    mixed = resolved_quantization(r) == "modelopt_mixed"
    return r.platform.is_sm100 and mixed and w4a16_experts(r, ".experts")


def _qwen_runner(r: Resolution) -> Values:
    if not r.platform.is_sm100 or not auto_runner(r):
        return {}
    if qwen_w4a16(r):
        return _runner("marlin")
    served = resolved_quantization(r) in ("fp8", "modelopt_fp4", "modelopt_mixed", None)
    return _runner("flashinfer_trtllm") if served and no_exchange(r) else {}


def is_mxfp4(r: Resolution) -> bool:
    """True for a checkpoint that states MXFP4."""
    return quant_method(r) == "mxfp4"


def _new_driver_on_blackwell(r: Resolution) -> bool:
    """triton_kernels crash on Blackwell from driver 595 on; an unknown driver counts as older."""
    major = r.platform.gpu.driver.split(".")[0]
    return r.platform.is_blackwell and major.isdigit() and int(major) >= 595


def _gpt_oss_runner(r: Resolution) -> Values:
    platform = r.platform
    if (platform.is_sm100 or platform.is_sm120) and is_mxfp4(r):
        return _runner("flashinfer_mxfp4")
    if platform.is_hip and r.env_flag("SGLANG_USE_AITER"):
        return {} if is_mxfp4(r) else _runner("triton")
    if r.ep_size == 1 and r.quantization is None and not platform.is_cpu:
        return _runner("triton" if _new_driver_on_blackwell(r) else "triton_kernel")
    return {}


def _mimo_runner(r: Resolution) -> Values:
    if not auto_runner(r) or quant_method(r) != "fp8":
        return {}
    packed = r.model.is_fp4_experts
    if r.platform.is_sm100:
        if not no_exchange(r):
            return {}
        return _runner("flashinfer_mxfp4" if packed else "flashinfer_trtllm")
    return _runner("marlin") if r.platform.is_sm90 and packed else {}


def _uses_expert_remap(r: Resolution) -> bool:
    return bool(
        r.enable_eplb or r.ep_num_redundant_experts > 0 or r.init_expert_location != "trivial"
    )


def nemotron_quantization(r: Resolution) -> str | None:
    """ModelOpt's method by its own name, None for another checkpoint."""
    method = r.model.quantization
    if method not in MODELOPT:
        return None
    if method != "modelopt":
        return method
    algo = quant_config(r).get("quant_algo")
    if algo == "MIXED_PRECISION":
        return "modelopt_mixed"
    return "modelopt_fp4" if algo == "NVFP4" else "modelopt_fp8"


def nemotron_w4a16(r: Resolution) -> bool:
    """True for a Nemotron-H whose experts keep 16-bit activations."""
    return nemotron_quantization(r) == "modelopt_mixed" and w4a16_experts(r, ".experts.")


def _nemotron_runner(r: Resolution) -> Values:
    if not auto_runner(r):
        return {}
    if nemotron_w4a16(r):
        return _runner("marlin")
    on_sm100 = r.platform.is_sm100 and no_exchange(r)
    if _uses_expert_remap(r) and on_sm100:
        return _runner("flashinfer_trtllm_routed")
    modelopt = nemotron_quantization(r)
    if modelopt is None and r.model.quantization is not None:
        return {}
    if on_sm100:
        return _runner("flashinfer_trtllm")
    ampere_to_hopper = r.platform.is_cuda and 80 <= r.platform.device_sm < 100
    if ampere_to_hopper and modelopt in ("modelopt_fp4", "modelopt_mixed"):
        return _runner("marlin")
    return _runner("flashinfer_cutlass")


def _kimi_k3_runner(r: Resolution) -> bool:
    served = r.platform.is_sm100 and r.platform.device_sm in (100, 103, 107)
    return auto_runner(r) and served and is_mxfp4_packed(r)


MOE_OVERRIDES: tuple[Override, ...] = (
    row("BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration", FUSED_EXPERTS,
        _runner("flashinfer_mxfp4"), "bailing_moe_v3.py:42",
        lambda r: auto_runner(r) and plain_cuda(r) and _sm90_to_120(r)
        and r.model.quantization == "fp8" and r.model.is_fp4_experts),
    row("BeamForCausalLM", FUSED_EXPERTS, _beam_runner, "beam.py:40"),
    row("Cohere2VisionForConditionalGeneration Cohere2MoeForCausalLM", FUSED_EXPERTS,
        _runner("flashinfer_trtllm"), "cohere2_moe.py:43", _cohere_runner),
    row("Gemma4ForConditionalGeneration Gemma4ForCausalLM Gemma4UnifiedForConditionalGeneration"
        " DiffusionGemmaForBlockDiffusion", FUSED_EXPERTS,
        {"quantization": "modelopt_fp4", "moe_runner_backend": "flashinfer_trtllm"},
        "gemma4.py:44",
        lambda r: r.platform.is_sm100 and auto_runner(r)
        and r.model.quantization == "modelopt_fp4"),
    row("GigaChat35ForCausalLM GigaChat35ForCausalLMNextN", "its shared experts have own gates",
        {"disable_shared_experts_fusion": True}, "gigachat35.py:16"),
    row("GigaChat35ForCausalLM GigaChat35ForCausalLMNextN",
        "each draft layer is a head of its own", {"enable_multi_layer_eagle": True},
        "gigachat35.py:21", lambda r: r.speculative_algorithm == "EAGLE"),
    row("Glm4MoeForCausalLM", OWN_METHOD, own_quantization, "glm4_moe.py:29"),
    row("Glm4MoeForCausalLM", FUSED_EXPERTS, _runner("flashinfer_trtllm"), "glm4_moe.py:38",
        _glm4_runner),
    row("Glm4MoeForCausalLM MiniMaxM2ForCausalLM", FP32_GATES, {"enable_tf32_matmul": True},
        "glm4_moe.py:46"),
    row("GptOssForCausalLM", "MXFP4 kernels take 16-bit activations", {"dtype": "bfloat16"},
        "gpt_oss.py:66", is_mxfp4),
    row("GptOssForCausalLM", FUSED_EXPERTS, _gpt_oss_runner, "gpt_oss.py:68", auto_runner),
    row("InternS2MobiusForConditionalGeneration", "no other runner was validated",
        _runner("triton_kernel"), "interns2_mobius.py:16", auto_runner),
    row("KimiK3ForConditionalGeneration", FUSED_EXPERTS, _runner("flashinfer_mxfp4"),
        "kimi_k3.py:190", _kimi_k3_runner),
    row("Llama4ForConditionalGeneration Llama4ForCausalLM", FUSED_EXPERTS,
        _runner("flashinfer_trtllm"), "llama4.py:39",
        lambda r: r.platform.is_sm100 and auto_runner(r) and r.device != "cpu"
        and r.quantization in ("fp8", "modelopt_fp8")),
    row("MiMoV2ForCausalLM MiMoV2FlashForCausalLM", "each draft layer is a head of its own",
        {"enable_multi_layer_eagle": True}, "mimo_v2.py:23",
        lambda r: r.speculative_algorithm == "EAGLE"),
    row("MiMoV2ForCausalLM MiMoV2FlashForCausalLM", FUSED_EXPERTS, _mimo_runner,
        "mimo_v2.py:33"),
    row("MiniMaxM2ForCausalLM", FUSED_EXPERTS, _runner("flashinfer_trtllm_routed"),
        "minimax_m2.py:27",
        lambda r: r.platform.is_sm100 and auto_runner(r)
        and r.model.quantization == "modelopt_fp4"),
    row("MuseGlimmerForConditionalGeneration MuseGlimmerForCausalLM",
        "it serves small NVFP4 matrices here", {"fp4_gemm_runner_backend": "marlin"},
        "muse_glimmer.py:18",
        lambda r: r.platform.is_sm120 and r.fp4_gemm_runner_backend == "auto"),
    row(NEMOTRON_H, OWN_METHOD, lambda r: {"quantization": nemotron_quantization(r)},
        "nemotron_h.py:56", lambda r: nemotron_quantization(r) is not None),
    row(NEMOTRON_H, FUSED_EXPERTS, _nemotron_runner, "nemotron_h.py:74"),
    row(QWEN_MOE, OWN_METHOD, own_quantization, "qwen3_moe.py:46"),
    row(QWEN_MOE, FUSED_EXPERTS, _qwen_runner, "qwen3_moe.py:55"),
    Override(frozenset({"MuseSparkForConditionalGeneration"}), FP32_GATES,
             {"enable_tf32_matmul": True}, "arg_groups/overrides.py:315",
             lambda r: r.enable_tf32_matmul is None),
    Override(frozenset({"MuseSparkForConditionalGeneration"}), "the model was trained for it",
             {"kv_cache_dtype": "fp8_e4m3"}, "arg_groups/overrides.py:318",
             lambda r: r.kv_cache_dtype == "auto"),
    Override(frozenset({"MuseSparkForConditionalGeneration"}),
             "attention is split over fewer ranks than the image tower can be",
             {"mm_enable_dp_encoder": True}, "arg_groups/overrides.py:321",
             lambda r: r.mm_enable_dp_encoder is None and attn_dp_enabled(r)),
)  # fmt: skip
"""Rows in the order of the engine's modules."""
