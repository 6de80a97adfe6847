"""What family overrides refuse while they are collected (`arg_groups/model_overrides`)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, uses_mla, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.model_common import arch, backends_unset, listed, overriding, use_backend
from kvtui.core.steps.model_dsa import V32, serves_dsa
from kvtui.core.steps.model_override_base import MINIMAX_M3, NEMOTRON_H
from kvtui.core.steps.model_overrides_attention import hybrid_minicpm, sparse_minicpm
from kvtui.core.steps.model_overrides_families import (
    HYV4,
    compressed_qsa,
    is_m3_nvfp4,
)
from kvtui.core.steps.model_overrides_moe import (
    QWEN_MOE,
    nemotron_quantization,
    nemotron_w4a16,
    qwen_w4a16,
)

FOLDER = "arg_groups/model_overrides"
M3_NVFP4 = {
    "quant_method": "mxfp8",
    "moe_quant_algo": "NVFP4",
    "moe_quant_format": "nvfp4-pack-quantized",
}
"""How a MiniMax M3.1 checkpoint states its packed experts."""


@rule(
    "KV133",
    stage=Stage.RESOLVE,
    option="dcp_size",
    source=f"{FOLDER}/deepseek_v2.py:22",
    example=Example("--tp-size 8 --dcp-size 2 --enable-hierarchical-cache", model=V32, gpu="h200"),
    fragments=(
        "DSA DCP does not support HiSparse or HiCache",
        "DSA DCP does not support PD disaggregation",
        "DSA DCP requires --speculative-eagle-topk 1",
    ),
)
def dsa_dcp_excludes(r: Resolution) -> Iterator[Hit]:
    """Decode context parallelism of sparse attention goes without host caches and PD.

    Why: its pools are spread over ranks by token, which host copies, transfers between servers
    and trees of drafts don't follow.

    Fix: drop --dcp-size, or the option that is named.
    """
    if not serves_dsa(r) or whole(r.dcp_size, 1) <= 1:
        return
    for name in ("enable_hisparse", "enable_hierarchical_cache"):
        if getattr(r, name):
            flag = "--" + name.replace("_", "-")
            yield hit(f"--dcp-size {r.dcp_size} with {flag}", drop("dcp_size"), drop(name))
    if r.disaggregation_mode != "null":
        yield hit(
            f"--dcp-size {r.dcp_size} with --disaggregation-mode {r.disaggregation_mode}",
            drop("dcp_size"),
        )
    if r.speculative_eagle_topk not in (None, 1):
        yield hit(
            f"--dcp-size {r.dcp_size} with {r.speculative_eagle_topk} draft paths",
            set_to("draft one path", speculative_eagle_topk=1),
            option="speculative_eagle_topk",
        )


@rule(
    "KV134",
    stage=Stage.RESOLVE,
    option="enable_prefill_cp",
    source=f"{FOLDER}/deepseek_v2.py:66",
    example=Example(
        overriding(architectures=["HYV4ForCausalLM"]) + " --tp-size 8 --dcp-size 2",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="h200",
    ),
    fragments=("is not supported for HYV4 because",),
)
def hyv4_without_cp(r: Resolution) -> Iterator[Hit]:
    """Hunyuan V4 has no context parallelism.

    Why: its attention sinks belong to one rank each, and its index is not split.

    Fix: drop --enable-prefill-cp and --dcp-size.
    """
    if arch(r) not in HYV4:
        return
    if r.enable_prefill_cp:
        yield hit("--enable-prefill-cp with Hunyuan V4", drop("enable_prefill_cp"))
    if whole(r.dcp_size, 1) > 1:
        found = f"--dcp-size {r.dcp_size} with Hunyuan V4"
        yield hit(found, drop("dcp_size"), option="dcp_size")


@rule(
    "KV135",
    stage=Stage.RESOLVE,
    option="tp_size",
    source=f"{FOLDER}/deepseek_v2.py:123",
    example=Example("--tp-size 16 --nnodes 2 --enable-prefill-cp", model=V32, gpu="h200"),
    fragments=("Context parallel only supports single machine",),
)
def dsa_cp_on_one_machine(r: Resolution) -> Iterator[Hit]:
    """Sparse context parallelism stays on one machine.

    Why: over more than eight ranks its results were found to be off.

    Fix: use up to eight ranks, or drop --enable-prefill-cp.
    """
    if serves_dsa(r) and r.enable_prefill_cp and whole(r.tp_size, 1) > 8:
        yield hit(
            f"--enable-prefill-cp over {r.tp_size} ranks, 8 at most", drop("enable_prefill_cp")
        )


@rule(
    "KV136",
    stage=Stage.RESOLVE,
    option="dcp_size",
    source=f"{FOLDER}/deepseek_v2.py:164",
    example=Example(
        overriding(index_kpool=4) + " --tp-size 8 --dcp-size 2",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="h200",
    ),
    fragments=("a pooled index key spans positions",),
)
def pooled_index_without_dcp(r: Resolution) -> Iterator[Hit]:
    """A pooled sparse index can't be split over ranks by token.

    Why: one index key stands for several tokens, which decode context parallelism spreads.

    Fix: drop --dcp-size.
    """
    pool = whole(r.model.hf_config.get("index_kpool", 1), 1) if serves_dsa(r) else 1
    if pool > 1 and whole(r.dcp_size, 1) > 1:
        yield hit(f"--dcp-size {r.dcp_size} with an index pooled by {pool}", drop("dcp_size"))


@rule(
    "KV150",
    stage=Stage.RESOLVE,
    option="moe_runner_backend",
    source=f"{FOLDER}/qwen3_moe.py:79",
    example=Example(
        "--moe-runner-backend triton", model="nvidia/Qwen3.6-35B-A3B-NVFP4", gpu="b200"
    ),
    fragments=("W4A16_NVFP4 MoE layers require",),
)
def w4a16_runners(r: Resolution) -> Iterator[Hit]:
    """NVFP4 experts with 16-bit activations run on Marlin.

    Why: fused FP4 kernels want FP4 activations; CuTeDSL takes 16-bit ones for Qwen on SM100
    where SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16 is set.

    Fix: leave --moe-runner-backend to the engine, without an expert exchange.
    """
    qwen = arch(r) in QWEN_MOE.split() and qwen_w4a16(r)
    nemotron = arch(r) in NEMOTRON_H.split() and nemotron_w4a16(r)
    cutedsl = (
        qwen
        and r.moe_runner_backend == "flashinfer_cutedsl"
        and r.moe_a2a_backend in ("none", "flashinfer")
        and r.env_flag("SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16")
    )
    if nemotron and r.moe_a2a_backend != "none":
        found = f"--moe-a2a-backend {r.moe_a2a_backend} with 16-bit activations"
        yield hit(found, drop("moe_a2a_backend"), option="moe_a2a_backend")
    if (qwen or nemotron) and r.moe_runner_backend not in ("auto", "marlin") and not cutedsl:
        yield hit(
            f"{r.moe_runner_backend} with NVFP4 experts that take 16-bit activations",
            drop("moe_runner_backend"),
        )


@rule(
    "KV152",
    stage=Stage.RESOLVE,
    option="moe_runner_backend",
    source=f"{FOLDER}/nemotron_h.py:154",
    example=Example(
        "--tp-size 2 --ep-size 2 --enable-eplb --moe-runner-backend flashinfer_trtllm",
        model="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        gpu="b200",
    ),
    fragments=("does not support EPLB or redundant experts on Nemotron-H",),
)
def nemotron_expert_remap(r: Resolution) -> Iterator[Hit]:
    """Moved or doubled experts of a Nemotron-H need a runner that routes outside its kernel.

    Why: flashinfer_trtllm chooses experts inside the kernel, and flashinfer_cutedsl leaves
    their scales behind when experts move.

    Fix: use flashinfer_trtllm_routed.
    """
    if arch(r) not in NEMOTRON_H.split():
        return
    moved = r.enable_eplb or whole(r.ep_num_redundant_experts) > 0
    remapped = moved or r.init_expert_location != "trivial"
    stuck = r.moe_runner_backend == "flashinfer_cutedsl" and r.moe_a2a_backend == "none"
    if (remapped and r.moe_runner_backend == "flashinfer_trtllm") or (r.enable_eplb and stuck):
        yield hit(
            f"{r.moe_runner_backend} with experts that move",
            set_to("route outside the kernel", moe_runner_backend="flashinfer_trtllm_routed"),
        )


@rule(
    "KV161",
    stage=Stage.RESOLVE,
    option="model_path",
    source=f"{FOLDER}/nemotron_h.py:69",
    example=Example(
        "--quantization modelopt_mixed", model="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    ),
    fragments=("object has no attribute 'quantization_config'",),
)
def nemotron_mixed_needs_its_layers(r: Resolution) -> Iterator[Hit]:
    """A Nemotron-H of mixed precision tells its layers' formats in config.json.

    Why: the engine looks them up under quantization_config there, and a checkpoint that has them
    in hf_quant_config.json alone ends in an attribute error.

    Fix: copy the table into config.json, or take a checkpoint of one precision.
    """
    if arch(r) not in NEMOTRON_H.split() or r.model.hf_config.get("quantization_config"):
        return
    method = r.model.quantization
    if method == "modelopt" or nemotron_quantization(r) == "modelopt_mixed":
        yield hit(
            f"config.json of {r.model.name} has no quantization_config, which a {method} "
            f"{r.model.arch} is read from",
            *((drop("quantization"),) if r.chose("quantization") else ()),
        )


def _iquest_conflicts(r: Resolution) -> Iterator[tuple[str, str]]:
    """(what an IQuest Q1 excludes, its option)."""
    for name in ("attention_backend", "prefill_attention_backend", "decode_attention_backend"):
        if getattr(r, name) not in (None, "fa3"):
            yield f"{getattr(r, name)}; its sinks need fa3", name
    algorithm = r.speculative_algorithm
    if algorithm is not None and str(algorithm).upper() not in ("EAGLE", "NEXTN"):
        yield f"--speculative-algorithm {algorithm}; it drafts with EAGLE", "speculative_algorithm"
    if algorithm is not None and r.speculative_draft_attention_backend not in (None, "fa3"):
        yield "a draft backend other than fa3", "speculative_draft_attention_backend"
    for name in ("attn_cp_size", "dcp_size", "pp_size"):
        if whole(getattr(r, name), 1) > 1:
            yield f"--{name.replace('_', '-')} {getattr(r, name)}", name
    if whole(r.speculative_eagle_topk, 1) > 1:
        yield f"{r.speculative_eagle_topk} draft paths", "speculative_eagle_topk"
    for name in ("enable_prefill_cp", "enable_multi_layer_eagle"):
        if getattr(r, name):
            yield f"--{name.replace('_', '-')}", name
    if attn_dp_enabled(r):
        yield "attention data parallelism", "attn_dp_size"


@rule(
    "KV153",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{FOLDER}/iquest_q1.py:20",
    example=Example(
        overriding(architectures=["IQuestQ1ForCausalLM"]) + " --attention-backend triton"
    ),
    fragments=("IQuestQ1", "IQuest Q1"),
)
def iquest_excludes(r: Resolution) -> Iterator[Hit]:
    """IQuest Q1 runs on FA3, in one attention group and one pipeline stage.

    Why: its sinks are applied to FA3's softmax sums, and its draft head is one serial chain.

    Fix: drop the option that is named.
    """
    if arch(r) in ("IQuestQ1ForCausalLM", "IQuestQ1MTP"):
        for found, option in _iquest_conflicts(r):
            yield hit(f"IQuest Q1 with {found}", drop(option), option=option)


@rule(
    "KV154",
    stage=Stage.RESOLVE,
    option="attn_dp_size",
    source=f"{FOLDER}/ernie45_vl.py:15",
    example=Example(
        overriding(architectures=["MiniCPMForCausalLM"]) + " --tp-size 2 --attn-dp-size 2"
    ),
    fragments=(
        "ERNIE 4.5 VL MoE does not support DP attention",
        "MiniCPM does not support DP attention",
    ),
)
def no_attention_dp(r: Resolution) -> Iterator[Hit]:
    """ERNIE 4.5 VL and MiniCPM split attention over all ranks.

    Why: their attention is written for the full tensor-parallel group.

    Fix: drop attention data parallelism.
    """
    names = (
        "Ernie4_5_VLMoeForConditionalGeneration", "MiniCPMForCausalLM", "MiniCPMSALAForCausalLM",
    )  # fmt: skip
    if arch(r) in names and attn_dp_enabled(r):
        found = f"attention data parallelism with {arch(r)}"
        yield hit(found, drop("attn_dp_size", "enable_dp_attention"))


@rule(
    "KV155",
    stage=Stage.RESOLVE,
    option="enable_hierarchical_cache",
    source=f"{FOLDER}/minicpm.py:27",
    example=Example(
        overriding(
            architectures=["MiniCPMSALAForCausalLM"],
            model_type="minicpm_sala",
            mixer_types=["minicpm4"],
            sparse_config={},
        )
        + " --enable-hierarchical-cache"
    ),
    fragments=("MiniCPM SALA does not support hierarchical", "MiniCPM sparse attention does not"),
)
def minicpm_excludes(r: Resolution) -> Iterator[Hit]:
    """MiniCPM with sparse or lightning layers has no host cache and no disaggregation.

    Why: its block index and lightning states are not copied with the KV cache.

    Fix: drop the option that is named.
    """
    if arch(r) not in ("MiniCPMForCausalLM", "MiniCPMSALAForCausalLM") or not hybrid_minicpm(r):
        return
    if r.enable_hierarchical_cache:
        yield hit("--enable-hierarchical-cache with MiniCPM", drop("enable_hierarchical_cache"))
    own = ("minicpm_flashattn", "minicpm_flashinfer")
    named = (r.attention_backend, r.prefill_attention_backend, r.decode_attention_backend)
    sparse = backends_unset(r) or any(name in own for name in named)
    forced_dense = r.env_flag("SGLANG_MINICPM_FORCE_DENSE")
    if sparse_minicpm(r) and sparse and not forced_dense and r.disaggregation_mode != "null":
        found = f"--disaggregation-mode {r.disaggregation_mode} with sparse MiniCPM"
        yield hit(found, drop("disaggregation_mode"), option="disaggregation_mode")


def _m3_speculation(r: Resolution) -> Iterator[tuple[str, str]]:
    algorithm = r.speculative_algorithm
    if algorithm not in (None, "DSPARK", "DFLASH"):
        yield f"--speculative-algorithm {algorithm}", "speculative_algorithm"
        return
    if algorithm is None:
        return
    if arch(r) != "MiniMaxM3SparseForConditionalGeneration":
        yield f"{algorithm} on the text-only class", "speculative_algorithm"
    if not r.platform.is_blackwell:
        yield f"{algorithm} on {r.platform.gpu.name}", "speculative_algorithm"
    if r.env.get("SGLANG_RAGGED_VERIFY_MODE", "static") != "static":
        yield f"{algorithm} without static verification", "speculative_algorithm"
    if r.pp_size != 1:
        yield f"{algorithm} over pipeline stages", "pp_size"
    if algorithm == "DFLASH" and r.disaggregation_mode != "null":
        yield "DFLASH under disaggregation", "disaggregation_mode"


def _m3_conflicts(r: Resolution) -> Iterator[tuple[str, str]]:
    """(what MiniMax M3.1 in NVFP4 excludes, its option)."""
    yield from _m3_speculation(r)
    if r.page_size not in (None, 128):
        yield f"--page-size {r.page_size}; it needs 128", "page_size"
    if not r.platform.is_blackwell:
        return
    if r.moe_a2a_backend not in ("none", "megamoe"):
        yield f"--moe-a2a-backend {r.moe_a2a_backend}; it needs megamoe", "moe_a2a_backend"
    if r.kv_cache_dtype not in ("auto", "fp8_e4m3"):
        yield f"{r.kv_cache_dtype} KV; it needs fp8_e4m3", "kv_cache_dtype"


@rule(
    "KV156",
    stage=Stage.RESOLVE,
    option="page_size",
    source=f"{FOLDER}/minimax_m3.py:61",
    example=Example(
        overriding(architectures=["MiniMaxM3SparseForCausalLM"], quantization_config=M3_NVFP4)
        + " --page-size 64",
        gpu="b200",
    ),
    fragments=("M3.1 NVFP4",),
)
def m3_nvfp4_excludes(r: Resolution) -> Iterator[Hit]:
    """MiniMax M3.1 in NVFP4 runs on pages of 128 with 8-bit KV.

    Why: its packed experts and sparse attention were built for that layout, for MegaMoE and for
    DSPARK or DFLASH drafts.

    Fix: drop the option that is named.
    """
    if arch(r) in MINIMAX_M3.split() and is_m3_nvfp4(r):
        for found, option in _m3_conflicts(r):
            yield hit(f"MiniMax M3.1 NVFP4 with {found}", drop(option), option=option)


@rule(
    "KV157",
    stage=Stage.RESOLVE,
    option="prefill_attention_backend",
    source=f"{FOLDER}/moss_vl.py:28",
    example=Example(
        overriding(architectures=["MossVLForConditionalGeneration"]) + " --attention-backend triton"
    ),
    fragments=("MossVLForConditionalGeneration requires flashinfer",),
)
def moss_vl_prefill(r: Resolution) -> Iterator[Hit]:
    """Moss-VL reads prompts on FlashInfer.

    Why: its cross-attention needs a mask that only FlashInfer takes.

    Fix: use flashinfer for prefill.
    """
    if arch(r) != "MossVLForConditionalGeneration" or backends_unset(r):
        return
    if r.backends[0] != "flashinfer":
        yield hit(f"{r.backends[0]} for prefill with Moss-VL", *use_backend(r, "flashinfer"))


@rule(
    "KV158",
    stage=Stage.RESOLVE,
    option="enable_unified_memory",
    source=f"{FOLDER}/qwen4_exp.py:36",
    example=Example(
        overriding(architectures=["Qwen4ExpForConditionalGeneration"]) + " --enable-unified-memory",
        model="Qwen/Qwen3.5-27B",
    ),
    fragments=("Qwen4-Exp",),
)
def qwen4_excludes(r: Resolution) -> Iterator[Hit]:
    """Qwen 4 goes without unified memory and without MORI over pipeline stages.

    Why: its compressed index has a pool of its own, which neither carries; 8-bit scoring needs
    that index on SM90 or SM100.

    Fix: drop the option that is named.
    """
    if arch(r) != "Qwen4ExpForConditionalGeneration":
        return
    if r.enable_unified_memory:
        yield hit("--enable-unified-memory with Qwen 4", drop("enable_unified_memory"))
    mori = r.disaggregation_mode != "null" and r.disaggregation_transfer_backend == "mori"
    if mori and whole(r.pp_size, 1) > 1:
        yield hit(f"MORI with --pp-size {r.pp_size}", drop("pp_size"), option="pp_size")
    if r.qsa_indexer_dtype == "fp8_e4m3":
        served = r.platform.is_cuda and (r.platform.is_sm90 or r.platform.is_sm100)
        if not served or not compressed_qsa(r):
            found = "8-bit index scores need SM90 or SM100 and a compressed index"
            yield hit(found, drop("qsa_indexer_dtype"), option="qsa_indexer_dtype")


@rule(
    "KV159",
    stage=Stage.RESOLVE,
    option="decode_attention_backend",
    source=f"{FOLDER}/kimi_k3.py:112",
    example=Example(
        "--tp-size 8 --dcp-size 2 --attention-backend flashinfer",
        model="moonshotai/Kimi-K3",
        gpu="b200",
    ),
    fragments=("Decode attention backend for Kimi-K3 DCP", "Kimi-K3 DCP + DSPARK currently"),
)
def kimi_k3_dcp_backends(r: Resolution) -> Iterator[Hit]:
    """Decode context parallelism of Kimi K3 runs on cutedsl_mla or aiter.

    Why: only these merge the partial softmax of several ranks for its heads, and they verify
    DSPARK drafts in static blocks only.

    Fix: leave the attention backend to the engine.
    """
    if arch(r) != "KimiK3ForConditionalGeneration" or whole(r.dcp_size, 1) <= 1:
        return
    accepted = ("cutedsl_mla", "aiter")
    if r.backends[1] not in (None, *accepted):
        found = f"{r.backends[1]} for decode with --dcp-size {r.dcp_size}"
        yield hit(f"{found}; it runs on {listed(accepted)}", *use_backend(r), drop("dcp_size"))
    mode = r.env.get("SGLANG_RAGGED_VERIFY_MODE", "static")
    if r.speculative_algorithm == "DSPARK" and mode != "static":
        yield hit(
            f"SGLANG_RAGGED_VERIFY_MODE={mode} with --dcp-size {r.dcp_size}",
            drop("dcp_size"),
            option="dcp_size",
        )


@rule(
    "KV140",
    stage=Stage.RESOLVE,
    option="ep_size",
    source="arg_groups/overrides.py:869",
    example=Example(
        "--tp-size 8 --quantization modelopt_fp4 --speculative-algorithm EAGLE",
        model="nvidia/DeepSeek-V3.1-NVFP4",
        gpu="mi300x",
        env={"SGLANG_NVFP4_CKPT_FP8_NEXTN_MOE": "1"},
    ),
    fragments=("'deep_gemm' speculative MoE runner backend",),
)
def hip_draft_experts(r: Resolution) -> Iterator[Hit]:
    """Draft experts in 8 bits beside an FP4 checkpoint need expert parallelism on ROCm.

    Why: SGLANG_NVFP4_CKPT_FP8_NEXTN_MOE runs them on deep_gemm with DeepEP, which exchanges
    tokens between ranks.

    Fix: raise --ep-size, or unset the variable.
    """
    drafts = (
        r.platform.is_hip
        and uses_mla(r)
        and r.quantization == "modelopt_fp4"
        and r.speculative_algorithm == "EAGLE"
        and None in (r.speculative_moe_runner_backend, r.speculative_moe_a2a_backend)
    )
    if drafts and r.env_flag("SGLANG_NVFP4_CKPT_FP8_NEXTN_MOE") and r.ep_size == 1:
        yield hit("--ep-size is 1", set_to("split experts over all ranks", ep_size=r.tp_size))


MODEL_OVERRIDE_RULES: tuple[Part, ...] = (
    hyv4_without_cp,
    dsa_dcp_excludes,
    dsa_cp_on_one_machine,
    pooled_index_without_dcp,
    no_attention_dp,
    iquest_excludes,
    kimi_k3_dcp_backends,
    minicpm_excludes,
    m3_nvfp4_excludes,
    moss_vl_prefill,
    nemotron_mixed_needs_its_layers,
    nemotron_expert_remap,
    w4a16_runners,
    qwen4_excludes,
)
"""Refusals that fire while the overrides are collected, before any is applied."""
