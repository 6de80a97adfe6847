"""MoE kernels and their quantization (`mega_moe_hook.py`, `moe_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

MXFP8_RUNNERS = (
    "cutlass", "deep_gemm", "flashinfer_megamoe", "flashinfer_trtllm", "flashinfer_trtllm_routed",
)  # fmt: skip
NVFP4_ONLINE_RUNNERS = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutedsl")

RUNNER_QUANTIZATIONS: dict[str, tuple[str | None, ...]] = {
    "flashinfer_cutlass": ("modelopt_fp4", "modelopt_fp8", "modelopt_mixed", None),
    "flashinfer_cutedsl": ("modelopt_fp4", "modelopt_mixed", "nvfp4_online"),
    "flashinfer_trtllm": (
        "modelopt_fp4", "nvfp4_online", "fp8", "mxfp8", "modelopt_fp8", "modelopt_mixed",
        "compressed-tensors", None,
    ),
    "flashinfer_trtllm_routed": (
        "fp8", "mxfp8", "modelopt_fp4", "modelopt_mixed", "nvfp4_online", "minimax_m3_nvfp4", None,
    ),
}  # fmt: skip
"""Quantizations that a runner serves; None is unquantized. moe_hook.py:83, 98, 131, 147."""
RUNNER_QUANTIZATIONS["experimental_sgl_trtllm"] = RUNNER_QUANTIZATIONS["flashinfer_trtllm"]

WHOLE_EP_RUNNERS = ("flashinfer_cutlass", "flashinfer_cutedsl")
CUTEDSL_A2A = ("none", "deepep", "flashinfer")
SEPARATE_SHARED_EXPERTS = {
    "lora_triton": "adapters attach to separate shared experts",
    "lora_cutedsl": "adapters attach to separate shared experts",
    "lora_marlin": "adapters attach to separate shared experts",
    "flashinfer_cutedsl": "the CuteDSL runner keeps shared experts apart",
    "flashinfer_trtllm": "the TRT-LLM runner keeps shared experts apart",
    "experimental_sgl_trtllm": "the TRT-LLM runner keeps shared experts apart",
    "flashinfer_trtllm_routed": "the TRT-LLM runner keeps shared experts apart",
}


def nvfp4_experts(r: Resolution) -> bool:
    """True for a checkpoint of FP8 layers with NVFP4 experts (`nvfp4_moe_meta`)."""
    return r.model.nvfp4_moe_meta is not None


def w4a16(r: Resolution) -> bool:
    """The switch for NVFP4 weights with 16-bit activations."""
    return r.env_flag("SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16")


@step("arg_groups/mega_moe_hook.py:255")
def moe_runner_alias(r: Resolution) -> None:
    """`--moe-runner-backend megamoe` names an all-to-all back end."""
    if r.moe_runner_backend == "megamoe":
        r.declare(
            "megamoe is an all-to-all back end, chosen by --moe-a2a-backend",
            moe_runner_backend="auto",
            moe_a2a_backend="megamoe",
        )


@rule(
    "KV1000", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/mega_moe_hook.py:32",
    example=Example(
        "--tp-size 8 --moe-a2a-backend megamoe --enable-two-batch-overlap",
        model="deepseek-ai/DeepSeek-V3", gpu="b200",
    ),
    fragments=("--moe-a2a-backend megamoe has no two-batch",),
)  # fmt: skip
def mega_moe_without_overlap(r: Resolution) -> Iterator[Hit]:
    """MegaMoE does not overlap batches.

    Why: dispatch, experts and combine are one kernel, there is no seam to overlap at.

    Fix: drop the overlap, or choose another all-to-all back end.
    """
    if r.moe_a2a_backend != "megamoe":
        return
    for name in ("enable_two_batch_overlap", "enable_single_batch_overlap"):
        if getattr(r, name):
            flag = "--" + name.replace("_", "-")
            yield hit(f"--moe-a2a-backend megamoe with {flag}", drop(name))


@rule(
    "KV1001", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/mega_moe_hook.py:40",
    example=Example(
        "--tp-size 8 --moe-a2a-backend megamoe", model="deepseek-ai/DeepSeek-V3", gpu="a100-80"
    ),
    fragments=("needs a CUDA SM90 GPU (block-FP8 experts)",),
)  # fmt: skip
def mega_moe_gpus(r: Resolution) -> Iterator[Hit]:
    """MegaMoE runs on Hopper and data-centre Blackwell.

    Why: it is a DeepGEMM kernel over symmetric memory, built for SM90 and SM100.

    Fix: leave `--moe-a2a-backend` out.
    """
    if r.moe_a2a_backend != "megamoe":
        return
    gpu = r.platform
    if not (gpu.is_sm90 or gpu.is_sm100 or gpu.is_hip):
        yield hit(
            f"--moe-a2a-backend megamoe on {gpu.gpu.name}",
            drop("moe_a2a_backend", "moe_runner_backend", title="use the engine's own choice"),
        )


HANDLE_MEGA_MOE: tuple[Part, ...] = (moe_runner_alias, mega_moe_without_overlap, mega_moe_gpus)


@rule(
    "KV1002", stage=Stage.RESOLVE, option="quantization", source="arg_groups/overrides.py:1450",
    example=Example("--quantization nvfp4_online", model="Qwen/Qwen3-30B-A3B"),
    fragments=("--quantization nvfp4_online is supported only on", "nvfp4_online supports only"),
)  # fmt: skip
def nvfp4_online_needs(r: Resolution) -> Iterator[Hit]:
    """Quantizing experts to NVFP4 at load needs data-centre Blackwell and its kernels.

    Why: the FP4 tensor cores of SM100 and the TRT-LLM or CuteDSL kernels do the work.

    Fix: leave the runner to the engine; on other GPUs choose another quantization.
    """
    if r.quantization != "nvfp4_online":
        return
    runner = r.moe_runner_backend
    mega = runner == "flashinfer_megamoe" and r.moe_a2a_backend == runner and w4a16(r)
    if not r.platform.is_sm100:
        yield hit(
            f"--quantization nvfp4_online on {r.platform.gpu.name}, not an SM100 GPU",
            drop("quantization"),
        )
    elif runner != "auto" and runner not in NVFP4_ONLINE_RUNNERS and not mega:
        yield hit(
            f"--quantization nvfp4_online with --moe-runner-backend {runner}",
            drop("moe_runner_backend"),
        )


def _mxfp8_runner(r: Resolution) -> str:
    mi350 = r.platform.is_gfx95
    default = "triton" if mi350 else "flashinfer_trtllm"
    if r.moe_a2a_backend == "flashinfer_megamoe":
        default = "flashinfer_megamoe"
    allowed = [*MXFP8_RUNNERS]
    runner: str = r.moe_runner_backend
    if mi350 or (r.platform.is_hip and runner == "triton"):
        allowed.append("triton")
    if mi350 and r.env_flag("SGLANG_USE_AITER"):
        allowed.append("aiter")
    return runner if runner in allowed else default


@step("arg_groups/overrides.py:1441")
def moe_runner_of_quantization(r: Resolution) -> None:
    """The quantization chooses or replaces the MoE runner."""
    runner, quantization = r.moe_runner_backend, r.quantization
    if quantization == "nvfp4_online" and runner == "auto":
        mega = r.moe_a2a_backend == "flashinfer_megamoe" and w4a16(r)
        runner = "flashinfer_megamoe" if mega else "flashinfer_trtllm"
    elif quantization == "mxfp8" and not r.platform.is_npu:
        runner = _mxfp8_runner(r)
    elif (
        runner == "auto"
        and quantization == "modelopt_fp4"
        and (r.platform.is_sm120 or r.platform.is_sm110)
    ):
        runner = "flashinfer_cutlass"
    if runner != r.moe_runner_backend:
        r.declare(f"{quantization} runs on it", moe_runner_backend=runner)


@rule(
    "KV1003", stage=Stage.RESOLVE, option="moe_runner_backend", source="arg_groups/moe_hook.py:83",
    example=Example(
        "--quantization fp8 --moe-runner-backend flashinfer_cutlass",
        model="Qwen/Qwen3-30B-A3B-FP8",
    ),
    fragments=(
        "FlashInfer Cutlass MOE supports only", "FlashInfer CuteDSL MOE currently supports only",
        "FlashInfer TRTLLM MOE supports only", "FlashInfer TRTLLM routed MOE supports only",
    ),
)  # fmt: skip
def runner_serves_quantization(r: Resolution) -> Iterator[Hit]:
    """A MoE runner serves the quantizations that it has kernels for.

    Why: the engine checks the pair before it loads weights.

    Fix: leave the runner to the engine.
    """
    served = RUNNER_QUANTIZATIONS.get(r.moe_runner_backend)
    if served is None or r.quantization in served:
        return
    if r.moe_runner_backend == "flashinfer_cutedsl" and nvfp4_experts(r):
        return
    names = ", ".join(name or "unquantized" for name in served)
    yield hit(
        f"--moe-runner-backend {r.moe_runner_backend} with "
        f"{r.quantization or 'an unquantized model'}; it serves {names}",
        drop("moe_runner_backend"),
    )


@rule(
    "KV1004", stage=Stage.RESOLVE, option="ep_size", source="arg_groups/moe_hook.py:91",
    example=Example(
        "--tp-size 4 --ep-size 2 --moe-runner-backend flashinfer_cutlass",
        model="Qwen/Qwen3-30B-A3B",
    ),
    fragments=("must be 1 or the same as the tensor parallel size",),
)  # fmt: skip
def runner_takes_whole_expert_group(r: Resolution) -> Iterator[Hit]:
    """CUTLASS and CuteDSL runners split experts over all ranks or over none.

    Why: their kernels know one expert group, the tensor-parallel one.

    Fix: set `--ep-size` to 1 or to `--tp-size`.
    """
    if r.moe_runner_backend in WHOLE_EP_RUNNERS and r.ep_size not in (1, r.tp_size):
        yield hit(
            f"--ep-size {r.ep_size} of --tp-size {r.tp_size} with {r.moe_runner_backend}",
            set_to("spread experts over all ranks", ep_size=r.tp_size),
            drop("ep_size"),
        )


@rule(
    "KV1005", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/moe_hook.py:110",
    example=Example(
        "--tp-size 8 --moe-runner-backend flashinfer_cutedsl --moe-a2a-backend mooncake",
        model="nvidia/DeepSeek-V3.1-NVFP4", gpu="b200",
    ),
    fragments=("flashinfer_cutedsl supports moe_a2a_backend", "per-token NVFP4 activation"),
)  # fmt: skip
def cutedsl_exchanges(r: Resolution) -> Iterator[Hit]:
    """The CuteDSL runner takes tokens from three exchanges.

    Why: its FP4 kernels read the layouts of plain, DeepEP and FlashInfer dispatch; DeepEP in turn
    does not carry per-token scales.

    Fix: leave `--moe-a2a-backend` out, or use `flashinfer`.
    """
    if r.moe_runner_backend != "flashinfer_cutedsl":
        return
    a2a = r.moe_a2a_backend
    per_token = r.quantization == "nvfp4_online" or r.env_flag(
        "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION"
    )
    if a2a not in CUTEDSL_A2A or (a2a == "deepep" and per_token):
        yield hit(
            f"--moe-runner-backend flashinfer_cutedsl with --moe-a2a-backend {a2a}",
            drop("moe_a2a_backend"),
        )


@step("arg_groups/overrides.py:1533")
def runner_separates_shared_experts(r: Resolution) -> None:
    """Some runners do not fuse shared experts into the routed ones."""
    why = SEPARATE_SHARED_EXPERTS.get(r.moe_runner_backend)
    if why:
        r.declare(why, disable_shared_experts_fusion=True)


@rule(
    "KV1006", stage=Stage.RESOLVE, option="ep_size", source="arg_groups/moe_hook.py:163",
    example=Example(
        "--tp-size 4 --ep-size 4 --quantization fp8 --moe-runner-backend cutlass",
        model="Qwen/Qwen3-30B-A3B-FP8",
    ),
    fragments=("FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1",),
)  # fmt: skip
def cutlass_fp8_without_expert_ranks(r: Resolution) -> Iterator[Hit]:
    """FP8 experts on the CUTLASS runner are not split over ranks.

    Why: the grouped kernel indexes all experts.

    Fix: drop `--ep-size`, or use another runner.
    """
    if (
        r.moe_runner_backend == "cutlass"
        and r.quantization in ("fp8", "mxfp8")
        and whole(r.ep_size, 1) != 1
    ):
        yield hit(
            f"--moe-runner-backend cutlass with {r.quantization} and --ep-size {r.ep_size}",
            drop("ep_size"),
            drop("moe_runner_backend"),
        )


HANDLE_MOE_KERNEL_CONFIG: tuple[Part, ...] = (
    nvfp4_online_needs,
    moe_runner_of_quantization,
    runner_serves_quantization,
    runner_takes_whole_expert_group,
    cutedsl_exchanges,
    runner_separates_shared_experts,
    cutlass_fp8_without_expert_ranks,
)
