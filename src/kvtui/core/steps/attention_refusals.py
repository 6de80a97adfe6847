"""Attention back ends that argument resolution refuses for a GPU, KV dtype or role.

Mirrors the checks of `handle_attention_backend_compatibility` and its passes (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.graphs import DECODE, PREFILL
from kvtui.core.resolution import Example, Hit, Resolution, hit, rule
from kvtui.core.steps.attention_default import BACKEND_OPTIONS, without_backend


def chosen_for_decode(r: Resolution, backend: str) -> bool:
    """True where the common or the decode option names `backend`."""
    return backend in (r.attention_backend, r.decode_attention_backend)


def chosen_anywhere(r: Resolution, backend: str) -> bool:
    """True where any of the three backend options names `backend`."""
    return chosen_for_decode(r, backend) or r.prefill_attention_backend == backend


@rule(
    "KV220",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:169",
    example=Example(
        "--attention-backend flex_attention --speculative-algorithm NGRAM",
    ),
    fragments=("Speculative decoding is currently not supported with Flex Attention",),
)
def flex_attention_does_not_verify(r: Resolution) -> Iterator[Hit]:
    """`flex_attention` excludes speculative decoding.

    Why: it has no kernels that verify draft tokens.

    Fix: choose another backend, or drop speculation.
    """
    if r.attention_backend == "flex_attention" and r.speculative_algorithm is not None:
        yield hit(
            f"flex_attention can't verify the drafts of {r.speculative_algorithm}",
            without_backend(r, "flex_attention"),
            drop("speculative_algorithm", title="drop speculative decoding"),
        )


@rule(
    "KV221",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/overrides.py:1211",
    example=Example("--attention-backend trtllm_mla", model="deepseek-ai/DeepSeek-V3"),
    fragments=("TRTLLM MLA backend is only supported on Blackwell",),
)
def trtllm_mla_needs_blackwell(r: Resolution) -> Iterator[Hit]:
    """`trtllm_mla` runs on Blackwell GPUs only.

    Why: its kernels exist for SM100 and SM12x.

    Fix: leave the choice to the engine (fa3 on Hopper, triton elsewhere).
    """
    if chosen_for_decode(r, "trtllm_mla") and not r.platform.is_blackwell:
        yield hit(
            f"trtllm_mla needs a Blackwell GPU; {r.platform.gpu.name} is SM{r.platform.sm}",
            without_backend(r, "trtllm_mla"),
        )


@rule(
    "KV222",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source="arg_groups/overrides.py:1215",
    example=Example(
        "--attention-backend trtllm_mla --kv-cache-dtype fp8_e5m2",
        model="deepseek-ai/DeepSeek-V3",
        gpu="b200",
    ),
    fragments=("TensorRT-LLM MLA backend only supports kv-cache-dtype",),
)
def trtllm_mla_kv_dtype(r: Resolution) -> Iterator[Hit]:
    """`trtllm_mla` reads a KV cache in fp8_e4m3, bf16 or the model's dtype.

    Why: there are no kernels for other formats; the engine takes only the spelling bf16,
    not bfloat16.

    Fix: use fp8_e4m3 (half the bytes of bf16) or auto.
    """
    if not chosen_for_decode(r, "trtllm_mla") or not r.platform.is_blackwell:
        return
    if r.kv_cache_dtype not in ("fp8_e4m3", "bf16", "auto"):
        same = r.kv_cache_dtype == "bfloat16"
        yield hit(
            f"trtllm_mla takes fp8_e4m3, bf16 or auto; found {r.kv_cache_dtype}",
            set_to("spell it bf16", kv_cache_dtype="bf16")
            if same
            else set_to("use fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
        )


@rule(
    "KV223",
    stage=Stage.RESOLVE,
    option="prefill_attention_backend",
    source="arg_groups/overrides.py:1242",
    example=Example(
        "--prefill-attention-backend cutedsl_mla",
        model="deepseek-ai/DeepSeek-V3",
        gpu="b200",
    ),
    fragments=("CuteDSL MLA only supports decoding",),
)
def cutedsl_mla_decodes_only(r: Resolution) -> Iterator[Hit]:
    """`cutedsl_mla` can't be the prefill backend.

    Why: it has decode kernels only; prefill goes to trtllm_mla.

    Fix: name it for decode, or leave the prefill backend out.
    """
    if r.prefill_attention_backend == "cutedsl_mla":
        yield hit(
            "cutedsl_mla has decode kernels only",
            set_to(
                "decode with it, prefill with trtllm_mla",
                prefill_attention_backend=None,
                decode_attention_backend="cutedsl_mla",
            ),
        )


@rule(
    "KV224",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/overrides.py:1245",
    example=Example("--attention-backend cutedsl_mla", model="deepseek-ai/DeepSeek-V3"),
    fragments=("CuteDSL MLA backend is only supported on Blackwell",),
)
def cutedsl_mla_needs_sm100(r: Resolution) -> Iterator[Hit]:
    """`cutedsl_mla` runs on data-centre Blackwell (SM100) only.

    Why: its kernels use that generation's tensor memory.

    Fix: leave the choice to the engine.
    """
    if chosen_anywhere(r, "cutedsl_mla") and not r.platform.is_sm100:
        yield hit(
            f"cutedsl_mla needs SM100; {r.platform.gpu.name} is SM{r.platform.sm}",
            without_backend(r, "cutedsl_mla", "tokenspeed_mla"),
        )


@rule(
    "KV225",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source="arg_groups/overrides.py:1249",
    example=Example(
        "--attention-backend cutedsl_mla --kv-cache-dtype fp8_e5m2",
        model="deepseek-ai/DeepSeek-V3",
        gpu="b200",
    ),
    fragments=("CuteDSL MLA backend only supports kv-cache-dtype",),
)
def cutedsl_mla_kv_dtype(r: Resolution) -> Iterator[Hit]:
    """`cutedsl_mla` reads a KV cache in fp8_e4m3, bf16 or the model's dtype.

    Why: there are no kernels for other formats.

    Fix: use fp8_e4m3 (half the bytes of bf16) or auto.
    """
    if not chosen_anywhere(r, "cutedsl_mla") or not r.platform.is_sm100:
        return
    if r.kv_cache_dtype not in ("fp8_e4m3", "bf16", "bfloat16", "auto"):
        yield hit(
            f"cutedsl_mla takes fp8_e4m3, bf16 or auto; found {r.kv_cache_dtype}",
            set_to("use fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
        )


def _has_trtllm_mha(r: Resolution) -> bool:
    return r.platform.is_sm90 or r.platform.is_sm100 or r.platform.is_sm120


@rule(
    "KV226",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:203",
    example=Example("--attention-backend trtllm_mha", gpu="a100-80"),
    fragments=(
        "TRTLLM MHA backend for prefill requires",
        "TRTLLM MHA backend for decode is only supported",
    ),
)
def trtllm_mha_gpu(r: Resolution) -> Iterator[Hit]:
    """`trtllm_mha` runs on SM90, SM100 and SM120 only.

    Why: there are no kernels for other GPUs.

    Fix: leave the choice to the engine (flashinfer on older GPUs).
    """
    phases = [
        name
        for name, backend in zip((PREFILL, DECODE), r.backends, strict=True)
        if backend == "trtllm_mha"
    ]
    if phases and not _has_trtllm_mha(r):
        yield hit(
            f"trtllm_mha ({' and '.join(phases)}) needs SM90, SM100 or SM120; "
            f"{r.platform.gpu.name} is SM{r.platform.sm}",
            _without_trtllm_mha(r),
        )


def _without_trtllm_mha(r: Resolution) -> Fix:
    """NVFP4 caches bring trtllm_mha along for decode, so there the KV dtype has to go."""
    named = any(getattr(r.raw, option) == "trtllm_mha" for option in BACKEND_OPTIONS)
    if named or r.kv_cache_dtype != "nvfp4":
        return without_backend(r, "trtllm_mha")
    return set_to("keep KV in fp8_e4m3 (twice the bytes)", kv_cache_dtype="fp8_e4m3")


@rule(
    "KV227",
    stage=Stage.RESOLVE,
    option="kv_cache_dtype",
    source="arg_groups/attention_hook.py:218",
    example=Example("--attention-backend trtllm_mha --kv-cache-dtype fp8_e4m3", gpu="rtx5090"),
    fragments=("TRTLLM FMHAv2 prefill on SM120",),
)
def trtllm_mha_sm120_prefill(r: Resolution) -> Iterator[Hit]:
    """On SM120, trtllm_mha prefills neither from an fp8_e4m3 cache nor with skip-softmax.

    Why: prefill goes to an older kernel family there that lacks both.

    Fix: prefill with flashinfer and keep trtllm_mha for decode, or use another KV dtype.
    """
    if r.backends[0] != "trtllm_mha" or not r.platform.is_sm120:
        return
    skips = _skip_softmax_threshold(r) > 0
    if r.kv_cache_dtype == "fp8_e4m3" or skips:
        found = "kv_cache_dtype fp8_e4m3" if r.kv_cache_dtype == "fp8_e4m3" else "skip-softmax"
        yield hit(
            f"trtllm_mha can't prefill with {found} on SM120",
            set_to("prefill with flashinfer", prefill_attention_backend="flashinfer"),
            without_backend(r, "trtllm_mha"),
        )


def _skip_softmax_threshold(r: Resolution) -> float:
    try:
        return float(r.env.get("SGLANG_SKIP_SOFTMAX_PREFILL_THRESHOLD_SCALE_FACTOR", 0))
    except ValueError:
        return 0.0


@rule(
    "KV228",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:234",
    example=Example(
        "--attention-backend trtllm_mha --tp-size 2 --attn-cp-size 2 --enable-prefill-cp "
        "--cp-strategy zigzag",
        model="Qwen/Qwen3-30B-A3B",
    ),
    fragments=("Prefill context parallelism with the TRTLLM MHA",),
)
def trtllm_mha_context_parallel(r: Resolution) -> Iterator[Hit]:
    """Prefill context parallelism on trtllm_mha needs SM100.

    Why: the kernels of SM90 and SM120 don't mask other ranks' shards.

    Fix: prefill with another backend.
    """
    if r.backends[0] == "trtllm_mha" and whole(r.attn_cp_size) > 1 and not r.platform.is_sm100:
        yield hit(
            f"trtllm_mha masks context shards on SM100 only, not on SM{r.platform.sm}",
            without_backend(r, "trtllm_mha"),
        )
