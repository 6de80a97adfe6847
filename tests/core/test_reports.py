"""Public bug reports about launches, in our own words: what the rules must say to each today.

`reject`: the launch fails, and the option named here (or the deciding rule) is among the errors.
`warn`: it starts, with a warning about the option. `accept`: it starts.
Where a report names no model or GPU, a plain stand-in of the same family is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kvtui.core.evaluate import Report, evaluate
from kvtui.core.facts import HostFacts
from kvtui.core.findings import Outcome
from kvtui.core.model.catalogue import find
from tests.support import draft_of, facts_for

R1 = "deepseek-ai/DeepSeek-R1"
V32 = "deepseek-ai/DeepSeek-V3.2"
V4 = "deepseek-ai/DeepSeek-V4-Flash"
QWEN = "Qwen/Qwen3-8B"
QWEN32 = "Qwen/Qwen3-32B"
HYBRID = "Qwen/Qwen3.5-27B"
HYBRID_MOE = "Qwen/Qwen3.5-35B-A3B"
DRAFT = "meta-llama/Llama-3.2-1B-Instruct"
HICACHE = "--enable-hierarchical-cache"


@dataclass(frozen=True)
class Case:
    """One report: where it was made, what happened, and what should be said now."""

    ref: str
    title: str
    expect: str
    model: str
    gpu: str
    argv: str
    option: str | None = None
    host_gb: float | None = None


CASES = (
    Case("18550", "fa3 was asked with e5m2 keys and triton ran", "warn", QWEN, "h100",
         "--kv-cache-dtype fp8_e5m2 --attention-backend fa3", "attention_backend"),
    Case("6354", "FlashMLA reads 8-bit KV today", "accept", R1, "h200",
         "--tp 8 --attention-backend flashmla --kv-cache-dtype fp8_e4m3"),
    Case("12675", "a decode server with FlashMLA and 8-bit KV", "accept", R1, "h200",
         "--tp 8 --disaggregation-mode decode --attention-backend flashmla "
         "--kv-cache-dtype fp8_e4m3"),
    Case("14691", "sparse attention picks a kernel for 8-bit KV by itself", "accept", V32, "h200",
         "--tp 8 --kv-cache-dtype fp8_e4m3"),
    Case("20820", "8-bit KV without scales costs accuracy", "warn", "MiniMaxAI/MiniMax-M2.7",
         "h100", "--tp 4 --disable-radix-cache --kv-cache-dtype fp8_e4m3 --attention-backend fa3 "
         "--trust-remote-code", "kv_cache_dtype"),
    Case("9982", "--cuda-graph-max-bs fits two options now", "reject", R1, "b200",
         "--attention-backend flashinfer --page-size 64 --tp-size 8 --cuda-graph-max-bs 512",
         "cuda_graph_max_bs_decode"),
    Case("38291", "E4M3 weights in Triton kernels below SM89", "reject",
         "Qwen/Qwen3-30B-A3B-FP8", "a100-80", "--tp 4 --kv-cache-dtype fp8_e4m3", None),
    Case("33194", "DeepSeek-V4 stores packed bytes, no bfloat16 rows", "reject",
         V4, "h200", "--tp 8 --kv-cache-dtype bfloat16", "kv_cache_dtype"),
    Case("36830", "tilelang on both sides with 8-bit KV", "accept", V32, "h200",
         "--tp 8 --dsa-prefill-backend tilelang --dsa-decode-backend tilelang "
         "--kv-cache-dtype fp8_e4m3"),
    Case("24633", "TRT-LLM MLA finds no kernel on SM120", "reject", R1, "rtxpro6000",
         "--tp 8 --attention-backend trtllm_mla --kv-cache-dtype fp8_e4m3 "
         "--mem-fraction-static 0.9", "attention_backend"),
    Case("15133", "fp4_e2m1 is no KV dtype any more", "reject", QWEN, "rtxpro6000",
         "--kv-cache-dtype fp4_e2m1", "kv_cache_dtype"),
    Case("36340", "host pools don't keep FP4 block scales", "reject", QWEN, "b200",
         f"--kv-cache-dtype nvfp4 {HICACHE}", None),
    Case("12360", "fa3 has no kernels for Blackwell", "reject", "Qwen/Qwen3-VL-4B-Instruct", "b200",
         "--attention-backend fa3", "attention_backend"),
    Case("35080", "flashinfer serves hybrid models on Blackwell", "accept", HYBRID_MOE, "b300",
         "--attention-backend flashinfer"),
    Case("14439", "fa4 and trtllm_mha disagree on the page size", "warn", QWEN, "b200",
         "--prefill-attention-backend fa4 --decode-attention-backend trtllm_mha", "page_size"),
    Case("8935", "an unlimited chunk needs no whole pages", "accept", QWEN, "b200",
         "--page-size 64 --chunked-prefill-size -1"),
    Case("18262", "the aiter workspace is in no budget", "warn",
         "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "mi355x", "--tensor-parallel-size 1",
         "mem_fraction_static"),
    Case("39517", "drafts with 8-bit KV on ROCm fault in aiter", "warn", HYBRID_MOE, "mi355x",
         "--speculative-algorithm NEXTN --kv-cache-dtype fp8_e4m3", "kv_cache_dtype"),
    Case("36701", "flashinfer's linear decode wants bfloat16 states on Blackwell", "reject",
         HYBRID_MOE, "rtxpro6000", "--tp 4 --linear-attn-decode-backend flashinfer",
         "mamba_ssm_dtype"),
    Case("8102", "40 GB of HiCache on a host with 44.87 GB free", "reject", QWEN, "h100",
         f"{HICACHE} --hicache-size 40", "hicache_size", host_gb=44.87),
    Case("ix-3004", "a ratio multiplies the device pool of every rank", "warn",
         "zai-org/GLM-5.2-FP8", "mi355x", f"--tp 4 {HICACHE} --hicache-ratio 1.5", "hicache_ratio"),
    Case("29034", "one size is shared by KV and state pools", "accept", "Qwen/Qwen3.5-397B-A17B",
         "b300", f"--tp 8 {HICACHE} --hicache-size 20 --mamba-full-memory-ratio 0.1"),
    Case("5372", "staging buffers beside a fraction of 0.95", "warn", R1, "h200",
         f"--tp 8 --mem-fraction-static 0.95 {HICACHE} --hicache-ratio 2", "mem_fraction_static"),
    Case("40135", "the default ratio is sized to the host", "accept",
         "meta-llama/Llama-3.1-70B-Instruct", "h100", f"--tp 8 {HICACHE}"),
    Case("7666", "pinning twice the device pool", "warn", QWEN, "h100",
         f"{HICACHE} --hicache-ratio 2", "hicache_ratio"),
    Case("26754", "HiCache over pipeline stages of DeepSeek-V4", "accept", V4, "h200",
         f"--tp-size 2 --pp-size 4 --page-size 256 {HICACHE} --hicache-ratio 4 "
         "--hicache-write-policy write_through --hicache-io-backend direct "
         "--hicache-mem-layout page_first"),
    Case("37122", "split index layers can't be backed up page first", "reject",
         "zai-org/GLM-5.2-FP8", "h200",
         "--tp 8 --disaggregation-mode prefill --enable-prefill-cp --cp-strategy interleave "
         f"--enable-dsa-cache-layer-split {HICACHE} --hicache-io-backend direct "
         "--hicache-storage-backend mooncake", None),
    Case("30158", "pipeline stages with mooncake prefetch", "accept", QWEN32, "h100",
         f"--tp 4 --pp-size 2 --kv-cache-dtype fp8_e4m3 {HICACHE} --hicache-size 80 "
         "--hicache-storage-prefetch-policy timeout --hicache-storage-backend mooncake "
         "--hicache-write-policy write_through_selective --hicache-mem-layout layer_first "
         "--page-size 64"),
    Case("25766", "drafts and HiCache on a hybrid model", "accept", HYBRID, "h200",
         f"{HICACHE} --speculative-algorithm NEXTN --speculative-num-steps 3 "
         "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"),
    Case("10030", "nixl as the store", "accept", QWEN, "h100",
         f"{HICACHE} --hicache-storage-backend nixl"),
    Case("38844", "HiCache without a radix cache", "reject", V4, "h200",
         f"--tp 8 --disable-radix-cache {HICACHE} --hicache-ratio 2", "disable_radix_cache"),
    Case("40314", "an option that was never released", "reject", QWEN32, "h100",
         "--disaggregation-mode decode --disaggregation-decode-enable-radix-cache "
         "--disaggregation-decode-enable-hicache", None),
    Case("33268", "stored pages know no dtype", "warn", QWEN32, "h200",
         f"--kv-cache-dtype fp8_e4m3 {HICACHE} --hicache-storage-backend file",
         "hicache_storage_backend"),
    Case("7158", "DP attention with HiCache", "accept", R1, "h200",
         f"--tp 8 --attn-dp-size 8 {HICACHE}"),
    Case("27010", "context parallelism under its old name", "reject", "zai-org/GLM-5.2-FP8", "h200",
         "--tp 8 --disaggregation-mode prefill --enable-nsa-prefill-context-parallel", None),
    Case("20677", "decode offload without a store", "reject", QWEN, "h100",
         "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache",
         "hicache_storage_backend"),
    Case("11016", "decode offload over two ranks", "warn", QWEN, "h100",
         "--disaggregation-mode decode --tp 2 --disaggregation-decode-enable-offload-kvcache "
         "--hicache-storage-backend mooncake", "disaggregation_decode_enable_offload_kvcache"),
    Case("24523", "the old spelling of DP attention", "accept", V4, "h200",
         "--tp 8 --dp-size 8 --enable-dp-attention --disaggregation-mode prefill"),
    Case("28683", "a target and its draft leave no room at 0.9", "reject",
         V4, "l40s",
         "--tp 4 --speculative-algorithm EAGLE --speculative-num-steps 3 "
         "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --mem-fraction-static 0.9",
         "mem_fraction_static"),
    Case("35777", "0.92 by hand on a 32 GB card", "warn", QWEN, "rtx5090",
         "--mem-fraction-static 0.92 --attention-backend flashinfer", "mem_fraction_static"),
    Case("1869", "9B in bfloat16 on a 24 GB card at the default fraction", "reject",
         "google/gemma-2-9b-it", "rtx3090", "", "mem_fraction_static"),
    Case("10736", "an option that is gone, and 160 GB of weights on one card", "reject",
         "Qwen/Qwen3-Next-80B-A3B-Instruct", "h20",
         "--trust-remote-code --torchao-config int8dq", None),
    Case("6744", "a request table for 2.8 million tokens", "reject",
         "meta-llama/Llama-4-Scout-17B-16E-Instruct", "h100", "--tp 8 --context-length 2800000",
         None),
    Case("5634", "graph sizes are scaled for DP attention", "accept", "deepseek-ai/DeepSeek-V3",
         "h200", "--tp 8 --trust-remote-code --enable-dp-attention --dp-size 8"),
    Case("6027", "DP attention with a hand-set fraction", "warn", R1, "h200",
         "--tp 8 --dp-size 8 --enable-dp-attention --mem-fraction-static 0.9",
         "attn_dp_size"),
    Case("12373", "sparse attention options under their old names", "reject", V32, "h20",
         "--tp-size 8 --cuda-graph-max-bs 32 --page-size 64 --nsa-prefill fa3 --nsa-decode fa3",
         None),
    Case("6082", "images on four small cards", "warn", "Qwen/Qwen3-VL-32B-Instruct", "rtx5090",
         "--tp 4", "mem_fraction_static"),
    Case("9181", "an embedding server that still wants a radix cache", "reject",
         "Qwen/Qwen3-Embedding-8B", "h100", "--is-embedding --prefill-only-disable-kv-cache", None),
    Case("37610", "4,096 tokens leave a sliding pool of 256", "reject", V4, "h200",
         "--tp 4 --max-total-tokens 4096", None),
    Case("17630", "an EAGLE3 draft beside a sliding-window target", "accept",
         "openai/gpt-oss-120b", "h200",
         "--mem-fraction-static 0.8 --speculative-algorithm EAGLE3 "
         f"--speculative-draft-model-path {DRAFT} --speculative-num-steps 3 "
         "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"),
    Case("18786", "states take a share of the budget", "accept",
         "Qwen/Qwen3-Next-80B-A3B-Instruct", "h200", "--tp 4"),
    Case("19169", "extra buffers without a radix cache", "accept", HYBRID_MOE, "h200",
         "--tp 4 --disable-radix-cache --mamba-radix-cache-strategy extra_buffer"),
    Case("jp-5", "40 slots serve 8 of 16 requests", "warn", HYBRID_MOE, "rtxpro6000",
         "--max-mamba-cache-size 40 --max-running-requests 16 --speculative-algorithm NEXTN "
         "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
         "max_running_requests"),
    Case("22970", "HiSparse wants no radix cache", "reject", "zai-org/GLM-5.2-FP8", "h200",
         "--tp 8 --enable-hisparse", None),
    Case("33075", "HiSparse on SM120", "accept", "nvidia/GLM-5.2-NVFP4", "rtxpro6000",
         "--tp 8 --enable-hisparse --disable-radix-cache --kv-cache-dtype fp8_e4m3"),
    Case("23970", "sparse back ends under their old names with HiSparse", "reject",
         "zai-org/GLM-5.2-FP8", "mi300x",
         "--tensor-parallel-size 8 --enable-hisparse --nsa-prefill-backend tilelang "
         "--nsa-decode-backend tilelang --kv-cache-dtype bfloat16 --disable-radix-cache", None),
    Case("lmc-2084", "LMCache on a plain model", "accept", "Qwen/Qwen3-14B", "a100-80",
         "--enable-lmcache"),
    Case("lmc-869", "LMCache knows no DP attention", "reject", R1, "h200",
         "--tp 8 --attn-dp-size 8 --enable-lmcache", "enable_lmcache"),
    Case("9784", "a draft tree needs single-token pages", "reject", R1, "h200",
         "--tp 8 --speculative-algorithm NEXTN --speculative-num-steps 3 "
         "--speculative-eagle-topk 4 --speculative-num-draft-tokens 8 "
         "--attention-backend flashmla", None),
    Case("3315", "two abbreviations that became ambiguous", "reject",
         "Qwen/Qwen2.5-7B-Instruct", "h20",
         "--disable-radix-cache --speculative-algo EAGLE --speculative-draft x "
         "--speculative-num-steps 5 --speculative-eagle-topk 8 "
         "--speculative-num-draft-tokens 64 --cuda-graph-max-bs 32", None),
    Case("22987", "four device pools on each of eight ranks", "warn", "nvidia/Kimi-K2.5-NVFP4",
         "b200", f"--trust-remote-code --tp 8 {HICACHE} --hicache-ratio 4 --page-size 64 "
         "--hicache-write-policy write_through", "hicache_ratio"),
)  # fmt: skip


def report_of(case: Case) -> Report:
    """The report on a case."""
    draft = draft_of(f"--model-path {case.model} {case.argv}", gpu=case.gpu)
    known = {}
    path = draft.options.get("speculative_draft_model_path")
    checkpoint = find(DRAFT)
    if isinstance(path, str) and checkpoint is not None:
        config = {**checkpoint.config, "architectures": ["LlamaForCausalLMEagle3"]}
        known[path] = replace(checkpoint, key="eagle3 draft", config=config)
    facts = facts_for(draft, known)
    if case.host_gb is not None:
        size = int(case.host_gb * 1e9)
        facts = replace(facts, host=HostFacts(size, size))
    return evaluate(draft, facts)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.ref)
def test_report(case: Case) -> None:
    report = report_of(case)
    told = [f"{f.severity.value} {f.rule} {f.option}: {f.message}" for f in report.findings]
    assert not report.unknowns, report.unknowns
    if case.expect == "reject":
        assert report.outcome is Outcome.FAILS, told
        named = [f.option for f in report.errors]
        if case.option is not None and not any(f.stage.value == "parse" for f in report.errors):
            named += [c.option for f in report.errors for fix in f.fixes for c in fix.changes]
            assert case.option in named, told
        assert any(f.fixes for f in report.errors), told
    else:
        assert report.outcome is Outcome.STARTS, told
    if case.expect == "warn":
        assert case.option in [f.option for f in report.warnings], told
