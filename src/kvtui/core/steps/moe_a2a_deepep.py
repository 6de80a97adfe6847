"""DeepEP exchanges of expert tokens (`srt/arg_groups/moe_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import from_instance, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.graphs import DECODE, PREFILL
from kvtui.core.resolution import Example, Hit, Resolution, hit, rule, step
from kvtui.core.steps.moe_a2a_common import (
    first_broken,
    without_graphs,
)

DEEPEP_V2_MODELS = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "MiMoV2ForCausalLM",
        "MiMoV2FlashForCausalLM",
    }
)
"""Architectures with a DeepEP v2 policy (configs/moe_model_registry.py:22)."""


@rule(
    "KV1012", stage=Stage.RESOLVE, option="deepep_mode", source="arg_groups/moe_hook.py:376",
    example=Example(
        "--tp-size 8 --moe-a2a-backend deepep --deepep-mode normal "
        "--moe-runner-backend flashinfer_cutedsl", model="nvidia/DeepSeek-V3.1-NVFP4", gpu="b200",
    ),
    fragments=("flashinfer_cutedsl FP4 MoE only supports DeepEP",),
)  # fmt: skip
def cutedsl_needs_low_latency(r: Resolution) -> Iterator[Hit]:
    """CuteDSL experts take DeepEP's low-latency layout only.

    Why: there is no FP4 handler for DeepEP's normal dispatch.

    Fix: leave `--deepep-mode` out.
    """
    if (
        r.moe_a2a_backend == "deepep"
        and r.moe_runner_backend == "flashinfer_cutedsl"
        and r.deepep_mode == "normal"
    ):
        yield hit(
            "--deepep-mode normal with --moe-runner-backend flashinfer_cutedsl",
            set_to("use the low-latency layout", deepep_mode="low_latency"),
        )


@step("arg_groups/moe_hook.py:363")
def deepep_modes(r: Resolution) -> None:
    """DeepEP's mode follows the runner, and its normal mode is not captured."""
    if r.moe_a2a_backend != "deepep":
        return
    if r.moe_runner_backend == "flashinfer_cutedsl" and r.deepep_mode == "auto":
        r.default("CuteDSL experts take that layout only", deepep_mode="low_latency")
    if r.deepep_mode == "normal":
        without_graphs(r, "DeepEP's normal mode is not captured", DECODE, PREFILL)


@rule(
    "KV1013", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/moe_hook.py:396",
    example=Example("--tp-size 8 --moe-a2a-backend deepep_v2", model="openai/gpt-oss-20b"),
    fragments=("DeepEP v2 MoE", "--deepep-v2-mode direct is NVLink-only"),
)  # fmt: skip
def deepep_v2_needs(r: Resolution) -> Iterator[Hit]:
    """DeepEP v2 serves registered models on the DeepGEMM runner.

    Why: what happens after its combine was validated per architecture; overlap hooks, fused
    shared experts and other runners are not written.

    Fix: use `--moe-a2a-backend deepep`, or drop what the line names.
    """
    if r.moe_a2a_backend != "deepep_v2":
        return
    older = set_to("use DeepEP", moe_a2a_backend="deepep")
    known = not from_instance(r) and r.model.arch in DEEPEP_V2_MODELS
    yield from first_broken(
        "--moe-a2a-backend deepep_v2",
        (
            (not known, "the architecture is not registered for it", older),
            (r.moe_runner_backend not in ("auto", "deep_gemm"),
             f"--moe-runner-backend is {r.moe_runner_backend}", drop("moe_runner_backend")),
            (r.enable_two_batch_overlap, "--enable-two-batch-overlap is set",
             drop("enable_two_batch_overlap")),
            (r.enable_single_batch_overlap, "--enable-single-batch-overlap is set",
             drop("enable_single_batch_overlap")),
            (r.enforce_shared_experts_fusion, "--enforce-shared-experts-fusion is set",
             drop("enforce_shared_experts_fusion")),
            (r.deepep_v2_mode == "direct" and whole(r.nnodes, 1) > 1,
             f"direct mode over --nnodes {r.nnodes}",
             set_to("exchange over the network too", deepep_v2_mode="hybrid")),
        ),
    )  # fmt: skip


@step("arg_groups/moe_hook.py:400")
def deepep_v2_runner(r: Resolution) -> None:
    """DeepEP v2 runs on DeepGEMM, and its prefill reads counts that graphs can't hold."""
    if r.moe_a2a_backend != "deepep_v2":
        return
    if r.moe_runner_backend == "auto":
        r.default("DeepEP v2 runs on it", moe_runner_backend="deep_gemm")
    without_graphs(r, "DeepEP v2 prefill is not captured", PREFILL)
