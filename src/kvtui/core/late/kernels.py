"""What only shows when attention kernels are built or run: they don't exist for this GPU or model.

Argument resolution accepts these launches; the server dies minutes later, when back ends are
built after the weights, when graphs are captured, or at the first request.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import architecture, uses_mla
from kvtui.core.findings import Severity, Stage, set_to
from kvtui.core.late.backends import (
    DRAFT,
    backend_table,
    instead_of,
    lacking,
    running_vendor,
    sm_names,
    used_backends,
)
from kvtui.core.late.kernels_linear import LINEAR_KERNELS
from kvtui.core.late.kernels_shapes import SHAPE_KERNELS
from kvtui.core.late.kernels_sparse import SPARSE_KERNELS
from kvtui.core.model import archs
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

NO_CROSS_ATTENTION = ("triton", "hpc_ops")

VENDOR_NAMES = {"nvidia": "an NVIDIA GPU", "amd": "an AMD GPU", "intel": "an Intel GPU",
                "ascend": "an Ascend NPU", "cpu": "a CPU"}  # fmt: skip


@rule(
    "KV900",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/attention_registry.py:216",
    example=Example("--attention-backend fa3", gpu="b200"),
    fragments=("FlashAttention v3 Backend requires SM>=80 and SM<=90",),
)
def fa3_gpu(r: Resolution) -> Iterator[Hit]:
    """`fa3` runs on SM80 to SM90, and with MLA models on SM90 only.

    Why: the kernels are built for these GPUs; the check comes when the backend is built,
    after the weights are loaded.

    Fix: leave the choice to the engine, or use triton.
    """
    for phase, backend, majors in lacking(r):
        if backend == "fa3":
            mla = phase != DRAFT and uses_mla(r)
            yield hit(
                f"fa3{' with MLA' if mla else ''} needs {sm_names(majors)}; "
                f"{r.platform.gpu.name} is SM{r.platform.sm}",
                instead_of(r, backend, phase),
            )


@rule(
    "KV901",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/attention_registry.py:55",
    example=Example(
        "--attention-backend flashmla --tp-size 8", model="deepseek-ai/DeepSeek-V3", gpu="b200"
    ),
    fragments=(
        "Dense decode MLA is only supported on SM90a",
        "only support Blackwell arch with qv",
        "Unsupported compute capability. Supported",
        "multi_ctas_kv_counter_buffer is only supported",
        "attention backend requires an SM90",
    ),
)
def backend_has_kernels_for_gpu(r: Resolution) -> Iterator[Hit]:
    """An attention backend has kernels for this GPU.

    Why: the released kernel wheels hold code for some GPU generations only, and argument
    checks don't know all of them. The server stops when it captures graphs or decodes first.

    Fix: leave the choice to the engine, or use triton.
    """
    for phase, backend, majors in lacking(r):
        if backend == "fa3":
            continue
        mla = " with this MLA model" if phase != DRAFT and uses_mla(r) else ""
        only = backend_table().backends[backend].model is not None
        yield hit(
            f"{backend} kernels{mla} exist for {sm_names(majors)}; "
            f"{r.platform.gpu.name} is SM{r.platform.sm}",
            *(() if only else (instead_of(r, backend, phase),)),
        )


@rule(
    "KV902",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/attention_registry.py:55",
    example=Example("--attention-backend aiter"),
)
def backend_is_of_this_vendor(r: Resolution) -> Iterator[Hit]:
    """An attention backend belongs to the GPU's vendor.

    Why: its library exists for one vendor's devices; importing it fails when the backend is
    built.

    Fix: leave the choice to the engine, or use triton.
    """
    for backend, phase in {b: phase for phase, b in used_backends(r)}.items():
        needs = backend_table().backends.get(backend)
        if needs is not None and needs.vendor not in (None, running_vendor(r)):
            where = VENDOR_NAMES.get(str(needs.vendor), str(needs.vendor))
            yield hit(
                f"{backend} runs on {where}, not on {r.platform.gpu.name}",
                instead_of(r, backend, phase),
            )


@rule(
    "KV903",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/attention_registry.py:96",
    example=Example("--attention-backend trtllm_mla", gpu="b200"),
    fragments=(
        "backend can only be used with MLA models",
        "backend can only be used with non-MLA models",
    ),
)
def backend_fits_attention_family(r: Resolution) -> Iterator[Hit]:
    """An attention backend has kernels for the model's attention family.

    Why: MLA keeps one compressed vector per token, other attention keys and values per head;
    some back ends read one of the two only. The check comes when the backend is built.

    Fix: leave the choice to the engine.
    """
    family = "mla" if uses_mla(r) else "mha"
    for backend in dict.fromkeys(b for phase, b in used_backends(r) if phase != DRAFT):
        needs = backend_table().backends.get(backend)
        if needs is not None and needs.family not in (None, family):
            yield hit(
                f"{backend} is for {'MLA' if needs.family == 'mla' else 'non-MLA'} models; "
                f"{architecture(r)} is {'none' if needs.family == 'mla' else 'one'}",
                instead_of(r, backend),
            )


def _is_kind(r: Resolution, kind: str) -> bool:
    arch = architecture(r)
    if kind == "dsa":
        return bool(r.model.is_dsa)
    if kind == "dsv4":
        return arch in archs.DEEPSEEK_V4
    if kind == "qsa":
        layers = r.model.hf_text_config.get("layer_types") or ()
        return "qwen_sparse_attention" in layers
    return arch.startswith("MiniCPM")


@rule(
    "KV904",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/dsa_backend.py:528",
    example=Example("--attention-backend dsa"),
    fragments=(
        "DSA backend only supports DeepSeek DSA",
        "Cross attention is not supported in the",
    ),
)
def backend_fits_model(r: Resolution) -> Iterator[Hit]:
    """Back ends run the models that they were written for.

    Why: sparse-attention back ends read an index, or a compressed pool, that other models
    don't have; triton and hpc_ops lack the cross attention of encoder-decoder models.

    Fix: leave the choice to the engine, or use flashinfer for cross attention.
    """
    for backend in dict.fromkeys(b for phase, b in used_backends(r) if phase != DRAFT):
        needs = backend_table().backends.get(backend)
        if needs is not None and needs.model is not None and not _is_kind(r, needs.model):
            yield hit(
                f"{backend} runs {needs.model} models only; {architecture(r)} is none",
                instead_of(r, backend),
            )
        elif backend in NO_CROSS_ATTENTION and r.model.is_encoder_decoder:
            yield hit(
                f"{backend} has no cross attention, which {architecture(r)} needs",
                set_to("use flashinfer", attention_backend="flashinfer"),
            )


@rule(
    "KV913",
    stage=Stage.SERVE,
    option="attention_backend",
    source="layers/attention/attention_registry.py:55",
    severity=Severity.WARNING,
    example=Example("--attention-backend hpc_ops"),
    fragments=("The hpc_ops attention backend requires the `hpc` package",),
)
def backend_needs_a_package(r: Resolution) -> Iterator[Hit]:
    """Some attention back ends need a package that the engine's release doesn't bring.

    Why: importing it fails when the backend is built.

    Fix: install the package beside the engine, or leave the choice to the engine.
    """
    for backend in dict.fromkeys(r.backends):
        needs = backend_table().backends.get(str(backend))
        if needs is not None and needs.package and needs.vendor == running_vendor(r):
            yield hit(
                f"{backend} needs the Python package {needs.package}, which SGLang doesn't bring",
                instead_of(r, str(backend)),
            )


@rule(
    "KV914",
    stage=Stage.LOAD,
    option=None,
    source="model_executor/model_runner_components/load_model_utils.py:91",
    example=Example("", gpu="v100"),
    fragments=("SGLang only supports sm75 and above",),
)
def gpu_generation(r: Resolution) -> Iterator[Hit]:
    """The GPU is of compute capability 7.5 or newer.

    Why: neither PyTorch's nor SGLang's wheels hold code for older GPUs.

    Fix: use a newer GPU.
    """
    if r.platform.is_cuda and r.platform.device_capability < (7, 5):
        yield hit(f"{r.platform.gpu.name} is SM{r.platform.sm}; SGLang needs SM75 at least")


@rule(
    "KV915",
    stage=Stage.SERVE,
    option=None,
    source="layers/layernorm.py:101",
    severity=Severity.WARNING,
    example=Example("", gpu="t4"),
)
def turing_without_kernels(r: Resolution) -> Iterator[Hit]:
    """On Turing, ready-made kernels are missing.

    Why: SGLang's kernel wheel is built from SM80 up; on SM75 only kernels that are compiled
    on the machine run, and models run in float16. Whether all that a model needs is among
    them shows at the first forward.

    Fix: use a GPU from SM80 up where the launch fails with "no kernel image".
    """
    if r.platform.is_cuda and (7, 5) <= r.platform.device_capability < (8, 0):
        yield hit(
            f"{r.platform.gpu.name} is SM{r.platform.sm}; "
            f"the kernel wheel is built from SM80 up, so some operations may be missing"
        )


LATE_KERNELS: tuple[Part, ...] = (
    gpu_generation,
    turing_without_kernels,
    fa3_gpu,
    backend_has_kernels_for_gpu,
    backend_is_of_this_vendor,
    backend_fits_attention_family,
    backend_fits_model,
    backend_needs_a_package,
    *SHAPE_KERNELS,
    *SPARSE_KERNELS,
    *LINEAR_KERNELS,
)
