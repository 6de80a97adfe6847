"""Attention back ends: defaults, rewrites, refusals, and kernels that are missing late."""

from __future__ import annotations

import pytest

from kvtui.core.findings import Stage
from kvtui.core.late.backends import backend_table
from kvtui.core.options import catalogue
from tests.support import errors_of, judge

DENSE = "--model-path Qwen/Qwen3-8B"
MLA = "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8"
HYBRID = "--model-path Qwen/Qwen3.5-27B"


@pytest.mark.parametrize(
    ("argv", "gpu", "backend"),
    [
        (DENSE, "a100-80", "flashinfer"),
        (DENSE, "h100", "fa3"),
        (DENSE, "b200", "trtllm_mha"),
        (DENSE, "rtx5090", "flashinfer"),
        (DENSE, "t4", "flashinfer"),
        (DENSE, "mi300x", "aiter"),
        (MLA, "a100-80", "triton"),
        (MLA, "h100", "fa3"),
        (f"{DENSE} --enable-deterministic-inference", "b200", "flashinfer"),
        (f"{DENSE} --enable-deterministic-inference", "a100-80", "fa3"),
        (f"{MLA} --enable-deterministic-inference", "h200", "fa3"),
    ],
)
def test_default_backend(argv: str, gpu: str, backend: str) -> None:
    assert judge(argv, gpu).plan.backends == (backend, backend)


def test_flashinfer_can_be_switched_off() -> None:
    report = judge(DENSE, "a100-80", env={"SGLANG_IS_FLASHINFER_AVAILABLE": "false"})
    assert report.plan.backends == ("triton", "triton")
    assert report.plan.values["sampling_backend"] == "pytorch"


def test_equal_phases_become_the_common_backend() -> None:
    argv = f"{DENSE} --prefill-attention-backend triton --decode-attention-backend triton"
    assert judge(argv).plan.values["attention_backend"] == "triton"


@pytest.mark.parametrize(
    ("argv", "gpu", "asked", "page"),
    [
        (f"{MLA} --attention-backend flashmla", "h100", 16, 64),
        (f"{MLA} --attention-backend trtllm_mla", "b200", 32, 32),
        (f"{MLA} --attention-backend trtllm_mla", "b200", 128, 64),
        (f"{DENSE} --attention-backend trtllm_mha", "h100", 128, 128),
        (f"{DENSE} --attention-backend trtllm_mha", "h100", 256, 64),
        (f"{DENSE} --attention-backend fa4", "b200", 64, 128),
        (f"{DENSE} --attention-backend fa4", "h100", 64, 64),
        (f"{DENSE} --attention-backend hpc_ops", "h100", 1, 64),
        (f"{DENSE} --prefill-attention-backend fa4 --decode-attention-backend trtllm_mha",
         "b200", 16, 128),
    ],
)  # fmt: skip
def test_backends_replace_pages_they_lack(argv: str, gpu: str, asked: int, page: int) -> None:
    report = judge(f"{argv} --page-size {asked}", gpu)
    assert report.plan.values["page_size"] == page
    if asked != page:
        assert report.plan.origins["page_size"].kind == "forced"


def test_fa3_with_e5m2_becomes_triton() -> None:
    report = judge(f"{DENSE} --attention-backend fa3 --kv-cache-dtype fp8_e5m2")
    assert report.plan.backends == ("triton", "triton")
    assert not report.errors


@pytest.mark.parametrize(
    ("argv", "gpu", "rule"),
    [
        (f"{MLA} --attention-backend trtllm_mla", "h200", "KV221"),
        (f"{MLA} --attention-backend trtllm_mla --kv-cache-dtype bfloat16", "b200", "KV222"),
        (f"{MLA} --prefill-attention-backend cutedsl_mla", "b200", "KV223"),
        (f"{MLA} --attention-backend cutedsl_mla", "rtx5090", "KV224"),
        (f"{DENSE} --decode-attention-backend trtllm_mha", "a100-80", "KV226"),
        (f"{DENSE} --kv-cache-dtype nvfp4", "a100-80", "KV226"),
        (f"{DENSE} --attention-backend trtllm_mha --kv-cache-dtype fp8_e4m3", "rtx5090", "KV227"),
        (f"{HYBRID} --linear-attn-backend flashinfer", "b200", "KV241"),
        (f"{DENSE} --enable-mis", "h100", "KV255"),
    ],
)
def test_refused_while_resolving(argv: str, gpu: str, rule: str) -> None:
    report = judge(argv, gpu)
    assert rule in errors_of(report)
    assert next(f for f in report.errors if f.rule == rule).stage is Stage.RESOLVE


def test_scoring_turns_off_what_it_cannot_use() -> None:
    values = judge(f"{DENSE} --enable-mis --attention-backend flashinfer").plan.values
    assert values["disable_radix_cache"] is True
    assert values["chunked_prefill_size"] == -1
    assert not values["cuda_graph_config"].decode.enabled


def test_deterministic_flashinfer_has_no_prefix_cache() -> None:
    argv = f"{DENSE} --enable-deterministic-inference --tp-size 2"
    values = judge(f"{argv} --attention-backend flashinfer").plan.values
    assert values["disable_radix_cache"] is True
    assert values["disable_custom_all_reduce"] is True
    assert judge(f"{argv} --attention-backend fa3").plan.values["disable_radix_cache"] is False


def test_blackwell_decodes_bf16_states_with_flashinfer() -> None:
    argv = f"{HYBRID} --mamba-ssm-dtype bfloat16"
    assert judge(argv, "b200").plan.values["linear_attn_decode_backend"] == "flashinfer"
    assert judge(argv, "rtxpro6000").plan.values["linear_attn_decode_backend"] is None
    assert judge(HYBRID, "b200").plan.values["linear_attn_decode_backend"] is None


@pytest.mark.parametrize(
    ("argv", "gpu", "rule"),
    [
        (f"{DENSE} --attention-backend fa3", "b200", "KV900"),
        (f"{MLA} --attention-backend fa3", "a100-80", "KV900"),
        (f"{DENSE} --enable-deterministic-inference", "t4", "KV900"),
        (f"{MLA} --attention-backend fa4", "h200", "KV901"),
        (f"{MLA} --attention-backend flashmla", "b200", "KV901"),
        (f"{MLA} --attention-backend trtllm_mla --kv-cache-dtype fp8_e4m3", "rtxpro6000", "KV901"),
        (f"{DENSE} --attention-backend intel_amx", "h100", "KV902"),
        (f"{DENSE} --attention-backend fa3", "mi300x", "KV902"),
        (f"{DENSE} --attention-backend flashmla", "h100", "KV903"),
        (f"{MLA} --attention-backend trtllm_mha", "b200", "KV903"),
        (f"{DENSE} --attention-backend dsv4", "h100", "KV904"),
        (f"{HYBRID} --attention-backend fa4", "rtx5090", "KV905"),
        (f"{MLA} --kv-cache-dtype fp8_e4m3", "a100-80", "KV907"),
        (f"{DENSE} --attention-backend fa3 --kv-cache-dtype fp8_e4m3", "l40s", "KV908"),
        (f"{DENSE} --attention-backend fa4 --kv-cache-dtype fp8_e4m3", "h100", "KV908"),
        (f"{DENSE} --prefill-attention-backend fa3 --kv-cache-dtype fp8_e5m2", "h100", "KV908"),
        (DENSE, "v100", "KV914"),
        (f"{HYBRID} --linear-attn-backend flashinfer", "a100-80", "KV926"),
        (f"{HYBRID} --linear-attn-backend helion", "h100", "KV926"),
    ],
)
def test_missing_kernels_are_foretold(argv: str, gpu: str, rule: str) -> None:
    report = judge(argv, gpu)
    late = {finding.rule: finding for finding in report.errors if finding.stage.is_late}
    assert rule in late
    assert report.outcome == "fails"


@pytest.mark.parametrize(
    ("argv", "gpu"),
    [
        (f"{DENSE} --attention-backend fa3", "a100-80"),
        (f"{DENSE} --attention-backend fa3", "l40s"),
        (f"{MLA} --attention-backend fa3", "h200"),
        (f"{MLA} --attention-backend flashmla --kv-cache-dtype fp8_e4m3", "h200"),
        (f"{DENSE} --attention-backend triton --kv-cache-dtype fp8_e4m3", "l40s"),
        (f"{DENSE} --attention-backend triton --kv-cache-dtype fp8_e5m2", "a100-80"),
        (f"{DENSE} --attention-backend flashinfer --kv-cache-dtype fp8_e4m3", "a100-80"),
        (f"{HYBRID} --attention-backend flashinfer", "b300"),
        (f"{DENSE} --attention-backend trtllm_mha --page-size 128 --tp-size 8", "b200"),
        ("--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8", "h200"),
        ("--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8", "b200"),
        ("--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 8", "rtxpro6000"),
    ],
)
def test_kernels_that_exist_are_left_alone(argv: str, gpu: str) -> None:
    kernels = {f.rule for f in judge(argv, gpu).errors if "KV900" <= f.rule <= "KV929"}
    assert kernels == set()


def test_a_backend_is_judged_once_whichever_rule_finds_it() -> None:
    report = judge(f"{MLA} --attention-backend trtllm_mla", "h200")
    assert "KV221" in errors_of(report)
    assert "KV901" not in errors_of(report)


def test_a_prefill_server_needs_no_decode_kernels() -> None:
    argv = f"{MLA} --attention-backend flashmla --disaggregation-mode prefill"
    assert "KV901" not in errors_of(judge(argv, "b200"))


def test_a_draft_backend_needs_kernels_too() -> None:
    argv = f"{MLA} --speculative-algorithm NEXTN --speculative-draft-attention-backend fa3"
    assert "KV900" in errors_of(judge(argv, "b200"))


def test_the_table_knows_every_backend_that_has_limits() -> None:
    choices = set(catalogue().options["attention_backend"].choices or ())
    table = backend_table()
    assert set(table.backends) <= choices
    unlimited = {"triton", "torch_native", "flex_attention"}
    renamed = {"compressed", "tokenspeed_mla"}
    assert choices - set(table.backends) == unlimited | renamed
    dsa = set(catalogue().options["dsa_decode_backend"].choices or ())
    assert set(table.dsa) <= dsa | set(catalogue().options["dsa_prefill_backend"].choices or ())
