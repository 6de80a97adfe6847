"""Multimodal transport and switches that workers inherit (`serving_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

LEGACY_IPC = "SGLANG_USE_CUDA_IPC_TRANSPORT"


@step("arg_groups/serving_hook.py:676")
def multimodal_transport(r: Resolution) -> None:
    """Features travel through host memory unless something else is asked for."""
    transport = r.mm_feature_transport
    if transport is None:
        transport = "cuda_ipc" if r.env_flag(LEGACY_IPC) else "cpu"
    if r.encoder_only and transport in ("cuda_ipc", "cuda_vmm"):
        r.declare("encoders hand their output over otherwise", mm_feature_transport="cpu")
    else:
        r.default("features travel through host memory", mm_feature_transport=transport)


@rule(
    "KV1050", stage=Stage.RESOLVE, option="mm_feature_transport",
    source="arg_groups/serving_hook.py:775",
    example=Example("--mm-feature-transport cuda_vmm --pp-size 2"),
    fragments=("--mm-feature-transport=",),
)  # fmt: skip
def multimodal_transport_needs(r: Resolution) -> Iterator[Hit]:
    """Features in GPU memory need CUDA, and one node or one pipeline stage.

    Why: `cuda_ipc` shares memory inside a machine, `cuda_vmm` maps one pool for all ranks.

    Fix: send features through host memory.
    """
    kind = r.mm_feature_transport
    if kind not in ("cuda_vmm", "cuda_ipc"):
        return
    fix = set_to("send features through host memory", mm_feature_transport="cpu")
    if not r.platform.is_cuda:
        yield hit(f"--mm-feature-transport {kind} without CUDA", fix)
    elif kind == "cuda_vmm" and whole(r.pp_size, 1) != 1:
        yield hit(f"--mm-feature-transport cuda_vmm with --pp-size {r.pp_size}", fix)
    elif kind == "cuda_ipc" and whole(r.nnodes, 1) != 1:
        yield hit(f"--mm-feature-transport cuda_ipc with --nnodes {r.nnodes}", fix)


@rule(
    "KV1051", stage=Stage.RESOLVE, option="enable_deepseek_v4_fp4_indexer",
    source="arg_groups/serving_hook.py:449",
    example=Example("--tp-size 8 --enable-deepseek-v4-fp4-indexer",
                    model="deepseek-ai/DeepSeek-V4-Flash"),
    fragments=("--enable-deepseek-v4-fp4-indexer requires",),
)  # fmt: skip
def fp4_indexer_gpus(r: Resolution) -> Iterator[Hit]:
    """The FP4 indexer runs on SM100, SM120 and MI350.

    Why: other GPUs have no FP4 matrix instructions.

    Fix: drop the flag, the indexer then runs in FP8.
    """
    gpu = r.platform if r.enable_deepseek_v4_fp4_indexer else None
    if gpu and not (gpu.is_sm100 or gpu.is_sm120 or gpu.is_gfx95):
        yield hit(
            f"--enable-deepseek-v4-fp4-indexer on {gpu.gpu.name}",
            drop("enable_deepseek_v4_fp4_indexer"),
        )


@step("arg_groups/serving_hook.py:436")
def inherited_switches(r: Resolution) -> None:
    """Workers read some options from the environment."""
    r.env["SGLANG_ENABLE_DETERMINISTIC_INFERENCE"] = (
        "1" if r.enable_deterministic_inference else "0"
    )
    if r.mamba_ssm_dtype is not None:
        r.env["SGLANG_MAMBA_SSM_DTYPE"] = str(r.mamba_ssm_dtype)
    if r.debug_cuda_graph and not (r.platform.is_cuda or r.platform.is_hip):
        r.declare("there are no CUDA graphs to debug", debug_cuda_graph=False)


HANDLE_ENVIRONMENT_VARIABLES: tuple[Part, ...] = (
    multimodal_transport,
    multimodal_transport_needs,
    inherited_switches,
    fp4_indexer_gpus,
)
