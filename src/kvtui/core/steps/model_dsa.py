"""DeepSeek sparse attention: KV dtype, sparse kernels and what they exclude.

Mirrors the DSA branch of `handle_model_specific_adjustments` and the passes
`_dsa_kv_cache_dtype_default` and `_dsa_split_backend_resolution` (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import from_instance, whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.graphs import BREAKABLE, DISABLED, PREFILL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.graphs import supports_prefill_cp_bcg
from kvtui.core.steps.model_common import DEEPSEEK_FAMILY, arch, overriding, settle

OVERRIDES = "arg_groups/overrides.py"
HOOK = "arg_groups/model_hook.py"
V32 = "deepseek-ai/DeepSeek-V3.2"
SPLIT = ("dsa_prefill_backend", "dsa_decode_backend")
BF16 = ("bfloat16", "bf16")


def serves_dsa(r: Resolution) -> bool:
    """True for a DSA model of the DeepSeek family on an NVIDIA or AMD GPU."""
    if from_instance(r) or arch(r) not in DEEPSEEK_FAMILY or not r.model.is_dsa:
        return False
    return not (r.platform.is_npu or r.platform.is_xpu)


def has_sinks(r: Resolution) -> bool:
    """True for a DSA model with learned attention sinks."""
    return bool(r.model.hf_config.get("learnable_sink", False))


def _major(r: Resolution) -> int:
    return int(r.platform.gpu.capability[0])


@step(f"{HOOK}:285")
def dense_threshold(r: Resolution) -> None:
    """Prompts up to the model's top-k run dense unless the environment says otherwise."""
    if serves_dsa(r):
        name = "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD"
        r.env.setdefault(name, str(r.model.hf_config.get("index_topk")))


@step(f"{HOOK}:311")
def dsa_prefill_cp_graphs(r: Resolution) -> None:
    """Sparse context parallelism captures prefill only in breakable pieces."""
    if not serves_dsa(r) or not r.enable_prefill_cp:
        return
    graphs = r.cuda_graph_config
    if graphs.prefill.backend == BREAKABLE and supports_prefill_cp_bcg(r):
        return
    r.declare(
        "context parallelism can't be captured with it",
        cuda_graph_config=graphs.with_phase(PREFILL, backend=DISABLED),
    )


@rule(
    "KV113",
    stage=Stage.RESOLVE,
    option="enable_two_batch_overlap",
    source=f"{HOOK}:54",
    example=Example("--tp-size 8 --enable-two-batch-overlap", model="zai-org/GLM-5.2", gpu="h200"),
    fragments=("not supported with DSA index-topk sharing",),
)
def dsa_overlap_shares_index(r: Resolution) -> Iterator[Hit]:
    """Two-batch overlap can't share indices between layers.

    Why: some layers of this model reuse the token choice of the layer before, and the overlapped
    path does not hand that choice on.

    Fix: drop --enable-two-batch-overlap.
    """
    if not serves_dsa(r) or not r.enable_two_batch_overlap:
        return
    config = r.model.hf_config
    shared = (
        whole(config.get("index_topk_freq"), 1) > 1
        or "S" in str(config.get("index_topk_pattern") or "")
        or "shared" in (config.get("indexer_types") or ())
    )
    if shared:
        yield hit(
            f"--enable-two-batch-overlap with {arch(r)}, whose layers share top-k indices",
            drop("enable_two_batch_overlap"),
        )


@rule(
    "KV114",
    stage=Stage.RESOLVE,
    option="enable_prefill_cp",
    source=f"{HOOK}:362",
    example=Example(
        "--tp-size 8 --enable-prefill-cp --disaggregation-mode decode", model=V32, gpu="h200"
    ),
    fragments=("CP is only supported for prefill when PD",),
)
def dsa_prefill_cp_on_decode(r: Resolution) -> Iterator[Hit]:
    """A decode server has no prompt to split.

    Why: prefill context parallelism splits prompts over ranks, and the prefill server reads them.

    Fix: drop --enable-prefill-cp on the decode server.
    """
    if serves_dsa(r) and r.enable_prefill_cp and r.disaggregation_mode == "decode":
        yield hit("--enable-prefill-cp on a decode server", drop("enable_prefill_cp"))


@rule(
    "KV115",
    stage=Stage.RESOLVE,
    option="enable_dsa_cache_layer_split",
    source=f"{HOOK}:365",
    example=Example("--tp-size 8 --enable-dsa-cache-layer-split", model=V32, gpu="h200"),
    fragments=("--enable-dsa-cache-layer-split",),
)
def dsa_layer_split_needs(r: Resolution) -> Iterator[Hit]:
    """Splitting the sparse cache by layers is for prefill servers under context parallelism.

    Why: each rank keeps the cache of some layers and Mooncake hands them on; a server that also
    decodes needs every layer, and pipeline stages already split layers.

    Fix: drop --enable-dsa-cache-layer-split, or meet the condition that is named.
    """
    if not r.enable_dsa_cache_layer_split or from_instance(r):
        return
    if not r.model.is_dsa:
        found = f"{arch(r)} has no sparse attention"
    elif not serves_dsa(r):
        return
    elif r.disaggregation_mode != "prefill":
        found = f"--disaggregation-mode is {r.disaggregation_mode}, not prefill"
    elif not r.enable_prefill_cp or r.cp_strategy != "interleave":
        found = "it needs --enable-prefill-cp with --cp-strategy interleave"
    elif r.disaggregation_transfer_backend != "mooncake":
        found = f"caches go out through {r.disaggregation_transfer_backend}, not mooncake"
    elif whole(r.pp_size, 1) > 1:
        found = f"--pp-size {r.pp_size} splits layers already"
    else:
        return
    yield hit(f"--enable-dsa-cache-layer-split: {found}", drop("enable_dsa_cache_layer_split"))


@rule(
    "KV137",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source=f"{OVERRIDES}:541",
    example=Example("--tp-size 8 --kv-cache-dtype fp8_e5m2", model=V32, gpu="h200"),
    fragments=("DeepSeek DSA only supports", "Learnable DSA attention sinks require"),
)
def dsa_kv_dtype(r: Resolution) -> Iterator[Hit]:
    """Sparse attention stores KV as bfloat16 or fp8_e4m3.

    Why: its kernels read these two row layouts only; learned sinks leave bfloat16 alone.

    Fix: use fp8_e4m3 (fewer bytes a token) or bfloat16, or leave the dtype to the engine.
    """
    if not serves_dsa(r):
        return
    asked = r.kv_cache_dtype
    if has_sinks(r) and asked not in ("auto", *BF16):
        yield hit(f"{asked} with learned attention sinks", drop("kv_cache_dtype"))
    elif asked not in ("auto", "fp8_e4m3", *BF16):
        yield hit(
            f"{asked} KV with DeepSeek sparse attention, which stores bfloat16 or fp8_e4m3",
            set_to("use fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
            set_to("use bfloat16", kv_cache_dtype="bfloat16"),
        )


@step(f"{OVERRIDES}:491")
def dsa_kv_cache_dtype_default(r: Resolution) -> None:
    """fp8_e4m3 from SM100 on, bfloat16 before and where sinks are learned."""
    if not serves_dsa(r):
        return
    asked = r.kv_cache_dtype
    if asked == "auto":
        fp8 = _major(r) >= 10 and not has_sinks(r)
        settle(
            r,
            "sparse attention stores it on this GPU",
            kv_cache_dtype="fp8_e4m3" if fp8 else "bfloat16",
        )
    elif asked == "bf16":
        r.declare("it is another name for it", kv_cache_dtype="bfloat16")


def _fill_split(r: Resolution, prefill: str, decode: str, why: str) -> None:
    for name, value in zip(SPLIT, (prefill, decode), strict=True):
        if getattr(r, name) is None:
            r.default(why, **{name: value})


def is_glm_on_sm120(r: Resolution) -> bool:
    """GLM's sparse attention with 8-bit KV on SM120, which has kernels of its own."""
    return (
        arch(r) == "GlmMoeDsaForCausalLM"
        and r.platform.is_cuda
        and _major(r) == 12
        and r.kv_cache_dtype == "fp8_e4m3"
    )


def _hisparse_backend(r: Resolution) -> str:
    if r.platform.is_hip:
        return "tilelang"
    return "flashmla_kv" if r.kv_cache_dtype == "fp8_e4m3" else "flashmla_sparse"


@step(f"{OVERRIDES}:600")
def dsa_split_backend_resolution(r: Resolution) -> None:
    """Sparse kernels per phase, by KV dtype and GPU generation."""
    if not serves_dsa(r):
        return
    blackwell = _major(r) >= 10
    if has_sinks(r):
        _fill_split(r, "flashmla_sparse", "flashmla_sparse", "it reads attention sinks")
    elif is_glm_on_sm120(r):
        name = "flashinfer_sparse_mla"
        _fill_split(r, name, name, "it serves 8-bit KV on this GPU")
    elif r.enable_hisparse:
        name = _hisparse_backend(r)
        _fill_split(r, name, name, "HiSparse runs on it")
    elif r.platform.is_hip:
        _fill_split(r, "triton", "triton", "it serves sparse attention on ROCm")
    elif r.kv_cache_dtype == "fp8_e4m3":
        name = "trtllm" if blackwell else "flashmla_kv"
        _fill_split(r, name, name, "it reads 8-bit KV on this GPU")
    else:
        decode = "trtllm" if blackwell else "fa3"
        _fill_split(r, "flashmla_sparse", decode, "it reads 16-bit KV on this GPU")


@rule(
    "KV139",
    stage=Stage.RESOLVE,
    option="dsa_prefill_backend",
    source=f"{OVERRIDES}:649",
    example=Example(
        overriding(learnable_sink=True) + " --tp-size 8 --dsa-decode-backend fa3",
        model="deepseek-ai/DeepSeek-V3.2",
        gpu="h200",
    ),
    fragments=("uses learnable attention sinks and requires",),
)
def dsa_sinks_need_flashmla(r: Resolution) -> Iterator[Hit]:
    """Learned sinks in sparse attention need flashmla_sparse.

    Why: no other sparse kernel adds the sink to the softmax.

    Fix: leave --dsa-prefill-backend and --dsa-decode-backend to the engine.
    """
    if not serves_dsa(r) or not has_sinks(r):
        return
    for name in SPLIT:
        value = getattr(r, name)
        if value not in (None, "flashmla_sparse"):
            flag = "--" + name.replace("_", "-")
            yield hit(f"{flag} {value} with learned attention sinks", drop(name), option=name)


def _free_split(r: Resolution) -> Fix:
    named = tuple(name for name in SPLIT if r.chose(name))
    return drop(*(named or SPLIT), title="let the engine choose the sparse kernels")


@rule(
    "KV138",
    stage=Stage.RESOLVE,
    option="dsa_prefill_backend",
    source=f"{OVERRIDES}:550",
    example=Example("--tp-size 8 --dsa-decode-backend triton", model=V32, gpu="h200"),
    fragments=(
        "DSA backend is only supported on ROCm",
        "CUDA TileLang FP8 KV",
    ),
)
def dsa_kernels_fit(r: Resolution) -> Iterator[Hit]:
    """Sparse kernels have to fit the GPU and the KV rows.

    Why: Triton's are written for ROCm; TileLang reads raw 8-bit rows, which no other kernel
    does, so both phases have to use it, on SM89 and newer, without HiSparse or decode CP.

    Fix: leave the sparse kernels to the engine.
    """
    if not serves_dsa(r) or has_sinks(r) or is_glm_on_sm120(r) or r.platform.is_hip:
        return
    chosen = [getattr(r, name) for name in SPLIT]
    option = SPLIT[1] if r.chose(SPLIT[1]) and not r.chose(SPLIT[0]) else SPLIT[0]
    if "triton" in chosen:
        yield hit("triton sparse kernels need ROCm", _free_split(r), option=option)
    if r.kv_cache_dtype != "fp8_e4m3" or "tilelang" not in chosen:
        return
    if r.enable_hisparse:
        found = "--enable-hisparse is on"
    elif chosen[0] != chosen[1]:
        found = f"the phases differ ({chosen[0]}, {chosen[1]})"
    elif whole(r.dcp_size, 1) > 1:
        found = f"--dcp-size is {r.dcp_size}"
    elif r.platform.device_sm < 89:
        found = f"the GPU is SM{r.platform.device_sm}, not SM89 or newer"
    else:
        return
    yield hit(
        f"tilelang over fp8_e4m3 KV: {found}",
        _free_split(r),
        set_to("store KV as bfloat16", kv_cache_dtype="bfloat16"),
        option=option,
    )


DSA_BRANCH: tuple[Part, ...] = (
    dense_threshold,
    dsa_overlap_shares_index,
    dsa_prefill_cp_graphs,
    dsa_kv_dtype,
    dsa_kv_cache_dtype_default,
    dsa_sinks_need_flashmla,
    dsa_split_backend_resolution,
    dsa_kernels_fit,
    dsa_prefill_cp_on_decode,
)
"""The DSA branch of `handle_model_specific_adjustments`, in the engine's order."""
