"""Refusals of the pool classes themselves: dtypes, page sizes and head dims that they can't hold.

Mirrors asserts and raises of srt/mem_cache (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import whole
from kvtui.core.findings import Stage, drop, set_to, unset
from kvtui.core.model.linear import linear_width
from kvtui.core.pools.classes import pool_family
from kvtui.core.pools.dsv4 import v4_shape
from kvtui.core.pools.geometry import geometry_of
from kvtui.core.pools.layouts import MXFP8_BLOCK
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

V4_MODEL = "deepseek-ai/DeepSeek-V4-Flash"
SMALL = "Qwen/Qwen3-8B"
HYBRID = "Qwen/Qwen3.5-27B"


@rule(
    "KV750",
    stage=Stage.LOAD,
    option="kv_cache_dtype",
    source="mem_cache/deepseek_v4_memory_pool.py:321",
    example=Example("--kv-cache-dtype bfloat16", V4_MODEL, "h200"),
    fragments=("assert self.store_dtype == torch.uint8",),
)
def v4_needs_bytes(r: Resolution) -> Iterator[Hit]:
    """DeepSeek-V4 keeps its cache in packed FP8 rows on CUDA.

    Why: A V4 row is FP8 values, rotary values and scales packed into bytes. The argument check
    lets bfloat16 pass, and the pool then stops on an assertion without a message.

    Fix: Use --kv-cache-dtype fp8_e4m3, which is also what auto means for this model.
    """
    g = geometry_of(r)
    if g.dsv4 and not g.kv_dtype.startswith("float8"):
        yield hit(
            f"DeepSeek-V4 stores its cache as packed FP8 bytes, and {g.kv_name} gives"
            f" {g.kv_dtype} rows",
            set_to("use fp8_e4m3, the model's own format", kv_cache_dtype="fp8_e4m3"),
        )


@rule(
    "KV752",
    stage=Stage.POOL,
    option="speculative_num_draft_tokens",
    source="model_executor/pool_configurator.py:1308",
    example=Example(
        "--tp-size 8 --speculative-algorithm EAGLE --speculative-num-steps 11"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 12",
        V4_MODEL,
        "h200",
    ),
    fragments=("exceeds what the c", "compress state ring can keep resident"),
)
def v4_draft_ring(r: Resolution) -> Iterator[Hit]:
    """DeepSeek-V4's compression state bounds the number of draft tokens.

    Why: A verify step writes all its draft tokens into a ring of 16 rows per request, of which a
    window of 8 must stay, so 10 draft tokens are the most.

    Fix: Lower --speculative-num-draft-tokens to 10 or less, and the steps with it.
    """
    g = geometry_of(r)
    if not g.dsv4 or not g.draft_tokens:
        return
    shape = v4_shape(r, g)
    if 4 not in shape.owners:
        return
    most = shape.ring(4, False) - 8 + 2
    if g.draft_tokens > most:
        yield hit(
            f"{g.draft_tokens} draft tokens exceed the {most} that DeepSeek-V4's compression"
            " state keeps",
            set_to(
                f"draft {most} tokens in {most - 1} steps",
                speculative_num_draft_tokens=most,
                speculative_num_steps=most - 1,
            ),
        )


@rule(
    "KV753",
    stage=Stage.POOL,
    option="env:SGLANG_DSV4_COMPRESS_STATE_DTYPE",
    source="mem_cache/kv_cache_configurator.py:148",
    example=Example("", V4_MODEL, "h200", {"SGLANG_DSV4_COMPRESS_STATE_DTYPE": "fp16"}),
    fragments=("Unsupported SGLANG_DSV4_COMPRESS_STATE_DTYPE",),
)
def v4_state_dtype(r: Resolution) -> Iterator[Hit]:
    """DeepSeek-V4's compression state is float32 or bfloat16.

    Why: SGLANG_DSV4_COMPRESS_STATE_DTYPE takes float32, fp32, bfloat16 or bf16 and nothing else.

    Fix: Unset it or use one of the four words.
    """
    name = "SGLANG_DSV4_COMPRESS_STATE_DTYPE"
    value = r.env.get(name)
    if value is None or not geometry_of(r).dsv4:
        return
    if value.strip().lower() not in ("float32", "fp32", "bfloat16", "bf16"):
        yield hit(f"{name}={value} is none of float32, fp32, bfloat16, bf16", unset(name))


@rule(
    "KV754",
    stage=Stage.POOL,
    option="env:SGLANG_DSV4_KV_LAYOUT",
    source="mem_cache/deepseek_v4_memory_pool.py:233",
    example=Example("", V4_MODEL, "h200", {"SGLANG_DSV4_KV_LAYOUT": "v41"}),
    fragments=("V4.1 KV cache layouts need an SM100 / SM103 GPU",),
)
def v4_layout_gpu(r: Resolution) -> Iterator[Hit]:
    """The V4.1 cache layouts exist for SM100 and SM103 only.

    Why: Their kernels were written for data-centre Blackwell; elsewhere the pool refuses them.

    Fix: Unset SGLANG_DSV4_KV_LAYOUT, which keeps the V4 layout.
    """
    name = "SGLANG_DSV4_KV_LAYOUT"
    mode = (r.env.get(name) or "v4").lower()
    if not r.platform.is_cuda or not geometry_of(r).dsv4:
        return
    mega = r.dsv4_attn_backend == "flashmla_mega"
    if (mode in ("v41", "v41_new") or mega) and not r.platform.is_sm100:
        fix = unset(name) if mode != "v4" else drop("dsv4_attn_backend")
        yield hit(f"the V4.1 cache layout needs SM100 or SM103, and this GPU is SM{r.platform.sm}",
                  fix)  # fmt: skip


@rule(
    "KV756",
    stage=Stage.POOL,
    option="kv_cache_dtype",
    source="mem_cache/memory_pool.py:3886",
    example=Example(
        "--kv-cache-dtype mxfp8 --json-model-override-args '{\"head_dim\": 80}'", SMALL, "b200"
    ),
    fragments=("MXFP8 KV cache requires head_dim divisible by",
               "MXFP8 KV cache requires v_head_dim divisible by"),
)  # fmt: skip
def mxfp8_head_dim(r: Resolution) -> Iterator[Hit]:
    """MXFP8 needs head dims of a multiple of 32.

    Why: Every 32 values of a row share one scale, so the head dims of K and V must divide by 32.

    Fix: Use --kv-cache-dtype fp8_e4m3, which has no block scales.
    """
    g = geometry_of(r)
    if not g.mxfp8 or g.mla or pool_family(g) in ("dsv4", "minimax"):
        return
    for dim in (int(g.model.head_dim), int(g.model.v_head_dim)):
        if dim % MXFP8_BLOCK:
            yield hit(
                f"MXFP8 shares a scale between 32 values, and a head dim of {dim} leaves a rest",
                set_to("use fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
            )
            return


@rule(
    "KV757",
    stage=Stage.POOL,
    option="env:SGLANG_USE_HND_KVCACHE",
    source="mem_cache/memory_pool.py:3903",
    example=Example("--kv-cache-dtype mxfp8", SMALL, "b200", {"SGLANG_USE_HND_KVCACHE": "1"}),
    fragments=("MXFP8 KV cache does not support SGLANG_USE_HND_KVCACHE",),
)
def mxfp8_hnd(r: Resolution) -> Iterator[Hit]:
    """MXFP8 has no head-major layout.

    Why: Its values and scales are laid out by token; the head-major switch would move wrong bytes.

    Fix: Unset SGLANG_USE_HND_KVCACHE.
    """
    name = "SGLANG_USE_HND_KVCACHE"
    g = geometry_of(r)
    if g.mxfp8 and r.env_flag(name) and not g.mla and not g.dsv4:
        yield hit(f"MXFP8 can't use the head-major layout of {name}", unset(name))


@rule(
    "KV758",
    stage=Stage.POOL,
    option="kv_cache_dtype",
    source="layers/quantization/fp4_kv_cache_quant_method.py:598",
    example=Example(
        "--kv-cache-dtype nvfp4 --json-model-override-args '{\"head_dim\": 96}'", SMALL, "b200"
    ),
    fragments=("Native NVFP4 requires page_size divisible by 4",
               "Native NVFP4 requires head_dim divisible by 64"),
)  # fmt: skip
def native_nvfp4_shape(r: Resolution) -> Iterator[Hit]:
    """NVFP4 rows for TRT-LLM kernels need head dims of a multiple of 64 and pages of 4.

    Why: On SM100 the kernels read the scales in blocks of 4 tokens and 4 groups of 16 values.

    Fix: Use --kv-cache-dtype fp8_e4m3, or a page size that divides by 4.
    """
    g = geometry_of(r)
    if g.fp4 is None or not g.fp4.native_scales or pool_family(g) not in ("mha", "hybrid"):
        return
    if g.page_size % 4:
        yield hit(f"page size {g.page_size} does not divide by 4, which native NVFP4 needs",
                  set_to("use pages of 64 tokens", page_size=64), option="page_size")  # fmt: skip
    elif int(g.model.head_dim) % 64:
        yield hit(
            f"a head dim of {g.model.head_dim} does not divide by 64, which native NVFP4 needs",
            set_to("use fp8_e4m3", kv_cache_dtype="fp8_e4m3"),
        )


@rule(
    "KV759",
    stage=Stage.POOL,
    option="tp_size",
    source="distributed/utils.py:60",
    example=Example("--tp-size 5", HYBRID, "h100"),
    fragments=("is not divisible by",),
)
def state_width(r: Resolution) -> Iterator[Hit]:
    """Recurrent heads must split evenly over the ranks.

    Why: Each rank keeps the state of its share of the recurrent heads; a rest has no place.

    Fix: Use a tensor-parallel size that divides the number of heads.
    """
    mambaish = geometry_of(r).mambaish
    if mambaish is None:
        return
    width = linear_width(r, mambaish)
    odd = mambaish.indivisible(width)
    if odd is not None:
        size = max(one for one in range(1, width) if odd[1] % one == 0)
        yield hit(
            f"{odd[1]} {odd[0]} of the recurrent layers don't split over {width} ranks",
            set_to(f"split over {size}", tp_size=whole(r.tp_size, 1) // width * size or size),
        )


@rule(
    "KV760",
    stage=Stage.POOL,
    option="enable_linear_replayssm_spec",
    source="mem_cache/kv_cache_configurator.py:1712",
    example=Example(
        "--enable-linear-replayssm-spec --speculative-algorithm DFLASH"
        " --speculative-draft-model-path Qwen/Qwen3-8B",
        HYBRID,
        "h100",
    ),
    fragments=("--enable-linear-replayssm-spec with DSPARK/DFLASH requires a KDA model",),
)
def replay_needs_kda(r: Resolution) -> Iterator[Hit]:
    """Replaying states under DSPARK or DFLASH needs a KDA model.

    Why: These drafts commit through the backend's fold, which only KDA layers have.

    Fix: Drop --enable-linear-replayssm-spec.
    """
    if not r.enable_linear_replayssm_spec or r.speculative_algorithm not in ("DSPARK", "DFLASH"):
        return
    mambaish = geometry_of(r).mambaish
    decode = r.disaggregation_mode == "decode" or r.enable_pd_role_switch
    if mambaish is not None and mambaish.kind != "kda" and not decode:
        yield hit(
            f"{r.speculative_algorithm} replays the states of KDA layers only, and this model has"
            f" {mambaish.kind} layers",
            drop("enable_linear_replayssm_spec"),
        )


CHECKS: tuple[Part, ...] = (
    state_width,
    v4_state_dtype,
    v4_draft_ring,
    v4_layout_gpu,
    v4_needs_bytes,
    replay_needs_kda,
    mxfp8_hnd,
    mxfp8_head_dim,
    native_nvfp4_shape,
)
