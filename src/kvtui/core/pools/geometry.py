"""What sizing and layout of a pool read, gathered once from a finished resolution.

Mirrors the fields of `KVCacheConfigurator` (srt/mem_cache/kv_cache_configurator.py:320, 0.5.23).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kvtui.core.derived import attn_tp_size, max_draft_tokens, whole
from kvtui.core.model import archs
from kvtui.core.model.config import ModelConfig, draft_model_of, serving_model_of
from kvtui.core.model.linear import LinearState, Mambaish, linear_state
from kvtui.core.model.shapes import is_deepseek_dsa
from kvtui.core.pools.cache_dtype import KV_DTYPES, kv_cache_dtype
from kvtui.core.pools.recipes import Fp4Layout, fp4_layout
from kvtui.core.resolution import Resolution

FP4 = "float4_e2m1fn_x2"

EAGLE_LIKE = frozenset({"EAGLE", "EAGLE3", "FROZEN_KV_MTP", "NEXTN"})
"""Drafts sized by the target's layers (speculative/spec_info.py:102)."""
DFLASH_LIKE = frozenset({"DFLASH", "DSPARK"})
"""Drafts sized by their own geometry (speculative/spec_info.py:126)."""

RAW_LATENT_DSA = ("tilelang", "triton", "aiter")
"""DSA back ends that read raw latent rows on ROCm (kv_cache_configurator.py:3430)."""


@dataclass(frozen=True, slots=True)
class DraftGeometry:
    """The draft model's share of the pool."""

    algorithm: str
    layers: int | None
    """Layers of the draft's own cache, None where the engine can't tell."""
    swa_layers: int | None = None
    cell_bytes: int | None = None
    """Bytes per token of a DFLASH draft's cache at its own geometry."""

    @property
    def eagle_like(self) -> bool:
        """True where the engine prices draft layers like the target's."""
        return self.algorithm in EAGLE_LIKE or self.algorithm == "STANDALONE"


@dataclass(frozen=True, slots=True)
class Geometry:
    """One rank's view of the model and of the options that shape its pool."""

    model: ModelConfig
    kv_name: str
    """`--kv-cache-dtype` as it stands when the pool is built."""
    kv_dtype: str
    model_dtype: str
    page_size: int
    attn_tp: int
    attn_dp: int
    dcp: int
    pp: int
    start: int
    """First and one past the last layer of the described pipeline stage."""
    end: int
    layers: int
    """Cache layers of the stage, loops counted."""
    mla: bool
    dsa: bool
    dsv4: bool
    minimax: bool
    hybrid_swa: bool
    swa_layers: int
    full_layers: int
    mambaish: Mambaish | None
    state: LinearState | None
    """Recurrent state of the stage's layers."""
    kv_layer_ids: tuple[int, ...]
    """Layers that hold keys and values, in a hybrid with recurrent layers."""
    heads: int
    """KV heads of a full-attention layer on one rank."""
    unified: bool
    hisparse_ratio: int
    """Host-to-device ratio of HiSparse, 0 without it."""
    fp4: Fp4Layout | None
    shard_size: int
    """Ranks that stripe one KV cache under --enable-kv-cache-sharding, else 1."""
    layer_shard: int
    """Ranks that split the layers of a DSA cache, else 1."""
    draft: DraftGeometry | None
    draft_tokens: int
    """Draft tokens that a verify step may write, 0 without speculation."""
    rank: int
    """Latent rank of MLA, 0 without it."""
    rope: int
    """Rotary items beside the latent."""
    swa_latent: int
    """Stored items of a sliding latent row, 0 without any."""
    window: int | None
    """Sliding window in tokens."""
    context: int
    """The model's context length in tokens."""

    @property
    def item_bytes(self) -> int:
        """Bytes of one stored value as the engine prices it (packed FP4 counts as one)."""
        return (
            1
            if self.kv_dtype == FP4 or self.kv_dtype.startswith("float8")
            else 2
            if (self.kv_dtype in ("bfloat16", "float16"))
            else 4
        )

    @property
    def latent(self) -> int:
        """Items of one latent row without scales."""
        return self.rank + self.rope

    @property
    def mxfp8(self) -> bool:
        """True for block-scaled FP8."""
        return self.kv_name == "mxfp8"


def stages(r: Resolution, model: ModelConfig) -> tuple[tuple[int, int], ...]:
    """(first, one past the last) layer of every pipeline stage (distributed/utils.py:110)."""
    total = max(int(model.num_hidden_layers), int(model.num_attention_layers))
    size = max(1, whole(r.pp_size, 1))
    listed = r.env.get("SGLANG_PP_LAYER_PARTITION") if size > 1 else None
    if listed:
        try:
            widths = [int(one) for one in listed.split(",")]
        except ValueError:
            widths = []
        if len(widths) != size or sum(widths) != total:
            widths = []
    else:
        widths = []
    if not widths:
        base, extra = divmod(total, size)
        widths = [base] * (size - extra) + [base + 1] * extra
    bounds, first = [], 0
    for width in widths:
        bounds.append((first, first + width))
        first += width
    return tuple(bounds)


def hisparse_ratio(r: Resolution) -> int:
    """Host-to-device ratio of HiSparse (2 unless its config says otherwise), 0 without it."""
    if not r.enable_hisparse:
        return 0
    try:
        config = json.loads(r.hisparse_config or "{}")
        return max(1, int(config.get("host_to_device_ratio", 2)))
    except (ValueError, TypeError, AttributeError):
        return 2


def pool_model(r: Resolution) -> ModelConfig:
    """The configuration that the pool is built from; raises MissingFact.

    A server rebuilds it from the final options. With sizes fixed from outside, the one that
    resolution itself worked with is meant, as in the engine's builder without a server.
    """
    return r.model if r.sizing.tokens is not None else serving_model_of(r)


def _draft(r: Resolution, target: ModelConfig) -> DraftGeometry | None:
    algorithm = r.speculative_algorithm
    if not isinstance(algorithm, str) or algorithm in ("NONE", "NGRAM"):
        return None
    algorithm = "EAGLE" if algorithm == "NEXTN" else algorithm
    draft = draft_model_of(r) if r.speculative_draft_model_path else None
    source = target if draft is None else draft
    if algorithm in DFLASH_LIKE:
        layers = int(source.num_hidden_layers) if draft is not None else None
        return DraftGeometry(algorithm, layers, None, _dflash_cell(r, draft))
    if algorithm not in EAGLE_LIKE and algorithm != "STANDALONE":
        return DraftGeometry(algorithm, None)
    layers = source.num_nextn_predict_layers
    if layers is None and draft is not None:
        layers = max(int(draft.num_hidden_layers), int(draft.num_attention_layers))
    swa = None
    windowed = source.is_hybrid_swa and source.arch not in archs.DEEPSEEK_V4
    if layers is not None and windowed:
        swa = len(source.swa_attention_layer_ids or ())
    return DraftGeometry(algorithm, None if layers is None else int(layers), swa)


def _dflash_cell(r: Resolution, draft: ModelConfig | None) -> int | None:
    """A DFLASH draft's bytes per token (speculative/dflash_utils.py:121)."""
    if draft is None:
        return None
    name = r.speculative_draft_kv_cache_dtype or r.kv_cache_dtype
    dtype = KV_DTYPES.get(name, str(draft.dtype))
    if r.speculative_draft_attention_backend == "fa4":
        dtype = str(draft.dtype)
    item = 1 if dtype.startswith("float8") or dtype == FP4 else 2
    heads = int(draft.get_num_kv_heads(attn_tp_size(r)))
    dims = int(draft.head_dim) + int(draft.v_head_dim)
    return heads * dims * int(draft.num_hidden_layers) * item


def _fp4(r: Resolution, name: str) -> Fp4Layout | None:
    if name not in ("nvfp4", "fp4_mx_block16"):
        return None
    return fp4_layout(name, r.backends, r.platform.is_sm100)


def _local(ids: Any, start: int, end: int) -> tuple[int, ...]:
    return tuple(i for i in ids or () if start <= i < end)


def geometry_of(r: Resolution, stage: int = 0) -> Geometry:
    """The geometry of pipeline stage `stage`; raises MissingFact where the model is unknown."""
    cached = r.scratch.setdefault("pool_geometry", {})
    if stage not in cached:
        cached[stage] = _gather(r, stage)
    found: Geometry = cached[stage]
    return found


def _gather(r: Resolution, stage: int) -> Geometry:
    model = pool_model(r)
    bounds = stages(r, model)
    start, end = bounds[min(stage, len(bounds) - 1)]
    hf = model.hf_config
    mla = model.attention_arch == "MLA"
    dsa = mla and is_deepseek_dsa(hf)
    mambaish, state = model.mambaish, None
    kv_ids: tuple[int, ...] = ()
    if mambaish is not None:
        state = linear_state(r)
        kv_ids = _local(mambaish.full_attention_layer_ids, start, end)
        if state is not None and len(bounds) > 1:
            state = _stage_state(state, len(_local(mambaish.layer_ids, start, end)))
    hybrid = bool(model.is_hybrid_swa)
    attn_tp, dcp = attn_tp_size(r), max(1, whole(r.dcp_size, 1))
    cp = max(1, whole(r.attn_cp_size, 1))
    name, dtype = kv_cache_dtype(r, model)
    loops = int(hf.get("loop_num", hf.get("num_loops", 1)) or 1)
    sharded = bool(r.enable_kv_cache_sharding)
    return Geometry(
        model=model,
        kv_name=name,
        kv_dtype=dtype,
        model_dtype=str(model.dtype),
        page_size=max(1, whole(r.page_size, 1)),
        attn_tp=attn_tp,
        attn_dp=max(1, whole(r.attn_dp_size, 1)),
        dcp=dcp,
        pp=len(bounds),
        start=start,
        end=end,
        layers=(end - start) * max(1, loops),
        mla=mla,
        dsa=dsa,
        dsv4=model.arch in archs.DEEPSEEK_V4,
        minimax=model.arch in archs.MINIMAX_SPARSE,
        hybrid_swa=hybrid,
        swa_layers=len(_local(model.swa_attention_layer_ids, start, end)) if hybrid else 0,
        full_layers=len(_local(model.full_attention_layer_ids, start, end)) if hybrid else 0,
        mambaish=mambaish,
        state=state,
        kv_layer_ids=kv_ids,
        heads=int(model.get_num_kv_heads(attn_tp, dcp)),
        unified=bool(r.enable_unified_memory),
        hisparse_ratio=hisparse_ratio(r),
        fp4=_fp4(r, name),
        shard_size=(cp if cp > 1 else attn_tp if mla else 1) if sharded else 1,
        layer_shard=cp if dsa and r.enable_dsa_cache_layer_split and cp > 1 else 1,
        draft=_draft(r, model),
        draft_tokens=max_draft_tokens(r) or 0,
        rank=model.kv_lora_rank or 0,
        rope=model.qk_rope_head_dim or 0,
        swa_latent=(model.swa_kv_lora_rank or 0) + (model.swa_qk_rope_head_dim or 0),
        window=model.sliding_window_size,
        context=model.context_len,
    )


def _stage_state(state: LinearState, layers: int) -> LinearState:
    return LinearState(state.shape, layers, state.conv_dtype, state.temporal_dtype, state.is_kda)
