"""KV dtypes that need particular GPUs, attention back ends and neighbours: FP4 and mxfp8."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import (
    AUTO_KV,
    fp4_on_cuda,
    fp8_kv,
    is_fp4,
    is_nvfp4,
    native_nvfp4,
)
from kvtui.core.steps.kv_cache_fp4_spec import NATIVE_SPEC_GATES

HOOK = "arg_groups/kv_cache_hook.py"
FP4_BACKENDS = {
    (True, True): ("flashinfer", "trtllm_mla"),
    (True, False): ("triton", "torch_native", "flex_attention"),
    (False, True): ("flashinfer", "trtllm_mla"),
    (False, False): ("triton", "torch_native", "flex_attention", "trtllm_mha"),
}
"""Back ends that read FP4 pages, by (fa4 runs prefill, MLA model). With fa4 the decode back end
counts, else the common one. Source: kv_cache_hook.py:275-317."""


@rule(
    "KV305",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source=f"{HOOK}:127",
    example=Example("--kv-cache-dtype nvfp4"),
    fragments=("nvfp4 requires Blackwell SM100 or SM120",),
)
def nvfp4_needs_blackwell(r: Resolution) -> Iterator[Hit]:
    """KV dtype nvfp4 needs SM100 or SM120.

    Why: its 4-bit values and scales are read by Blackwell's FP4 instructions.
    Fix: fp8_e4m3 (twice the bytes), or fp4_mx_block16 with triton.
    """
    gpu = r.platform
    if is_nvfp4(r) and gpu.is_cuda and not (gpu.is_sm100 or gpu.is_sm120):
        yield hit(
            f"{gpu.gpu.name} is SM{gpu.sm}; nvfp4 needs SM100 or SM120",
            fp8_kv(r),
            set_to(
                "store KV as fp4_mx_block16, read by triton (slower)",
                kv_cache_dtype="fp4_mx_block16",
                prefill_kv_cache_dequant_dtype=None,
                attention_backend="triton",
                prefill_attention_backend=None,
                decode_attention_backend=None,
            ),
        )


@rule(
    "KV306",
    stage=Stage.RESOLVE,
    option="enable_unified_memory",
    source=f"{HOOK}:132",
    example=Example("--kv-cache-dtype nvfp4 --enable-unified-memory", gpu="b200"),
    fragments=("FP4 KV cache does not yet support --enable-unified-memory",),
)
def fp4_has_no_unified_memory(r: Resolution) -> Iterator[Hit]:
    """The unified memory pool stores no FP4.

    Why: it allocates neither block scales nor the workspace that unpacks pages.
    Fix: drop --enable-unified-memory, or use fp8_e4m3.
    """
    if fp4_on_cuda(r) and r.enable_unified_memory:
        yield hit(
            f"the unified pool has no scale buffers for {r.kv_cache_dtype}",
            drop("enable_unified_memory"),
            fp8_kv(r),
        )


@rule(
    "KV310",
    stage=Stage.RESOLVE,
    option="disaggregation_mode",
    source=f"{HOOK}:251",
    example=Example("--kv-cache-dtype nvfp4 --disaggregation-mode decode", gpu="b200"),
    fragments=("does not yet support PD disaggregation because its physical",),
)
def native_nvfp4_has_no_pd(r: Resolution) -> Iterator[Hit]:
    """Native nvfp4 pages can't be sent between prefill and decode servers.

    Why: the transfer path does not carry trtllm_mha's block scales.
    Fix: fp8_e4m3 on both sides, or no PD disaggregation.
    """
    if r.disaggregation_mode != "null" and fp4_on_cuda(r) and native_nvfp4(r):
        yield hit(
            f"a {r.disaggregation_mode} server sends or receives pages, and nvfp4 scales "
            "are not part of the transfer",
            fp8_kv(r),
            drop("disaggregation_mode"),
        )


@rule(
    "KV311",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source=f"{HOOK}:259",
    example=Example("--kv-cache-dtype nvfp4 --enable-hierarchical-cache", gpu="b200"),
    fragments=("hierarchical KV cache or LMCache because their host pools",),
)
def native_nvfp4_has_no_host_tier(r: Resolution) -> Iterator[Hit]:
    """Native nvfp4 pages can't go to a host pool.

    Why: the host pools of HiCache and LMCache hold no block scales.
    Fix: fp8_e4m3, or no host tier.
    """
    if not (fp4_on_cuda(r) and native_nvfp4(r)):
        return
    for option in ("enable_hierarchical_cache", "enable_lmcache"):
        if getattr(r, option):
            yield hit(
                f"--{option.replace('_', '-')} keeps pages in host memory, where nvfp4 "
                "scales have no place",
                fp8_kv(r),
                drop(option),
            )


@rule(
    "KV312",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:276",
    example=Example("--kv-cache-dtype fp4_mx_block16 --attention-backend flashinfer"),
    fragments=("KV4 MHA expects", "KV4 MLA expects", "KV4 FA4 MHA expects", "KV4 FA4 MLA expects"),
)
def fp4_attention_backend(r: Resolution) -> Iterator[Hit]:
    """FP4 KV is read by a few attention back ends only.

    Why: a back end must unpack 4-bit pages; which ones do depends on MLA and on fa4 in prefill.
    Fix: one of those, or KV dtype fp8_e4m3.
    """
    if not fp4_on_cuda(r):
        return
    prefill, decode = r.backends
    flash = prefill == "fa4"
    if prefill != decode and not flash:
        return
    mla = r.model.attention_arch == "MLA"
    allowed = FP4_BACKENDS[flash, mla]
    option = "decode_attention_backend" if flash else "attention_backend"
    found = decode if flash else r.attention_backend
    if found in allowed:
        return
    runs = [name for name in allowed if name != "trtllm_mla" or r.platform.is_blackwell]
    unset = {
        name: None
        for name in ("prefill_attention_backend", "decode_attention_backend")
        if r.chose(name) and not flash
    }
    yield hit(
        f"{r.kv_cache_dtype} on {'an MLA' if mla else 'a plain'} model is read by "
        f"{', '.join(allowed)}; the {'decode ' if flash else ''}back end is {found}",
        set_to(f"use {runs[0]}", **unset, **{option: runs[0]}),
        fp8_kv(r),
        AUTO_KV,
        option=option,
    )


@rule(
    "KV313",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source=f"{HOOK}:319",
    example=Example("--kv-cache-dtype fp4_mx_block16", gpu="mi300x"),
    fragments=("KV4 is not tested on non-CUDA platforms",),
)
def fp4_needs_cuda(r: Resolution) -> Iterator[Hit]:
    """FP4 KV runs on NVIDIA GPUs only.

    Why: its packing kernels are CUDA.
    Fix: fp8_e4m3 or the model's dtype.
    """
    if is_fp4(r) and not r.platform.is_cuda:
        yield hit(
            f"{r.kv_cache_dtype} needs an NVIDIA GPU, and this is {r.platform.gpu.name}",
            fp8_kv(r),
            AUTO_KV,
        )


@rule(
    "KV314",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source=f"{HOOK}:105",
    example=Example("--kv-cache-dtype mxfp8"),
    fragments=("--kv-cache-dtype mxfp8 requires an SM100+",),
)
def mxfp8_needs_blackwell(r: Resolution) -> Iterator[Hit]:
    """KV dtype mxfp8 needs a Blackwell GPU.

    Why: its block scales are operands of Blackwell's tensor cores.
    Fix: fp8_e4m3, which stores almost the same bytes.
    """
    if r.kv_cache_dtype == "mxfp8" and not r.platform.is_blackwell:
        yield hit(
            f"{r.platform.gpu.name} is {_arch(r)}; mxfp8 needs SM100 or newer",
            set_to("store KV as fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
            AUTO_KV,
        )


def _arch(r: Resolution) -> str:
    return f"SM{r.platform.sm}" if r.platform.is_cuda else "no NVIDIA GPU"


HANDLE_KV4_COMPATIBILITY: tuple[Part, ...] = (
    nvfp4_needs_blackwell,
    fp4_has_no_unified_memory,
    *NATIVE_SPEC_GATES,
    native_nvfp4_has_no_pd,
    native_nvfp4_has_no_host_tier,
    fp4_attention_backend,
    fp4_needs_cuda,
)

HANDLE_MXFP8_KV_CACHE_COMPATIBILITY: tuple[Part, ...] = (mxfp8_needs_blackwell,)
