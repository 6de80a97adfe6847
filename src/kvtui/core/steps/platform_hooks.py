"""Defaults that a device brings along.

Mirrors `srt/arg_groups/platform_hook.py` of 0.5.23: CUDA and ROCm in full, other devices as far
as they decide back ends, page size and graphs; what else they change is outside the rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Change, Fix, Stage
from kvtui.core.graphs import DECODE, DISABLED, FULL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.graphs import graphs_off

ROCM_KV_SPLITS = 16

NPU_PAGE_SIZE = 128
NPU_MEMORY_CLASSES = ((32 * 1024, 4096, 16, 64), (64 * 1024, 8192, 64, 256))
"""(up to MiB, chunk, decode graph limit, the same from four ranks up)."""


@rule(
    "KV420",
    stage=Stage.RESOLVE,
    option=None,
    source="arg_groups/platform_hook.py:23",
    example=Example("", env={"SGLANG_USE_MLX": "1"}),
    fragments=("SGLANG_USE_MLX requires",),
)
def mlx_needs_apple_silicon(r: Resolution) -> Iterator[Hit]:
    """SGLANG_USE_MLX asks for the MLX back end, which runs on Apple silicon only.

    Why: the variable is an explicit wish, so the engine stops rather than ignore it where
    MLX or a Metal device is missing.

    Fix: unset the variable.
    """
    if r.env_flag("SGLANG_USE_MLX") and not r.platform.is_mps:
        yield hit(
            f"SGLANG_USE_MLX is set, and {r.platform.gpu.name} is no Apple GPU",
            Fix("unset SGLANG_USE_MLX", (Change("env:SGLANG_USE_MLX"),)),
        )


@step("arg_groups/platform_hook.py:180")
def hpu_backends(r: Resolution) -> None:
    """Gaudi runs PyTorch's own attention and sampling."""
    if r.device == "hpu":
        r.declare(
            "Gaudi has no other kernels",
            attention_backend="torch_native",
            sampling_backend="pytorch",
        )
        r.doubt("launches on Gaudi (HPU) are not described by the rules")


@step("arg_groups/platform_hook.py:163")
def cpu_backends(r: Resolution) -> None:
    """A CPU runs AMX kernels where it has them, and samples in PyTorch."""
    if r.device != "cpu":
        return
    if r.attention_backend is None:
        r.default("it is the back end for x86 CPUs", attention_backend="intel_amx")
    r.declare("sampling on a CPU runs in PyTorch", sampling_backend="pytorch")
    r.doubt("CPU launches depend on AMX support, which the rules don't know")


@step("arg_groups/platform_hook.py:35")
def npu_backends(r: Resolution) -> None:
    """Ascend runs its own attention back end with large pages."""
    if r.device != "npu":
        return
    why = "Ascend has only its own attention kernels"
    r.declare(
        why,
        attention_backend="ascend",
        prefill_attention_backend="ascend",
        decode_attention_backend="ascend",
    )
    if r.page_size is None:
        r.default("Ascend's page", page_size=NPU_PAGE_SIZE)
    for limit, chunk, narrow, wide in NPU_MEMORY_CLASSES:
        if r.platform.memory_mib <= limit:
            if r.chunked_prefill_size is None:
                r.default("the NPU's memory class", chunked_prefill_size=chunk)
            config = r.cuda_graph_config
            if config.decode.max_bs is None:
                size = narrow if r.tp_size < 4 else wide
                config = config.with_phase(DECODE, max_bs=size)
                r.default("the NPU's memory class", cuda_graph_config=config)
            break
    r.declare("Ascend has no custom all-reduce", disable_custom_all_reduce=True)
    r.doubt("launches on Ascend are not described by the rules beyond back ends and pages")


@step("hardware_backend/npu/utils.py:163")
def npu_host_cache(r: Resolution) -> None:
    """Ascend's host cache copies with its own kernels and layout."""
    if r.device != "npu":
        return
    backs_up = r.disaggregation_mode == "decode" and (
        r.disaggregation_decode_retraction_backup in (None, "host_pool")
    )
    if (
        r.enable_hierarchical_cache
        or r.disaggregation_decode_enable_offload_kvcache
        or backs_up
    ):  # fmt: skip
        layout = "page_first_kv_split" if uses_mla(r) else "page_first_direct"
        r.declare(
            "Ascend copies host pages with its own kernels",
            hicache_io_backend="kernel_ascend",
            hicache_mem_layout=layout,
        )


@step("arg_groups/platform_hook.py:44")
def mps_backends(r: Resolution) -> None:
    """Apple GPUs run without the overlap scheduler, unless through MLX."""
    if r.device == "mps":
        if not r.env_flag("SGLANG_USE_MLX"):
            r.declare("Apple GPUs schedule without overlap", disable_overlap_schedule=True)
        r.doubt("launches on Apple GPUs are not described by the rules")


@step("arg_groups/platform_hook.py:118")
def xpu_backends(r: Resolution) -> None:
    """Intel GPUs sample with their own kernels and capture decode graphs on request only."""
    if r.device != "xpu":
        return
    if r.sampling_backend is None:
        r.default("Intel GPUs sample with their own kernels", sampling_backend="intel_xpu")
    if r.enable_fused_qk_norm_rope is None:
        r.default("the fused kernel always wins there", enable_fused_qk_norm_rope=True)
    config = r.cuda_graph_config
    unsupported = config.decode.backend not in (DISABLED, FULL)
    if not config.is_locked(DECODE, "backend") or unsupported:
        graphs_off(r, "Intel GPUs capture whole decode graphs, on request only", DECODE)
    r.doubt("launches on Intel GPUs are described by the rules only in part")


@step("arg_groups/platform_hook.py:104")
def symmetric_memory_needs_nccl(r: Resolution) -> None:
    """Symmetric memory is an NCCL feature, so it is off on other devices."""
    if r.enable_symm_mem and not (r.platform.is_cuda or r.platform.is_hip):
        r.declare("symmetric memory needs CUDA or ROCm", enable_symm_mem=False)


@step("arg_groups/platform_hook.py:54")
def rocm_specifics(r: Resolution) -> None:
    """ROCm decodes with sixteen KV splits."""
    if r.platform.is_hip:
        r.declare("ROCm uses a fixed number", triton_attention_num_kv_splits=ROCM_KV_SPLITS)


@step("arg_groups/platform_hook.py:66")
def nccl_warm_up_needs_nccl(r: Resolution) -> None:
    """Warming up NCCL means something on CUDA, ROCm and Ascend only."""
    platform = r.platform
    if r.pre_warm_nccl and not (platform.is_cuda or platform.is_hip or platform.is_npu):
        r.declare("there is no NCCL to warm up", pre_warm_nccl=False)


HANDLE_HARDWARE_RUNTIME_VALIDATION: tuple[Part, ...] = (mlx_needs_apple_silicon,)
HANDLE_HPU_BACKENDS: tuple[Part, ...] = (hpu_backends,)
HANDLE_CPU_BACKENDS: tuple[Part, ...] = (cpu_backends,)
HANDLE_NPU_BACKENDS: tuple[Part, ...] = (npu_backends, npu_host_cache)
HANDLE_MPS_BACKENDS: tuple[Part, ...] = (mps_backends,)
HANDLE_XPU_BACKENDS: tuple[Part, ...] = (xpu_backends,)
HANDLE_SYMM_MEM_DEVICE_SUPPORT: tuple[Part, ...] = (symmetric_memory_needs_nccl,)
HANDLE_PLATFORM_DEFAULTS: tuple[Part, ...] = ()
"""In-tree platforms bring no further defaults; plug-in platforms are not judged."""
HANDLE_AMD_SPECIFICS: tuple[Part, ...] = (rocm_specifics,)
HANDLE_NCCL_PRE_WARM: tuple[Part, ...] = (nccl_warm_up_needs_nccl,)
