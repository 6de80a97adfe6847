"""DECODE_OFFLOAD: what the decode offload manager refuses when it starts.

Mirrors srt/disaggregation/decode_kvcache_offload_manager.py (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

SLIDING = frozenset({"SWAKVPool"})


def _offloads(r: Resolution) -> bool:
    return r.disaggregation_mode == "decode" and bool(
        r.disaggregation_decode_enable_offload_kvcache
    )


@rule(
    "KV780",
    stage=Stage.OFFLOAD,
    option="disaggregation_decode_enable_offload_kvcache",
    source="disaggregation/decode_kvcache_offload_manager.py:115",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache"
        " --hicache-storage-backend mooncake",
        "openai/gpt-oss-20b",
        "h100",
    ),
    fragments=("Unsupported KV cache type for decode offload",),
)
def offload_pool_class(r: Resolution) -> Iterator[Hit]:
    """Decode offload takes plain MHA and MLA pools, and the unified sliding-window pool.

    Why: The manager mirrors one pool of K and V or latent rows on the host. It has no host side
    for sliding-window, recurrent, sparse or compressed pools and stops when the scheduler starts,
    after the weights are loaded.

    Fix: Drop the option. A sliding-window model can also run with one pool for all layers
    (--disable-hybrid-swa-memory, which holds fewer tokens).
    """
    plan = r.pool
    if not _offloads(r) or plan is None or plan.decode_offload:
        return
    fixes = [drop("disaggregation_decode_enable_offload_kvcache")]
    if plan.class_name in SLIDING:
        fixes.append(
            set_to("keep all layers in one pool, which holds fewer tokens",
                   disable_hybrid_swa_memory=True)
        )  # fmt: skip
    yield hit(
        f"decode offload takes MHATokenToKVPool, MLATokenToKVPool and their kinds, and this model"
        f" gets {plan.class_name}",
        *fixes,
    )


@rule(
    "KV781",
    stage=Stage.LOAD,
    option="dcp_size",
    source="mem_cache/hybrid_cache/hybrid_pool_assembler.py:218",
    example=Example(
        "--disaggregation-mode decode --disaggregation-decode-enable-offload-kvcache"
        " --hicache-storage-backend mooncake --tp-size 8 --dcp-size 2",
        "Qwen/Qwen3-8B",
        "h100",
    ),
    fragments=("HiCache + DCP is only wired for the MLA host pool",),
)
def offload_dcp(r: Resolution) -> Iterator[Hit]:
    """Decode offload with context-parallel decoding needs latent rows.

    Why: With --dcp-size above 1 slots are spread over ranks; only the host pool for latent (MLA)
    rows translates them.

    Fix: Use --dcp-size 1, or drop decode offload.
    """
    plan = r.pool
    if not _offloads(r) or plan is None or not plan.decode_offload:
        return
    if isinstance(r.dcp_size, int) and r.dcp_size > 1 and "MHA" in plan.class_name:
        yield hit(
            f"decode offload can't translate slots of {plan.class_name} under --dcp-size"
            f" {r.dcp_size}",
            set_to("decode without context parallelism", dcp_size=1),
            drop("disaggregation_decode_enable_offload_kvcache"),
        )


DECODE_OFFLOAD: tuple[Part, ...] = (offload_pool_class, offload_dcp)
