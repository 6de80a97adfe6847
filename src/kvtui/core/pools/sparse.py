"""Facts of sparse attention that shape its caches: DSA index keys, MiniMax's index layers, QSA.

Mirrors `get_dsa_*`, `dsa_layer_skips_topk`, `get_minimax_sparse_*` of configs/model_config.py,
`calculate_mla_kv_cache_dim` of mem_cache/kv_cache_configurator.py and layers/attention/qsa.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvtui.core.pools.geometry import RAW_LATENT_DSA, Geometry
from kvtui.core.pools.layouts import index_entry_bytes

if TYPE_CHECKING:
    from kvtui.core.model.hf import HfConfig
    from kvtui.core.resolution import Resolution

QUANT_BLOCK = 128
"""Latent values that share one FP32 scale in the packed FP8 row (memory_pool.py:5280)."""
ROPE_BYTES = 2
"""Bytes of one rope value: always bfloat16 (memory_pool.py:5282)."""
MSA_PAGE = 128
"""Page of MiniMax's native NVFP4 caches (minimax_m3_nvfp4_pool.py:29)."""
MSA_ALIGN = 128


def raw_latent_rows(r: Resolution) -> bool:
    """True where DSA kernels read the plain latent row, FP8 or not, without packed scales."""
    prefill, decode = r.dsa_prefill_backend, r.dsa_decode_backend
    role = r.disaggregation_mode
    readers = {"decode": (decode,), "prefill": (prefill,)}.get(role, (prefill, decode))
    if "trtllm" in readers:
        return True
    if r.platform.is_hip and (prefill in RAW_LATENT_DSA or decode in RAW_LATENT_DSA):
        return True
    return bool(prefill == "tilelang" and decode == "tilelang")


def latent_dim(r: Resolution, g: Geometry) -> int:
    """Stored items of one latent row (kv_cache_configurator.py:3397)."""
    if not g.dsa or g.kv_dtype != "float8_e4m3fn" or raw_latent_rows(r):
        return g.latent
    return g.rank + g.rank // QUANT_BLOCK * 4 + g.rope * ROPE_BYTES


def skips_topk(config: HfConfig, layer: int) -> bool:
    """True for a layer that reuses an earlier layer's top-k and keeps no index keys."""
    kinds = config.get("indexer_types")
    if kinds is not None:
        return 0 <= layer < len(kinds) and kinds[layer] == "shared"
    every = config.get("cli_factor") or 1
    if every > 1:
        return bool(layer % every)
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        return layer < len(pattern) and pattern[layer] == "S"
    every = config.get("index_topk_freq") or 1
    offset = config.get("index_skip_topk_offset")
    return bool(max(layer - (1 if offset is None else offset - 1), 0) % every)


def index_layers(r: Resolution, g: Geometry) -> tuple[bool, ...]:
    """For each latent layer of the stage, True where its index cache is left out."""
    layers = g.kv_layer_ids if g.mambaish is not None else range(g.start, g.end)
    keep_all = g.hisparse_ratio > 0 or bool(r.enable_unified_cache_external_linker)
    if g.mambaish is None and keep_all:
        return (False,) * len(layers)
    return tuple(skips_topk(g.model.hf_config, layer) for layer in layers)


def index_token_bytes(g: Geometry) -> int:
    """Bytes of index keys and scales that one token costs in one layer."""
    whole = sum(index_entry_bytes(int(g.model.hf_config.index_head_dim)))
    pooled = max(1, int(g.model.hf_config.get("index_kpool", 1)))
    return -(-whole // pooled)


@dataclass(frozen=True, slots=True)
class MinimaxLayers:
    """Layers of a MiniMax sparse model on one stage."""

    dense: int
    sparse: int
    index_kv: int
    """Sparse layers whose index branch keeps K and V."""
    index_k: int
    """Sparse layers whose index branch keeps K only."""
    index_dim: int


def minimax_config(config: HfConfig) -> Mapping[str, Any]:
    """The `sparse_attention_config` object of the text or whole configuration."""
    text = config.get_text_config().get("sparse_attention_config")
    found = text if text is not None else config.get("sparse_attention_config")
    return found if isinstance(found, Mapping) else {}


def minimax_layers(g: Geometry) -> MinimaxLayers:
    """Count the stage's layers by what their caches hold."""
    config = minimax_config(g.model.hf_config)
    marks = config.get("sparse_attention_freq") or ()
    k_only = {i for i, off in enumerate(config.get("sparse_disable_index_value") or ()) if off}
    local = [i for i in range(len(marks)) if g.start <= i < g.end]
    sparse = [i for i in local if marks[i]]
    without_v = sum(i in k_only for i in sparse)
    return MinimaxLayers(
        len(local) - len(sparse),
        len(sparse),
        len(sparse) - without_v,
        without_v,
        int(config.get("sparse_index_dim") or 0),
    )


def minimax_index_dtype(r: Resolution, g: Geometry) -> str:
    """dtype of MiniMax index keys (memory_pool.py:5831)."""
    fp8_gemm = (
        r.kv_cache_dtype == "fp8_e4m3"
        and r.attention_backend == "trtllm_mha"
        and r.platform.is_sm100
        and not r.env_flag("SGLANG_DISABLE_M3_FP8_ATTN_GEMM")
    )
    if fp8_gemm or (r.platform.is_sm90 and g.kv_dtype == "float8_e4m3fn"):
        return g.kv_dtype
    return g.model_dtype


def minimax_native_nvfp4(r: Resolution, g: Geometry) -> bool:
    """True for the checkpoint that keeps its cache in Blackwell's own NVFP4 rows."""
    return bool(g.model.quantization == "minimax_m3_nvfp4" and r.platform.is_blackwell)


def _aligned(sizes: tuple[int, ...]) -> int:
    return sum(-(-size // MSA_ALIGN) * MSA_ALIGN for size in sizes)


def msa_row_bytes(heads: int, head_dim: int, index_dim: int) -> tuple[int, int]:
    """(main, index) bytes of one page of one sparse layer (minimax_m3_nvfp4_pool.py:78)."""
    payload, scale = heads * MSA_PAGE * head_dim // 2, heads * MSA_PAGE * head_dim // 16
    main = _aligned((payload, scale, payload, scale))
    return main, _aligned((MSA_PAGE * index_dim // 2, MSA_PAGE * index_dim // 16))


@dataclass(frozen=True, slots=True)
class QsaProfile:
    """Compressed index cache of Qwen4-Exp (layers/attention/qsa/config.py)."""

    kv_heads: int
    head_dim: int
    ratio: int
    dtype: str

    @property
    def token_bytes(self) -> int:
        """Bytes that one token costs in one layer."""
        item = 1 if self.dtype == "float8_e4m3fn" else 2
        return self.kv_heads * self.head_dim * item // self.ratio


def qsa_profile(r: Resolution, g: Geometry) -> QsaProfile | None:
    """The model's compressed index cache, or None where it has none."""
    text = g.model.hf_config.get_text_config()
    if text.get("indexer_n_heads") is None:
        return None
    fp8 = r.qsa_indexer_dtype == "fp8_e4m3"
    return QsaProfile(
        int(text.indexer_kv_heads),
        int(text.indexer_head_dim),
        max(1, int(text.indexer_compress_ratio)),
        "float8_e4m3fn" if fp8 else "bfloat16",
    )
