"""Which classes the engine picks: pool family, request pool, allocator, configurator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtui.core.pools.geometry import Geometry
from kvtui.core.pools.sizes import Sizes, request_capped

if TYPE_CHECKING:
    from kvtui.core.resolution import Resolution


OFFLOADABLE = frozenset(
    {
        "MHATokenToKVPool", "MHATokenToKVPoolMXFP8", "NoOpMHATokenToKVPool",
        "PageInterleaveMHATokenToKVPool", "MLATokenToKVPool", "MLATokenToKVPoolFP4",
        "PageInterleaveMLATokenToKVPool", "DSATokenToKVPool", "HiSparseDSATokenToKVPool",
        "LayerSplitDSATokenToKVPool", "PageInterleaveDSATokenToKVPool", "UnifiedSWAKVPool",
    }
)  # fmt: skip
"""Classes that the decode offload manager takes: MHA and MLA pools with their subclasses, and
the unified sliding pool (disaggregation/decode_kvcache_offload_manager.py:114)."""


def pool_family(g: Geometry) -> str:
    """The branch of the engine's pool builder that the model takes."""
    if g.dsv4:
        return "dsv4"
    if g.mla and g.hybrid_swa:
        return "swa_mla"
    if g.mla and g.mambaish is None:
        return "dsa" if g.dsa else "mla"
    if g.hybrid_swa:
        return "swa"
    if g.minimax:
        return "minimax"
    return "hybrid" if g.mambaish is not None else "mha"


def request_pool_class(r: Resolution, g: Geometry) -> str:
    """Class of the request table (kv_cache_configurator.py:1575)."""
    if g.unified and g.mambaish is not None:
        return "UnifiedHybridReqToTokenPool"
    decode = r.disaggregation_mode == "decode" or bool(r.enable_pd_role_switch)
    if g.mambaish is not None:
        return "HybridMambaDecodeReqToTokenPool" if decode else "HybridReqToTokenPool"
    return "DecodeReqToTokenPool" if decode else "ReqToTokenPool"


def allocator_class(g: Geometry, sizes: Sizes) -> str:
    """Class of the slot allocator (kv_cache_configurator.py:2796)."""
    if g.unified and (g.hybrid_swa or g.mambaish is not None) and not g.dsv4:
        tri = g.hybrid_swa and g.mambaish is not None
        swa = "UnifiedMambaSWATokenToKVPoolAllocator" if tri else "UnifiedSWATokenToKVPoolAllocator"
        return swa if g.hybrid_swa else "UnifiedMambaTokenToKVPoolAllocator"
    if g.hybrid_swa:
        if sizes.full == 0:
            return "PureSWATokenToKVPoolAllocator"
        hisparse = g.dsv4 and g.hisparse_ratio
        return (
            "DeepSeekV4HiSparseTokenToKVPoolAllocator"
            if hisparse
            else ("SWATokenToKVPoolAllocator")
        )
    if g.hisparse_ratio:
        return "HiSparseTokenToKVPoolAllocator"
    if g.shard_size > 1:
        return "PageInterleavePoolAllocator"
    plain = g.page_size == 1 and g.dcp == 1
    return "TokenToKVPoolAllocator" if plain else "PagedTokenToKVPoolAllocator"


def configurator_class(r: Resolution, g: Geometry) -> str:
    """Class of the sizing rule (pool_configurator.py:1716)."""
    if g.dsv4 and g.hybrid_swa:
        return "DSV4PoolConfigurator"
    if g.hybrid_swa:
        capped = request_capped(r, g)
        return "SWARequestCapPoolConfigurator" if capped else "HybridSWAPoolConfigurator"
    return "DefaultPoolConfigurator"
