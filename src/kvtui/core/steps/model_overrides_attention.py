"""Attention backends, pages and caches that architectures set (`arg_groups/model_overrides`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvtui.core.derived import mamba_extra_buffer, whole
from kvtui.core.resolution import Resolution
from kvtui.core.steps.attention_default import default_attention_backend
from kvtui.core.steps.model_common import backends_unset
from kvtui.core.steps.model_override_base import NEMOTRON_H, Override, Values, row

GEMMA4 = "Gemma4ForConditionalGeneration Gemma4ForCausalLM Gemma4UnifiedForConditionalGeneration"
EXAONE = "Exaone4ForCausalLM ExaoneMoEForCausalLM ExaoneMoeForCausalLM"
QWEN_HYBRID = (
    "Qwen3NextForCausalLM Qwen3_5MoeForConditionalGeneration"
    " InternS2PreviewForConditionalGeneration InternS2MobiusForConditionalGeneration"
    " Qwen3_5ForConditionalGeneration"
)
STEP3P = "Step3p5ForCausalLM Step3p7ForConditionalGeneration"

HYBRID_SWA_PENDING = "the engine can't split this model's cache by attention window yet"
BEST_HERE = "it is this model's fastest backend on this GPU"


def _backend(name: str) -> Values:
    return {"attention_backend": name}


def _common_unset(r: Resolution) -> bool:
    return r.attention_backend is None


def _sm100_unset(r: Resolution) -> bool:
    return r.platform.is_sm100 and r.attention_backend is None


def by_gpu(**choices: str) -> Callable[[Resolution], str | None]:
    """The backend of the first platform predicate (`is_` + key) that holds, else `default`."""
    otherwise = choices.pop("default", None)

    def choose(r: Resolution) -> str | None:
        for name, backend in choices.items():
            if getattr(r.platform, f"is_{name}"):
                return backend
        return otherwise

    return choose


def _chosen(choose: Callable[[Resolution], str | None]) -> Callable[[Resolution], Values]:
    def values(r: Resolution) -> Values:
        name = choose(r)
        return {} if name is None else _backend(name)

    return values


def _fa3_where_possible(r: Resolution) -> Values:
    if r.platform.is_sm100:
        return _backend("trtllm_mha")
    return _backend("fa3" if r.platform.is_cuda and r.platform.device_sm >= 80 else "triton")


def _gemma4_default(r: Resolution) -> Values:
    return _backend("trtllm_mha" if r.platform.is_sm100 else "triton")


def _has_window_pattern(r: Resolution) -> bool:
    return r.model.hf_config.get("sliding_window_pattern") is not None


def _has_state(r: Resolution) -> bool:
    return "mamba" in (r.model.hf_config.get("layer_types") or ())


def qwen_hybrid_backend(r: Resolution) -> Values:
    """Backend and page of a Qwen hybrid on SM100: trtllm_mha where states allow pages."""
    pages_of_one = (
        not mamba_extra_buffer(r) and not r.disable_radix_cache and r.speculative_algorithm is None
    )
    if default_attention_backend(r) == "trtllm_mha" and not pages_of_one:
        return {"attention_backend": "trtllm_mha", "page_size": 64}
    return {"attention_backend": "triton", "page_size": 1}


def _iquest_phases(r: Resolution) -> Values:
    if backends_unset(r):
        return _backend("fa3")
    if r.attention_backend is not None:
        return {}
    phases = ("prefill_attention_backend", "decode_attention_backend")
    return {name: "fa3" for name in phases if getattr(r, name) is None}


def _gpt_oss(r: Resolution) -> Values:
    choose = by_gpu(
        sm100="trtllm_mha", sm90="fa3", xpu="intel_xpu", hip="aiter", cpu="intel_amx",
        default="triton",
    )  # fmt: skip
    return _backend(choose(r) or "triton")


def _nemotron_backend(r: Resolution) -> Values:
    """Backend of a Nemotron-H on Blackwell, with what its pages ask for under speculation."""
    if r.speculative_algorithm is None:
        return _backend("trtllm_mha") if r.platform.is_sm100 else {}
    algorithm = str(r.speculative_algorithm).upper()
    values: dict[str, Any] = {}
    if r.platform.is_sm100 and r.speculative_eagle_topk in (None, 1):
        values["attention_backend"] = "trtllm_mha"
        if r.page_size is None:
            values["page_size"] = 64
        if r.mamba_radix_cache_strategy == "auto":
            values["mamba_radix_cache_strategy"] = "extra_buffer"
        draft, served = "trtllm_mha", {"EAGLE", "NEXTN", "DSPARK"}
    else:
        values["attention_backend"] = "triton"
        draft, served = "flashinfer", {"EAGLE", "NEXTN", "DFLASH", "DSPARK"}
    if r.speculative_draft_attention_backend is None and algorithm in served:
        values["speculative_draft_attention_backend"] = draft
    return values


def sparse_minicpm(r: Resolution) -> bool:
    """True for a MiniCPM with block-sparse attention layers."""
    config = r.model.hf_config
    mixers = config.get("mixer_types") or ("minicpm4",)
    return config.get("sparse_config") is not None and "minicpm4" in mixers


def hybrid_minicpm(r: Resolution) -> bool:
    """True for a MiniCPM with sparse or lightning layers."""
    if r.model.model_type != "minicpm_sala":
        return False
    mixers = r.model.hf_config.get("mixer_types") or ()
    return sparse_minicpm(r) or not {"lightning", "lightning-attn"}.isdisjoint(mixers)


def _minicpm_backend(r: Resolution) -> Values:
    blackwell = r.platform.is_blackwell
    if r.env_flag("SGLANG_MINICPM_FORCE_DENSE"):
        dense = {
            "minicpm_flashattn": "fa4" if blackwell else "fa3",
            "minicpm_flashinfer": "flashinfer",
        }
        names = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
        return {name: dense[getattr(r, name)] for name in names if getattr(r, name) in dense}
    if r.model.model_type == "minicpm_sala" and sparse_minicpm(r) and backends_unset(r):
        return _backend("minicpm_flashinfer" if blackwell else "minicpm_flashattn")
    return {}


def _large_hopper(r: Resolution) -> bool:
    """Qwen3-VL on a Hopper of 60 GiB and more, where serving was profiled."""
    return (
        r.platform.is_sm90
        and r.platform.memory_mib >= 60 * 1024
        and r.model.is_multimodal
        and r.model.model_type in ("qwen3_vl", "qwen3_vl_moe")
    )


def _qwen3_vl_serving(r: Resolution) -> Values:
    values: dict[str, object] = {}
    cached = whole(r.mm_preprocess_cache_size_mb)
    if r.mm_preprocess_cache_size_mb is None:
        values["mm_preprocess_cache_size_mb"] = 0
    kept = cached > 0 or r.env_int("SGLANG_VLM_CACHE_SIZE_MB", 0) > 0
    if r.mm_feature_transport is None and r.nnodes == 1 and not kept:
        values["mm_feature_transport"] = "cuda_ipc"
    if r.radix_eviction_policy == "lru" and not r.chose("radix_eviction_policy"):
        values["radix_eviction_policy"] = "priority"
    if r.prefill_decode_interval is None:
        values["prefill_decode_interval"] = 22
    if r.attention_backend is None and r.decode_attention_backend is None:
        values["decode_attention_backend"] = "flashinfer"
    return values


def _step3p_attention(r: Resolution) -> Values:
    name = by_gpu(blackwell="fa4", sm90="fa3")(r)
    return {} if name is None else _backend(name)


ATTENTION_OVERRIDES: tuple[Override, ...] = (
    row("BeamForCausalLM", BEST_HERE, _backend("trtllm_mha"), "beam.py:29",
        lambda r: backends_unset(r)
        and (r.platform.is_sm90 or r.platform.is_sm100 or r.platform.is_sm120)),
    row("EmbeddingGemma2Model", "prompts are read both ways, which prefix reuse can't follow",
        {"disable_radix_cache": True}, "embedding_gemma2.py:29"),
    row("EmbeddingGemma2Model", "it serves both-way attention", _backend("triton"),
        "embedding_gemma2.py:34", _common_unset),
    row(EXAONE, HYBRID_SWA_PENDING, {"disable_hybrid_swa_memory": True}, "exaone.py:18",
        _has_window_pattern),
    row(EXAONE, BEST_HERE, _fa3_where_possible, "exaone.py:23",
        lambda r: _has_window_pattern(r) and _common_unset(r)),
    row("FalconH1ForCausalLM JetNemotronForCausalLM JetVLMForConditionalGeneration", BEST_HERE,
        _backend("triton"), "falcon_h1.py:17", _sm100_unset),
    row("Gemma2ForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3nForCausalLM"
        " Gemma3nForConditionalGeneration", HYBRID_SWA_PENDING,
        {"disable_hybrid_swa_memory": True}, "gemma2_gemma3.py:20"),
    row(GEMMA4, BEST_HERE, _gemma4_default, "gemma4.py:31", _common_unset),
    row("DiffusionGemmaForBlockDiffusion", "it serves block diffusion", _backend("triton"),
        "gemma4.py:31", _common_unset),
    row("GptOssForCausalLM", BEST_HERE, _gpt_oss, "gpt_oss.py:30", backends_unset),
    row("GraniteMoeHybridForCausalLM", BEST_HERE, _backend("flashinfer"),
        "granitemoehybrid.py:18", lambda r: _has_state(r) and _sm100_unset(r)),
    row("IQuestQ1ForCausalLM IQuestQ1MTP", "its sinks need FA3", _iquest_phases,
        "iquest_q1.py:40"),
    row("Lfm2ForCausalLM Lfm2MoeForCausalLM", BEST_HERE, _backend("flashinfer"), "lfm2.py:15",
        _sm100_unset),
    row("Llama4ForConditionalGeneration Llama4ForCausalLM", BEST_HERE,
        _chosen(by_gpu(sm100="trtllm_mha", sm90="fa3", hip="aiter", xpu="intel_xpu",
                       default="triton")),
        "llama4.py:24", lambda r: _common_unset(r) and r.device != "cpu"),
    row("MiMoV2ForCausalLM MiMoV2FlashForCausalLM", "K and V rows differ in width",
        _backend("fa4"), "mimo_v2.py:27", lambda r: r.platform.is_sm100 and backends_unset(r)),
    row("MiniCPMForCausalLM MiniCPMSALAForCausalLM",
        "prefix reuse can't follow sparse and lightning layers", {"disable_radix_cache": True},
        "minicpm.py:28", hybrid_minicpm),
    row("MiniCPMForCausalLM MiniCPMSALAForCausalLM", "it serves block-sparse layers",
        _minicpm_backend, "minicpm.py:30"),
    row("MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration", BEST_HERE,
        _backend("triton"), "minicpmv.py:16", _sm100_unset),
    row("MossVLForConditionalGeneration", "only FlashInfer masks cross-attention",
        {"prefill_attention_backend": "flashinfer"}, "moss_vl.py:21", backends_unset),
    row(NEMOTRON_H, BEST_HERE, _nemotron_backend, "nemotron_h.py:119",
        lambda r: r.platform.is_blackwell and backends_unset(r)),
    row("Olmo2ForCausalLM", HYBRID_SWA_PENDING, {"disable_hybrid_swa_memory": True},
        "olmo2.py:22"),
    row("Olmo2ForCausalLM", BEST_HERE, _fa3_where_possible, "olmo2.py:24", _common_unset),
    row(QWEN_HYBRID, BEST_HERE, qwen_hybrid_backend, "qwen3_5.py:27", _sm100_unset),
    row("Qwen3VLForConditionalGeneration", "aiter's unified attention works on such pages",
        {"page_size": 16}, "qwen3_vl.py:67",
        lambda r: r.platform.is_hip and r.env_flag("SGLANG_USE_AITER_UNIFIED_ATTN")
        and r.page_size is None),
    row("Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration",
        "it was profiled best for this model on large Hopper GPUs", _qwen3_vl_serving,
        "qwen3_vl.py:88", _large_hopper),
    Override(frozenset(STEP3P.split()), BEST_HERE, _step3p_attention,
             "arg_groups/overrides.py:339", backends_unset),
    Override(frozenset(STEP3P.split()), "each draft layer is a head of its own",
             {"enable_multi_layer_eagle": True}, "arg_groups/overrides.py:346",
             lambda r: r.speculative_algorithm == "EAGLE"),
    Override(frozenset(STEP3P.split()), "the host cache holds whole-length layers only",
             {"swa_full_tokens_ratio": 1.0, "disable_hybrid_swa_memory": True},
             "arg_groups/overrides.py:351", lambda r: bool(r.enable_hierarchical_cache)),
)  # fmt: skip
"""Rows in the order of the engine's modules."""
