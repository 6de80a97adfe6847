"""MoE runners, exchanges between expert ranks, and their token budgets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kvtui.core.evaluate import Report
from tests.support import errors_of, judge

MOE = "Qwen/Qwen3-30B-A3B"
FP8 = "Qwen/Qwen3-30B-A3B-FP8"
V3 = "deepseek-ai/DeepSeek-V3"
NVFP4 = "nvidia/DeepSeek-V3.1-NVFP4"


def launch(
    model: str, argv: str, gpu: str = "h200", env: Mapping[str, str] | None = None
) -> Report:
    return judge(f"--model-path {model} --tp-size 8 {argv}", gpu, env=env)


def test_megamoe_as_runner_means_the_exchange() -> None:
    values = launch(FP8, "--moe-runner-backend megamoe").plan.values
    assert values["moe_a2a_backend"] == "megamoe"
    assert values["ep_size"] == 8


@pytest.mark.parametrize("exchange", ["deepep", "mooncake", "nixl", "ascend_fuseep", "megamoe"])
def test_exchanges_spread_experts_over_all_ranks(exchange: str) -> None:
    values = launch(V3, f"--moe-a2a-backend {exchange} --ep-size 2").plan.values
    assert values["ep_size"] == 8


def test_plain_exchange_leaves_the_expert_width() -> None:
    values = launch(V3, "--moe-a2a-backend ascend_tp --ep-size 2").plan.values
    assert (values["moe_a2a_backend"], values["ep_size"]) == ("none", 2)


def test_waterfill_brings_deepep_and_fused_shared_experts() -> None:
    values = launch(V3, "--enable-waterfill --disable-shared-experts-fusion").plan.values
    assert values["moe_a2a_backend"] == "deepep"
    assert values["disable_shared_experts_fusion"] is False
    assert values["enforce_shared_experts_fusion"] is True


def test_normal_deepep_is_not_captured() -> None:
    report = launch(V3, "--moe-a2a-backend deepep --deepep-mode normal")
    graphs = report.plan.values["cuda_graph_config"]
    assert not graphs.decode.enabled
    assert not graphs.prefill.enabled


@pytest.mark.parametrize(
    ("model", "argv", "gpu", "rule"),
    [
        (V3, "--moe-a2a-backend megamoe --enable-two-batch-overlap", "b200", "KV1000"),
        (V3, "--moe-a2a-backend megamoe", "a100-80", "KV1001"),
        (MOE, "--quantization nvfp4_online", "h200", "KV1002"),
        (MOE, "--quantization nvfp4_online --moe-runner-backend triton", "b200", "KV1002"),
        (FP8, "--quantization fp8 --moe-runner-backend flashinfer_cutlass", "h200", "KV1003"),
        (MOE, "--ep-size 2 --moe-runner-backend flashinfer_cutlass", "h200", "KV1004"),
        (V3, "--flashinfer-a2a-dispatch-type bf16", "h200", "KV1010"),
        ("openai/gpt-oss-20b", "--moe-a2a-backend flashinfer_megamoe", "b200", "KV1011"),
        (V3, "--moe-a2a-backend flashinfer_megamoe --attn-dp-size 8", "b200", "KV1011"),
        ("openai/gpt-oss-20b", "--moe-a2a-backend deepep_v2", "h200", "KV1013"),
        (V3, "--moe-a2a-backend flashinfer", "h200", "KV1014"),
        (V3, "--moe-a2a-backend flashinfer --attn-dp-size 8", "h200", "KV1016"),
        (V3, "--moe-a2a-backend pplx", "h200", "KV1017"),
        (V3, "--moe-a2a-backend mori", "h200", "KV1018"),
        (V3, "--moe-a2a-backend deepep_v2", "h200", "KV1024"),
    ],
)
def test_refused(model: str, argv: str, gpu: str, rule: str) -> None:
    assert rule in errors_of(launch(model, argv, gpu))


def test_smaller_buffers_take_smaller_chunks() -> None:
    name = "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
    assert "KV1024" not in errors_of(launch(V3, "--moe-a2a-backend deepep_v2", env={name: "1024"}))
    assert "KV1018" not in errors_of(launch(V3, "--moe-a2a-backend mori --attn-dp-size 8"))
    small = "--moe-a2a-backend pplx --attn-dp-size 8 --chunked-prefill-size 1024 "
    small += "--cuda-graph-max-bs-decode 64"
    assert "KV1018" not in errors_of(launch(V3, small))


def test_a_budget_fix_sets_the_variable_it_names() -> None:
    report = launch(V3, "--moe-a2a-backend deepep_v2")
    found = next(f for f in report.errors if f.rule == "KV1024")
    (change,) = found.fixes[0].changes
    assert change.option.startswith("env:SGLANG_DEEPEP_V2")
    assert int(change.value) == 1024


def test_mega_moe_buffer_counts_the_chunk_of_one_rank() -> None:
    argv = "--moe-a2a-backend megamoe --chunked-prefill-size 65536"
    assert "KV1021" in errors_of(launch(FP8, argv))
    assert "KV1021" not in errors_of(launch(FP8, argv + " --attn-dp-size 8"))


def test_drafts_do_not_inherit_deepep_v2() -> None:
    argv = "--moe-a2a-backend deepep_v2 --speculative-algorithm EAGLE"
    assert "KV1023" in errors_of(launch(V3, argv))
    assert "KV1023" not in errors_of(launch(V3, argv + " --speculative-moe-a2a-backend none"))


def test_fp4_dispatch_is_switched_on_for_fp4_experts() -> None:
    argv = (
        "--attn-dp-size 8 --moe-a2a-backend flashinfer --quantization modelopt_fp4 "
        "--moe-runner-backend flashinfer_trtllm"
    )
    typed = launch(NVFP4, argv + " --flashinfer-a2a-dispatch-type auto", "b200").plan.values
    assert typed["flashinfer_a2a_dispatch_type"] == "nvfp4"
    assert typed["moe_runner_backend"] == "flashinfer_trtllm_routed"
    assert launch(NVFP4, argv, "b200").plan.values["flashinfer_a2a_dispatch_type"] is None


def test_mxfp8_replaces_a_runner_that_has_no_kernels_for_it() -> None:
    report = launch(MOE, "--quantization mxfp8 --moe-runner-backend triton", "b200")
    assert report.plan.values["moe_runner_backend"] == "flashinfer_trtllm"
    assert report.plan.origins["moe_runner_backend"].kind == "forced"
