"""Kernels of DeepSeek's sparse attention (DSA, and the V4 generation) that a GPU lacks."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.late.backends import DECODE, PREFILL, backend_table, keeps_fp8_e4m3, sm_names
from kvtui.core.model import archs
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

GLM_SM12 = ("flashinfer_sparse_mla", "triton_sparse_mla")
"""The only kernels for GLM over an fp8_e4m3 cache on SM12x."""

INDEXER_IN_TORCH = "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH"

DSA_OPTIONS = ((PREFILL, "dsa_prefill_backend"), (DECODE, "dsa_decode_backend"))


def _runs_dsa(r: Resolution) -> bool:
    return r.platform.is_cuda and bool(r.model.is_dsa) and "dsa" in r.backends


def _is_glm_fp8_on_sm12(r: Resolution) -> bool:
    glm = "GlmMoeDsaForCausalLM" in r.model.architectures
    return glm and r.platform.is_sm120 and keeps_fp8_e4m3(r)


@rule(
    "KV920",
    stage=Stage.SERVE,
    option="dsa_decode_backend",
    source="layers/attention/dsa_backend.py:528",
    example=Example(
        "--tp-size 8 --dsa-decode-backend fa3 --kv-cache-dtype bfloat16",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="b200",
    ),
    fragments=(
        "Sparse Attention Forward Kernel is only supported on SM90a and SM100f",
        "Unsupported architecture for sparse decode fwd",
        "flashinfer_sparse_mla supports only GLM DSA",
        "triton_sparse_mla requires SM90",
    ),
)
def dsa_kernels_for_gpu(r: Resolution) -> Iterator[Hit]:
    """The kernels inside the dsa backend exist for this GPU.

    Why: they are built for single GPU generations, and argument checks let most pairs
    through.

    Fix: leave --dsa-prefill-backend and --dsa-decode-backend to the engine, or use tilelang.
    """
    if not _runs_dsa(r) or _is_glm_fp8_on_sm12(r):
        return
    for phase, option in DSA_OPTIONS:
        kernel = getattr(r, option)
        majors = backend_table().dsa.get(str(kernel), ())
        if majors and r.platform.device_capability[0] not in majors:
            tilelang = set_to("use tilelang", **{name: "tilelang" for _, name in DSA_OPTIONS})
            yield hit(
                f"{kernel} ({phase}) is built for {sm_names(majors)}; "
                f"{r.platform.gpu.name} is SM{r.platform.sm}",
                drop(option) if r.chose(option) else tilelang,
                option=option,
            )


@rule(
    "KV921",
    stage=Stage.SERVE,
    option="dsa_decode_backend",
    source="kernels/ops/attention/flash_mla_sm120.py:702",
    example=Example(
        "--tp-size 8 --kv-cache-dtype fp8_e4m3 --dsa-decode-backend flashmla_kv",
        model="zai-org/GLM-5",
        gpu="rtxpro6000",
    ),
    fragments=("GLM DSA with FP8 KV cache on NVIDIA SM120/SM121",),
)
def glm_sparse_kernels_on_sm12(r: Resolution) -> Iterator[Hit]:
    """GLM over an fp8_e4m3 cache runs on FlashInfer's sparse kernels on SM120 and SM121.

    Why: the other sparse kernels are not built for these GPUs.

    Fix: leave the DSA kernels to the engine.
    """
    if not _runs_dsa(r) or not _is_glm_fp8_on_sm12(r):
        return
    for phase, option in DSA_OPTIONS:
        kernel = getattr(r, option)
        if kernel is not None and kernel not in GLM_SM12[: 2 if phase == PREFILL else 1]:
            yield hit(
                f"{kernel} ({phase}) can't read GLM's fp8_e4m3 pages on SM{r.platform.sm}",
                set_to("use flashinfer_sparse_mla", **{option: GLM_SM12[0]}),
                option=option,
            )


@rule(
    "KV922",
    stage=Stage.SERVE,
    option=None,
    source="layers/attention/dsa/utils.py:499",
    example=Example(
        "--tp-size 8 --dsa-prefill-backend tilelang --dsa-decode-backend tilelang",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="a100-80",
    ),
)
def dsa_indexer_gpu(r: Resolution) -> Iterator[Hit]:
    """The index that picks tokens for sparse attention is computed from SM90 up.

    Why: it runs on DeepGEMM, which has no kernels for older GPUs.

    Fix: set SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1, which computes it in PyTorch, much slower.
    """
    if _runs_dsa(r) and r.platform.device_capability[0] < 9 and not r.env_flag(INDEXER_IN_TORCH):
        yield hit(
            f"DeepGEMM computes the index on SM90 and newer, not on SM{r.platform.sm}",
            set_to("compute the index in PyTorch (slow)", **{f"env:{INDEXER_IN_TORCH}": "1"}),
        )


@rule(
    "KV923",
    stage=Stage.SERVE,
    option="dsa_decode_backend",
    source="layers/attention/dsa_backend.py:484",
    example=Example(
        "--tp-size 8 --dsa-decode-backend flashmla_sparse_q8", model="deepseek-ai/DeepSeek-V3.2"
    ),
    fragments=("--dsa-decode-backend flashmla_sparse_q8 is not supported",),
)
def q8_kernels_prefill_only(r: Resolution) -> Iterator[Hit]:
    """`flashmla_sparse_q8` can't decode.

    Why: it has prefill kernels only.

    Fix: name it for prefill, or leave the decode kernels to the engine.
    """
    if _runs_dsa(r) and r.dsa_decode_backend == "flashmla_sparse_q8":
        yield hit("flashmla_sparse_q8 has prefill kernels only", drop("dsa_decode_backend"))


@rule(
    "KV924",
    stage=Stage.SERVE,
    option="dsv4_prefill_backend",
    source="layers/attention/deepseek_v4_backend.py:1325",
    example=Example(
        "--tp-size 8 --dsv4-prefill-backend flashmla_sparse_q8",
        model="deepseek-ai/DeepSeek-V4-Flash",
        gpu="b200",
    ),
    fragments=("flashmla_sparse_q8 prefill requires SM90",),
)
def v4_q8_prefill_gpu(r: Resolution) -> Iterator[Hit]:
    """DeepSeek-V4 prefills with flashmla_sparse_q8 on SM90 only.

    Why: the kernel is built for Hopper.

    Fix: leave the prefill kernels to the engine.
    """
    is_v4 = not archs.DEEPSEEK_V4.isdisjoint(r.model.architectures)
    if is_v4 and r.dsv4_prefill_backend == "flashmla_sparse_q8" and not r.platform.is_sm90:
        yield hit(
            f"flashmla_sparse_q8 needs SM90; {r.platform.gpu.name} is SM{r.platform.sm}",
            drop("dsv4_prefill_backend"),
        )


SPARSE_KERNELS: tuple[Part, ...] = (
    dsa_kernels_for_gpu,
    glm_sparse_kernels_on_sm12,
    dsa_indexer_gpu,
    q8_kernels_prefill_only,
    v4_q8_prefill_gpu,
)
