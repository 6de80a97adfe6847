"""Defaults of families with a stack of their own: DeepSeek, Kimi K3, MiniMax M3, Inkling …"""

from __future__ import annotations

from typing import Any

from kvtui.core.derived import uses_mla, whole
from kvtui.core.resolution import Resolution
from kvtui.core.steps.model_common import (
    DEEPSEEK_FAMILY,
    backends_unset,
    quant_config,
    quant_method,
    stays_unquantized,
)
from kvtui.core.steps.model_override_base import MINIMAX_M3, Override, Values, row
from kvtui.core.steps.model_overrides_attention import BEST_HERE, qwen_hybrid_backend
from kvtui.core.steps.model_overrides_moe import FUSED_EXPERTS, auto_runner, plain_cuda

DSA_PAGE = 64
"""Tokens a page of the sparse indexer's kernels; a pooled index multiplies it."""

INKLING = "InklingForConditionalGeneration InklingForConditionalGenerationMTP"
HYV4 = frozenset({"HYV4ForCausalLM", "HYV4ForCausalLMNextN"})


def is_dsa(r: Resolution) -> bool:
    """True for a model with DeepSeek sparse attention."""
    return r.model.is_dsa


def on_gpu(r: Resolution) -> bool:
    """True on NVIDIA and AMD GPUs."""
    return not (r.platform.is_npu or r.platform.is_xpu)


def context_parallel_groups(r: Resolution) -> int:
    """Attention-DP groups of a context-parallel layout, in which `--dp-size` counts too."""
    return max(1, whole(r.attn_dp_size, 1)) * max(1, whole(r.dp_size, 1))


def legacy_hip_indexer(r: Resolution) -> bool:
    """ROCm without aiter's preshuffled indexer: pages of one token."""
    fast = r.env_flag("SGLANG_USE_AITER") and not r.env_flag("SGLANG_DSA_HIP_DISABLE_PRESHUFFLE")
    return r.platform.is_hip and not fast


def _dsa_page(r: Resolution) -> Values:
    if r.platform.is_xpu:
        return {"page_size": 128}
    if not on_gpu(r):
        return {}
    if legacy_hip_indexer(r):
        return {"page_size": 1}
    return {"page_size": DSA_PAGE * whole(r.model.hf_config.get("index_kpool", 1), 1)}


def _dsa_dcp(r: Resolution) -> Values:
    values: dict[str, Any] = {
        name: "trtllm"
        for name in ("dsa_prefill_backend", "dsa_decode_backend")
        if getattr(r, name) is None
    }
    return values | _replicated_query(r)


def _replicated_query(r: Resolution) -> dict[str, Any]:
    gathers = r.dcp_comm_backend in ("a2a", "fi_a2a")
    return {"dcp_replicate_q_proj": True} if gathers and r.dcp_replicate_q_proj is None else {}


def _dsa_prefill_cp(r: Resolution) -> Values:
    groups = context_parallel_groups(r)
    width = whole(r.tp_size, 1) // groups
    kept = r.cp_strategy == "interleave" and whole(r.attn_cp_size, 1) > 1
    values: dict[str, Any] = {
        "attn_dp_size": groups,
        "dp_size": 1,
        "attn_cp_size": r.attn_cp_size if kept else width,
    }
    if r.cp_strategy == "zigzag":
        values |= {"moe_dense_tp_size": 1, "moe_a2a_backend": "deepep", "ep_size": r.tp_size}
    return values


def _mla_prefill_cp(r: Resolution) -> Values:
    groups = context_parallel_groups(r)
    return {
        "attn_dp_size": groups,
        "dp_size": 1,
        "attn_cp_size": whole(r.tp_size, 1) // groups,
        "moe_dense_tp_size": 1,
        "moe_a2a_backend": "deepep",
        "ep_size": r.tp_size,
    }


def _hyv4_kernels(r: Resolution) -> Values:
    body = quant_config(r)
    body = (
        body.get("quantization", body) if isinstance(body.get("quantization", body), dict) else {}
    )
    mxfp8 = str(body.get("quant_algo", "")).upper() == "MXFP8"
    deep_gemm = r.env_flag("SGLANG_ENABLE_JIT_DEEPGEMM", True) and r.platform.device_sm >= 90
    if not (mxfp8 and deep_gemm):
        return {}
    names = ("moe_runner_backend", "fp8_gemm_runner_backend")
    return {name: "deep_gemm" for name in names if getattr(r, name) == "auto"}


def _dsv4_runner(r: Resolution) -> Values:
    if r.model.nvfp4_moe_meta is not None:
        return {"moe_runner_backend": "flashinfer_trtllm_routed"}
    platform = r.platform
    fits = platform.is_sm90 or platform.is_sm100 or platform.is_sm120
    dequantized = r.env_flag("SGLANG_DSV4_FP4_DEQUANT")
    packed = r.model.is_fp4_experts and plain_cuda(r) and fits and not dequantized
    return {"moe_runner_backend": "flashinfer_mxfp4"} if packed else {}


def _is_v41(r: Resolution) -> bool:
    return r.model.model_type == "deepseek_v41"


def _v41_dense(r: Resolution) -> bool:
    config = quant_config(r)
    return (
        _is_v41(r)
        and r.device == "cuda"
        and r.platform.is_sm100
        and r.fp8_gemm_runner_backend == "auto"
        and config.get("quant_method") == "fp8"
        and config.get("weight_block_size") == [32, 32]
        and config.get("scale_fmt") == "ue8m0"
    )


def _kimi_k3_dcp(r: Resolution) -> Values:
    values: dict[str, Any] = {}
    if r.enable_symm_mem:
        values["enable_symm_mem"] = False
    if r.speculative_algorithm == "DSPARK":
        values["speculative_attention_mode"] = "decode"
    prefill, decode = r.backends
    if decode in ("cutedsl_mla", None):
        values |= {
            "prefill_attention_backend": "trtllm_mla",
            "decode_attention_backend": "cutedsl_mla",
        }
    elif decode == "aiter":
        values["prefill_attention_backend"] = "triton" if prefill == "triton" else "aiter"
        values["decode_attention_backend"] = "aiter"
    return values | _replicated_query(r)


def _kimi_k3(r: Resolution) -> Values:
    if whole(r.dcp_size, 1) > 1:
        return _kimi_k3_dcp(r)
    if not (r.platform.is_sm100 and r.platform.device_sm in (100, 103)):
        return {}
    free = backends_unset(r)
    both = {"decode_attention_backend": "trtllm_mla", "prefill_attention_backend": "trtllm_mla"}
    if r.speculative_algorithm != "DSPARK":
        return both if free else {}
    verify = "trtllm_mla" if free else r.backends[1]
    mode = {"speculative_attention_mode": "decode"}
    served = verify in ("trtllm_mla", "cutedsl_mla")
    return (both if free else {}) | (mode if served else {})


def m3_quantization(r: Resolution) -> str | None:
    """Method of a MiniMax M3 checkpoint; MXFP8 with packed NVFP4 experts has its own name."""
    method = quant_method(r)
    config = quant_config(r)
    packed = (
        str(config.get("moe_quant_algo", "")).upper() == "NVFP4"
        and config.get("moe_quant_format") == "nvfp4-pack-quantized"
    )
    return "minimax_m3_nvfp4" if method == "mxfp8" and packed else method


def m3_resolved(r: Resolution) -> str | None:
    """Quantization of a MiniMax M3 once its own default is in."""
    if r.quantization is None and not stays_unquantized(r):
        return m3_quantization(r)
    return r.quantization  # type: ignore[no-any-return]


def is_m3_nvfp4(r: Resolution) -> bool:
    """True for MiniMax M3.1 with NVFP4 experts."""
    return m3_resolved(r) == "minimax_m3_nvfp4"


def _m3_nvfp4(r: Resolution) -> Values:
    values: dict[str, Any] = {"page_size": 128}
    algorithm = r.speculative_algorithm
    if algorithm in ("DSPARK", "DFLASH"):
        if r.speculative_draft_kv_cache_dtype in (None, "auto"):
            values["speculative_draft_kv_cache_dtype"] = "bf16"
        if algorithm == "DSPARK" and r.speculative_draft_attention_backend is None:
            values["speculative_draft_attention_backend"] = "trtllm_mha"
    if not r.platform.is_blackwell:
        if auto_runner(r):
            values["moe_runner_backend"] = "marlin"
        return values | ({"attention_backend": "fa3"} if backends_unset(r) else {})
    if r.moe_runner_backend != "flashinfer_trtllm_routed":
        values["moe_a2a_backend"] = "megamoe"
        if auto_runner(r):
            values["moe_runner_backend"] = "deep_gemm"
    if r.kv_cache_dtype == "auto":
        values["kv_cache_dtype"] = "fp8_e4m3"
    return values | ({"attention_backend": "trtllm_mha"} if backends_unset(r) else {})


def _m3_hip(r: Resolution, method: str | None) -> Values:
    values: dict[str, Any] = {"attention_backend": "triton"} if backends_unset(r) else {}
    if auto_runner(r) and method == "mxfp8":
        values["moe_runner_backend"] = "triton"
    fused = r.enable_aiter_allreduce_fusion
    if r.ep_size > 1 and r.moe_a2a_backend == "none" and fused:
        values["enable_aiter_allreduce_fusion"] = fused = False
    if not fused and not r.env_flag("SGLANG_M3_ALLOW_CUSTOM_AR"):
        values["disable_custom_all_reduce"] = True
    return values


def _m3_nvidia(r: Resolution, method: str | None) -> Values:
    values: dict[str, Any] = {}
    fp8 = r.kv_cache_dtype == "fp8_e4m3" and not r.env_flag("SGLANG_DISABLE_M3_FP8_ATTN_GEMM")
    if r.platform.is_sm100:
        own, paged = ("trtllm_mha" if fp8 else "fa4"), {"fa4", "trtllm_mha"}
    else:
        own, paged = "fa3", {"fa3"}
    if backends_unset(r):
        values["attention_backend"] = own
    if r.page_size is None and values.get("attention_backend", r.attention_backend) in paged:
        values["page_size"] = 128
    if r.platform.is_sm100 and auto_runner(r):
        runner = {"mxfp8": "deep_gemm", "modelopt_mixed": "flashinfer_trtllm_routed"}
        if method in runner:
            values["moe_runner_backend"] = runner[method]
    return values


def _minimax_m3(r: Resolution) -> Values:
    method = m3_resolved(r)
    values: dict[str, Any] = {}
    if method != r.quantization:
        values["quantization"] = method
    if method == "minimax_m3_nvfp4":
        return {**values, **_m3_nvfp4(r)}
    if r.platform.is_hip:
        values |= _m3_hip(r, method)
    elif r.platform.is_sm100 or r.platform.is_sm90:
        values |= _m3_nvidia(r, method)
    runner = values.get("moe_runner_backend", r.moe_runner_backend)
    if method is None and runner in ("auto", "deep_gemm"):
        values["moe_runner_backend"] = "triton"
    return values


def _inkling(r: Resolution) -> Values:
    values: dict[str, Any] = {}
    if r.swa_full_tokens_ratio is None:
        values["swa_full_tokens_ratio"] = 0.1
    if r.mamba_full_memory_ratio is None:
        values["mamba_full_memory_ratio"] = 0.1
    if r.mamba_radix_cache_strategy == "auto":
        values["mamba_radix_cache_strategy"] = "extra_buffer"
    if not r.disable_radix_cache:
        values["uses_mamba_radix_cache"] = True
    if backends_unset(r):
        fa4 = r.platform.is_sm90 or r.platform.is_sm100
        values["attention_backend"] = "fa4" if fa4 else "triton"
    return values


def compressed_qsa(r: Resolution) -> bool:
    """True for a Qwen 4 with the compressed index of its sparse attention."""
    return r.model.hf_text_config.get("indexer_n_heads") is not None


def _qwen4(r: Resolution) -> Values:
    values: dict[str, Any] = {}
    if r.ple_offload_embedding is None:
        values["ple_offload_embedding"] = r.platform.is_cuda and r.model.dtype == "bfloat16"
    if r.model.hf_text_config.get("num_experts") is not None and r.moe_dense_tp_size == 1:
        values["moe_dense_tp_size"] = None
    if r.platform.is_sm100 and r.attention_backend is None:
        values |= qwen_hybrid_backend(r)
    if compressed_qsa(r):
        values["page_size"] = 64
    return values


FAMILY_OVERRIDES: tuple[Override, ...] = (
    row(HYV4, FUSED_EXPERTS, _hyv4_kernels, "deepseek_v2.py:86"),
    row(DEEPSEEK_FAMILY, "sparse attention has a backend of its own",
        {"attention_backend": "dsa"}, "deepseek_v2.py:103",
        lambda r: is_dsa(r) and backends_unset(r)),
    row(DEEPSEEK_FAMILY, "the sparse indexer works on such pages", _dsa_page,
        "deepseek_v2.py:170", is_dsa),
    row(DEEPSEEK_FAMILY, "decode context parallelism runs on it", _dsa_dcp,
        "deepseek_v2.py:29", lambda r: is_dsa(r) and whole(r.dcp_size, 1) > 1),
    row(DEEPSEEK_FAMILY, "sparse context parallelism lays ranks out like that",
        _dsa_prefill_cp, "deepseek_v2.py:108",
        lambda r: is_dsa(r) and on_gpu(r) and bool(r.enable_prefill_cp)),
    row(DEEPSEEK_FAMILY, BEST_HERE, {"attention_backend": "trtllm_mla"}, "deepseek_v2.py:178",
        lambda r: not is_dsa(r) and r.platform.is_sm100 and backends_unset(r)),
    row(DEEPSEEK_FAMILY, "MLA context parallelism lays ranks out like that", _mla_prefill_cp,
        "deepseek_v2.py:189",
        lambda r: not is_dsa(r) and bool(r.enable_prefill_cp) and uses_mla(r)),
    row("DeepseekV4ForCausalLM", "compressed attention has a backend of its own",
        {"attention_backend": "dsv4", "page_size": 256}, "deepseek_v4.py:24"),
    row("DeepseekV4ForCausalLM", "window layers need few tokens beside compressed ones",
        {"swa_full_tokens_ratio": 0.1}, "deepseek_v4.py:46",
        lambda r: r.swa_full_tokens_ratio is None and not _is_v41(r)),
    row("DeepseekV4ForCausalLM", FUSED_EXPERTS, _dsv4_runner, "deepseek_v4.py:66", auto_runner),
    row("DeepseekV4ForCausalLM", "it serves this checkpoint's scales",
        {"fp8_gemm_runner_backend": "flashinfer_cutedsl"}, "deepseek_v4.py:39", _v41_dense),
    row(INKLING, "the model is built for it", _inkling, "inkling.py:38"),
    row("KimiK3ForConditionalGeneration", BEST_HERE, _kimi_k3, "kimi_k3.py:63"),
    row(MINIMAX_M3, "the model's sparse attention and experts were validated with it",
        _minimax_m3, "minimax_m3.py:45"),
    row("Qwen4ExpForConditionalGeneration", "the model is built for it", _qwen4,
        "qwen4_exp.py:27"),
)  # fmt: skip
"""Rows in the order of the engine's modules."""
