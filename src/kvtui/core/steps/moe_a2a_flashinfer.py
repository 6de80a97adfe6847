"""FlashInfer exchanges of expert tokens (`srt/arg_groups/moe_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Resolution, hit, rule, step
from kvtui.core.steps.moe import nvfp4_experts, w4a16
from kvtui.core.steps.moe_a2a_common import (
    MUSE_LAYOUTS,
    OTHER_A2A,
    first_broken,
    set_env,
)

FLASHINFER_MEGA_MODELS = frozenset(
    {
        "BeamForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "GlmMoeDsaForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "KimiK3ForConditionalGeneration",
        "KimiK3LinearForCausalLM",
    }
)
"""Architectures that FlashInfer MegaMOE was validated with (moe_hook.py:238)."""


FLASHINFER_A2A_RUNNERS = (
    "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm", "flashinfer_trtllm_routed",
    "deep_gemm",
)  # fmt: skip


COMBINE_DTYPES = ("bf16", "mxfp8", "nvfp4")


@rule(
    "KV1010", stage=Stage.RESOLVE, option="flashinfer_a2a_dispatch_type",
    source="arg_groups/moe_hook.py:309",
    example=Example(
        "--tp-size 8 --flashinfer-a2a-dispatch-type nvfp4", model="deepseek-ai/DeepSeek-V3"
    ),
    fragments=("--flashinfer-a2a-dispatch-type requires --moe-a2a-backend flashinfer",),
)  # fmt: skip
def dispatch_type_needs_flashinfer(r: Resolution) -> Iterator[Hit]:
    """A dispatch type belongs to the FlashInfer exchange.

    Why: other exchanges choose their own payload.

    Fix: drop the option.
    """
    if r.moe_a2a_backend != "flashinfer" and r.flashinfer_a2a_dispatch_type not in (None, "auto"):
        yield hit(
            f"--flashinfer-a2a-dispatch-type {r.flashinfer_a2a_dispatch_type} with "
            f"--moe-a2a-backend {r.moe_a2a_backend}",
            drop("flashinfer_a2a_dispatch_type"),
        )


def _mega_quantized(r: Resolution) -> bool:
    return bool(
        r.quantization in ("mxfp8", "modelopt_fp4")
        or (r.quantization == "nvfp4_online" and w4a16(r))
        or r.model.is_fp4_experts
        or nvfp4_experts(r)
    )


def _combine_problem(r: Resolution) -> str | None:
    combine = r.env.get("SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE", "bf16").strip().lower()
    if combine not in COMBINE_DTYPES:
        return f"SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE is {combine!r}"
    if combine == "bf16":
        return None
    if w4a16(r):
        return f"16-bit activations combine in bf16, not {combine}"
    if r.env_flag("SGLANG_FLASHINFER_MEGAMOE_IN_KERNEL_FC2_REDUCE"):
        return f"reducing inside the kernel combines in bf16, not {combine}"
    return None


@rule(
    "KV1011", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/moe_hook.py:319",
    example=Example(
        "--tp-size 8 --moe-a2a-backend flashinfer_megamoe", model="openai/gpt-oss-20b", gpu="b200"
    ),
    fragments=("FlashInfer MegaMOE",),
)  # fmt: skip
def flashinfer_mega_needs(r: Resolution) -> Iterator[Hit]:
    """FlashInfer MegaMOE serves validated models with 4- or 8-bit experts under attention DP.

    Why: dispatch, experts and combine are one SM100 kernel over prepared weights, one
    attention-DP group for each rank.

    Fix: leave the exchange to the engine.
    """
    if r.moe_a2a_backend != "flashinfer_megamoe":
        return
    names = r.model.architectures
    combine = _combine_problem(r)
    yield from first_broken(
        "--moe-a2a-backend flashinfer_megamoe",
        (
            (not FLASHINFER_MEGA_MODELS.intersection(names), f"not validated for {names[0]}",
             OTHER_A2A),
            (not _mega_quantized(r), f"quantization is {r.quantization}", OTHER_A2A),
            (combine, combine or "",
             set_env("combine in bf16", "SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE", "bf16")),
            (w4a16(r) and r.model.dtype != "bfloat16", f"dtype is {r.model.dtype}",
             set_to("compute in bfloat16", dtype="bfloat16")),
            (r.attn_dp_size <= 1 or r.attn_dp_size != r.tp_size,
             f"--attn-dp-size {r.attn_dp_size} is not --tp-size {r.tp_size}",
             set_to("give every rank its attention-DP group", attn_dp_size=r.tp_size)),
            (r.moe_runner_backend not in ("auto", "flashinfer_megamoe"),
             f"--moe-runner-backend is {r.moe_runner_backend}", drop("moe_runner_backend")),
            (not r.platform.is_sm100, f"{r.platform.gpu.name} is no SM100 GPU", OTHER_A2A),
        ),
    )  # fmt: skip


@step("arg_groups/moe_hook.py:327")
def flashinfer_mega_runner(r: Resolution) -> None:
    """The exchange brings its runner."""
    if r.moe_a2a_backend == "flashinfer_megamoe" and r.moe_runner_backend == "auto":
        r.default("the exchange brings its runner", moe_runner_backend="flashinfer_megamoe")


def _muse_sequence_parallel(r: Resolution) -> bool:
    return bool(
        r.model.arch == "MuseSparkForConditionalGeneration"
        and r.enable_layernorm_sp
        and not attn_dp_enabled(r)
        and r.attn_dp_size == 1
        and (r.tp_size, r.ep_size) in MUSE_LAYOUTS
    )


@rule(
    "KV1014", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/moe_hook.py:475",
    example=Example(
        "--tp-size 8 --moe-a2a-backend flashinfer", model="nvidia/DeepSeek-V3.1-NVFP4", gpu="b200"
    ),
    fragments=("Flashinfer MoE A2A requires --attn-dp-size",),
)  # fmt: skip
def flashinfer_a2a_topology(r: Resolution) -> Iterator[Hit]:
    """The FlashInfer exchange wants one attention-DP group for each rank.

    Why: its workspace is laid out for equal sources.

    Fix: set `--attn-dp-size` to `--tp-size`.
    """
    if r.moe_a2a_backend != "flashinfer":
        return
    own_groups = attn_dp_enabled(r) and r.attn_dp_size == r.tp_size
    if not own_groups and not _muse_sequence_parallel(r):
        yield hit(
            f"--moe-a2a-backend flashinfer with --attn-dp-size {r.attn_dp_size} of --tp-size "
            f"{r.tp_size}",
            OTHER_A2A,
            set_to("give every rank its attention-DP group", attn_dp_size=r.tp_size, dp_size=1),
        )


def _fp4_dispatch(r: Resolution) -> bool:
    return r.quantization == "modelopt_fp4" or nvfp4_experts(r)


def _cutedsl_16bit(r: Resolution) -> bool:
    return r.moe_runner_backend == "flashinfer_cutedsl" and w4a16(r)


@step("arg_groups/moe_hook.py:500")
def flashinfer_a2a_dispatch(r: Resolution) -> None:
    """What travels through the FlashInfer exchange follows the quantization."""
    if r.moe_a2a_backend != "flashinfer":
        return
    kind = r.flashinfer_a2a_dispatch_type
    if kind is None:
        free = "SGLANG_MOE_NVFP4_DISPATCH" not in r.env and not _cutedsl_16bit(r)
        if free and _fp4_dispatch(r):
            r.env["SGLANG_MOE_NVFP4_DISPATCH"] = "True"
            r.scratch["nvfp4_dispatch_by_engine"] = True
        return
    if r.moe_runner_backend == "flashinfer_trtllm":
        r.declare(
            "the exchange delivers chosen experts", moe_runner_backend="flashinfer_trtllm_routed"
        )
    if kind == "auto":
        kind = "nvfp4" if _fp4_dispatch(r) else "bf16"
        r.default(
            "the quantization decides what travels",
            flashinfer_a2a_dispatch_type="mxfp8" if r.quantization == "mxfp8" else kind,
        )


@rule(
    "KV1015", stage=Stage.RESOLVE, option="flashinfer_a2a_dispatch_type",
    source="arg_groups/moe_hook.py:173",
    example=Example(
        "--tp-size 8 --attn-dp-size 8 --moe-a2a-backend flashinfer "
        "--flashinfer-a2a-dispatch-type mxfp8 --moe-runner-backend deep_gemm",
        model="deepseek-ai/DeepSeek-V3",
    ),
    fragments=("--flashinfer-a2a-dispatch-type", "CuTe DSL NVFP4 W4A16 requires"),
)  # fmt: skip
def flashinfer_payload(r: Resolution) -> Iterator[Hit]:
    """What travels through the FlashInfer exchange must fit quantization and runner.

    Why: experts read the payload as it arrives; 16-bit activations arrive as bf16.

    Fix: leave the dispatch type to the engine.
    """
    if r.moe_a2a_backend != "flashinfer":
        return
    kind = r.flashinfer_a2a_dispatch_type
    drop_kind = drop("flashinfer_a2a_dispatch_type")
    set_by_user = (
        "SGLANG_MOE_NVFP4_DISPATCH" in r.env and "nvfp4_dispatch_by_engine" not in r.scratch
    )
    unset = set_env("unset SGLANG_MOE_NVFP4_DISPATCH", "SGLANG_MOE_NVFP4_DISPATCH", None)
    yield from first_broken(
        f"FlashInfer exchange of {kind or 'bf16'}",
        (
            (_cutedsl_16bit(r) and r.env_flag("SGLANG_MOE_NVFP4_DISPATCH"),
             "16-bit activations with SGLANG_MOE_NVFP4_DISPATCH", unset),
            (_cutedsl_16bit(r) and r.raw.flashinfer_a2a_dispatch_type in ("auto", "nvfp4"),
             "16-bit activations travel as bf16",
             set_to("send bf16", flashinfer_a2a_dispatch_type="bf16")),
            (kind is not None and set_by_user, "SGLANG_MOE_NVFP4_DISPATCH is set too", unset),
            (kind == "mxfp8" and r.quantization != "mxfp8",
             f"quantization is {r.quantization}", drop_kind),
            (kind == "mxfp8" and r.moe_runner_backend != "flashinfer_trtllm_routed",
             f"--moe-runner-backend is {r.moe_runner_backend}", drop_kind),
            (kind == "nvfp4" and not _fp4_dispatch(r), f"quantization is {r.quantization}",
             drop_kind),
        ),
    )  # fmt: skip


@rule(
    "KV1016", stage=Stage.RESOLVE, option="moe_runner_backend",
    source="arg_groups/moe_hook.py:531",
    example=Example(
        "--tp-size 8 --attn-dp-size 8 --moe-a2a-backend flashinfer",
        model="deepseek-ai/DeepSeek-V3",
    ),
    fragments=("FlashInfer MoE A2A is supported with",),
)  # fmt: skip
def flashinfer_a2a_runners(r: Resolution) -> Iterator[Hit]:
    """The FlashInfer exchange feeds five runners.

    Why: others do not read its layout, and `auto` is not resolved to one of them here.

    Fix: name a runner that fits the quantization.
    """
    if r.moe_a2a_backend == "flashinfer" and r.moe_runner_backend not in FLASHINFER_A2A_RUNNERS:
        runner = "flashinfer_cutlass" if _fp4_dispatch(r) else "deep_gemm"
        yield hit(
            f"--moe-a2a-backend flashinfer with --moe-runner-backend {r.moe_runner_backend}",
            set_to(f"run experts on {runner}", moe_runner_backend=runner),
            OTHER_A2A,
        )
