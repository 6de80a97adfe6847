"""How prefill reads nvfp4 pages, and the back ends that follow from it."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import fp8_kv, is_nvfp4

HOOK = "arg_groups/kv_cache_hook.py"
NVFP4_PREFILL_BACKEND = {"fp8_e4m3": "flashinfer", "nvfp4": "trtllm_mha"}
"""Prefill back end by the dtype in which prefill reads nvfp4 pages. Source: kv_cache_hook.py:24."""


def _explicit_prefill(r: Resolution) -> str | None:
    backend: str | None = r.prefill_attention_backend or r.attention_backend
    return backend


def prefill_reads(r: Resolution) -> str | None:
    """The dtype in which prefill reads nvfp4 pages; None where its back end reads neither."""
    asked = r.prefill_kv_cache_dequant_dtype
    if asked in NVFP4_PREFILL_BACKEND:
        return str(asked)
    backend = _explicit_prefill(r)
    if backend is None:
        return "nvfp4" if r.platform.is_sm100 else "fp8_e4m3"
    return next((dtype for dtype, one in NVFP4_PREFILL_BACKEND.items() if one == backend), None)


@rule(
    "KV300",
    stage=Stage.RESOLVE,
    option="prefill_kv_cache_dequant_dtype",
    source=f"{HOOK}:42",
    example=Example("--prefill-kv-cache-dequant-dtype fp8_e4m3"),
    fragments=("--prefill-kv-cache-dequant-dtype applies only with",),
)
def dequant_dtype_needs_nvfp4(r: Resolution) -> Iterator[Hit]:
    """The prefill dequantisation dtype belongs to nvfp4.

    Why: it says how prefill reads nvfp4 pages; no other KV dtype is unpacked before prefill.
    Fix: drop the option, or store KV as nvfp4 (Blackwell).
    """
    if not is_nvfp4(r) and r.prefill_kv_cache_dequant_dtype != "auto":
        yield hit(
            f"it applies to KV dtype nvfp4 only; the KV dtype is {r.kv_cache_dtype}",
            drop("prefill_kv_cache_dequant_dtype"),
            set_to("store KV as nvfp4 (Blackwell GPUs)", kv_cache_dtype="nvfp4"),
        )


@rule(
    "KV301",
    stage=Stage.RESOLVE,
    option="prefill_attention_backend",
    source=f"{HOOK}:52",
    example=Example("--kv-cache-dtype nvfp4 --attention-backend triton", gpu="b200"),
    fragments=("provides neither",),
)
def nvfp4_prefill_backend_reads_it(r: Resolution) -> Iterator[Hit]:
    """Prefill on nvfp4 pages runs on flashinfer or trtllm_mha.

    Why: flashinfer unpacks pages to FP8 first, trtllm_mha reads them as they lie; no other back
    end does either.
    Fix: drop the attention back end, or set one of the two for prefill.
    """
    if not is_nvfp4(r) or prefill_reads(r) is not None:
        return
    backend = _explicit_prefill(r)
    option = "prefill_attention_backend" if r.prefill_attention_backend else "attention_backend"
    fixes = [
        set_to("run prefill on flashinfer (unpacks to FP8)", prefill_attention_backend="flashinfer")
    ]
    if r.chose(option):
        other = ("attention_backend",) if r.chose("attention_backend") else ()
        fixes.insert(0, drop(*dict.fromkeys((option, *other))))
    yield hit(
        f"prefill back end {backend} can't read nvfp4 pages; flashinfer and trtllm_mha can",
        *fixes,
        fp8_kv(r),
        option=option,
    )


@rule(
    "KV302",
    stage=Stage.RESOLVE,
    option="prefill_kv_cache_dequant_dtype",
    source=f"{HOOK}:58",
    example=Example("--kv-cache-dtype nvfp4 --prefill-kv-cache-dequant-dtype nvfp4", gpu="rtx5090"),
    fragments=("Native NVFP4 prefill currently requires SM100",),
)
def native_nvfp4_prefill_needs_sm100(r: Resolution) -> Iterator[Hit]:
    """Prefill reads nvfp4 natively on SM100 only.

    Why: trtllm_mha's FP4 kernels exist for data-centre Blackwell; elsewhere pages are unpacked
    to FP8.
    Fix: --prefill-kv-cache-dequant-dtype fp8_e4m3, and no trtllm_mha for prefill.
    """
    if not is_nvfp4(r) or prefill_reads(r) != "nvfp4" or r.platform.is_sm100:
        return
    changes = {"prefill_kv_cache_dequant_dtype": "fp8_e4m3", "prefill_attention_backend": None}
    if _explicit_prefill(r) == "trtllm_mha":
        changes["prefill_attention_backend"] = "flashinfer"
    yield hit(
        f"{r.platform.gpu.name} can't read nvfp4 pages natively in prefill; only SM100 does",
        set_to("unpack to FP8 for prefill (a workspace in GPU memory)", **changes),
        fp8_kv(r),
    )


@rule(
    "KV303",
    stage=Stage.RESOLVE,
    option="prefill_attention_backend",
    source=f"{HOOK}:66",
    example=Example(
        "--kv-cache-dtype nvfp4 --prefill-kv-cache-dequant-dtype fp8_e4m3 "
        "--prefill-attention-backend trtllm_mha",
        gpu="b200",
    ),
    fragments=("Remove the backend option and select the KV dtype only",),
)
def nvfp4_prefill_backend_matches(r: Resolution) -> Iterator[Hit]:
    """The dequantisation dtype decides the prefill back end.

    Why: fp8_e4m3 is read by flashinfer, nvfp4 by trtllm_mha, and nothing else reads either.
    Fix: drop --prefill-attention-backend; the engine then sets the right one.
    """
    reads = prefill_reads(r) if is_nvfp4(r) else None
    asked = r.prefill_attention_backend
    if reads is None or asked in (None, NVFP4_PREFILL_BACKEND[reads]):
        return
    wanted = NVFP4_PREFILL_BACKEND[reads]
    yield hit(
        f"prefill that reads {reads} runs on {wanted}, and {asked} is set",
        drop("prefill_attention_backend")
        if r.chose("prefill_attention_backend")
        else set_to(f"run prefill on {wanted}", prefill_attention_backend=wanted),
        drop("prefill_kv_cache_dequant_dtype"),
    )


@rule(
    "KV304",
    stage=Stage.RESOLVE,
    option="decode_attention_backend",
    source=f"{HOOK}:78",
    example=Example("--kv-cache-dtype nvfp4 --decode-attention-backend triton", gpu="b200"),
    fragments=("NVFP4 decode requires --decode-attention-backend=trtllm_mha",),
)
def nvfp4_decodes_on_trtllm(r: Resolution) -> Iterator[Hit]:
    """Decode on nvfp4 pages runs on trtllm_mha.

    Why: it is the only back end whose decode kernel reads nvfp4 pages.
    Fix: drop --decode-attention-backend.
    """
    if is_nvfp4(r) and r.decode_attention_backend not in (None, "trtllm_mha"):
        yield hit(
            f"decode on nvfp4 pages runs on trtllm_mha only, and {r.decode_attention_backend} "
            "is set",
            set_to("decode on trtllm_mha", decode_attention_backend="trtllm_mha"),
            fp8_kv(r),
        )


@step(f"{HOOK}:85")
def set_nvfp4_backends(r: Resolution) -> None:
    """Give nvfp4 its prefill and decode back end."""
    reads = prefill_reads(r) if is_nvfp4(r) else None
    if reads is None:
        return
    r.declare(
        f"prefill reads nvfp4 pages as {reads}",
        prefill_attention_backend=NVFP4_PREFILL_BACKEND[reads],
    )
    r.declare("only trtllm_mha decodes nvfp4 pages", decode_attention_backend="trtllm_mha")
    if r.prefill_kv_cache_dequant_dtype == "auto":
        r.default("follows the GPU and the prefill back end", prefill_kv_cache_dequant_dtype=reads)


HANDLE_NVFP4_PREFILL_KV_DEQUANT_DTYPE: tuple[Part, ...] = (
    dequant_dtype_needs_nvfp4,
    nvfp4_prefill_backend_reads_it,
    native_nvfp4_prefill_needs_sm100,
    nvfp4_prefill_backend_matches,
    nvfp4_decodes_on_trtllm,
    set_nvfp4_backends,
)
