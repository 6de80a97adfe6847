"""Unified memory on either side of a prefill/decode pair."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import in_pd
from kvtui.core.steps.kv_cache_compat import to_cpu_tensor
from kvtui.core.steps.unified_common import HOOK, HYBRID, UNIFIED_OFF

LAZY = "SGLANG_DISABLE_LAZY_COMPACTION"
TRANSFER_BACKENDS = ("mooncake",)
"""Transfer back ends that send whole page envelopes. Source: server_args.py:348."""
DECODE = "--enable-unified-memory --disaggregation-mode decode"


def _applies(r: Resolution) -> bool:
    return bool(r.enable_unified_memory) and in_pd(r)


@rule(
    "KV715",
    stage=Stage.RESOLVE,
    option="disaggregation_transfer_backend",
    source=f"{HOOK}:537",
    example=Example(f"{DECODE} --disaggregation-transfer-backend nixl", model=HYBRID),
    fragments=("--enable-unified-memory with PD disaggregation supports only",),
)
def unified_pd_transfer(r: Resolution) -> Iterator[Hit]:
    """Unified memory is transferred by Mooncake only.

    Why: a page of the unified pool holds all layers and is sent as one piece.
    Fix: transfer back end mooncake.
    """
    backend = r.disaggregation_transfer_backend
    if _applies(r) and backend not in TRANSFER_BACKENDS:
        yield hit(
            f"transfer back end {backend} can't send whole page envelopes; mooncake can",
            set_to("transfer with mooncake", disaggregation_transfer_backend="mooncake"),
            UNIFIED_OFF,
        )


@rule(
    "KV716",
    stage=Stage.RESOLVE,
    option="enable_unified_memory",
    source=f"{HOOK}:542",
    example=Example(f"{DECODE} --pp-size 2", model=HYBRID),
    fragments=(
        "--enable-unified-memory with PD disaggregation does not support",
        "--enable-unified-memory with PD disaggregation requires lazy",
        "--enable-unified-memory with PD disaggregation is not compatible",
    ),
)
def unified_pd_neighbours(r: Resolution) -> Iterator[Hit]:
    """A transferred unified pool excludes pipelines, Mooncake speculation and HiSparse.

    Why: envelopes have no layers to split, draft rows to skip or host rows to route; and pages
    may only move while none is under way, which lazy compaction sees to.
    Fix: drop the named feature.
    """
    if not _applies(r):
        return
    if r.pp_size != 1:
        yield hit(
            f"a page envelope can't be split over {r.pp_size} pipeline stages",
            drop("pp_size"),
            UNIFIED_OFF,
            option="pp_size",
        )
    mooncake = r.disaggregation_transfer_backend == "mooncake"
    if mooncake and r.speculative_algorithm is not None:
        yield hit(
            "Mooncake sends no draft rows of a unified pool",
            drop("speculative_algorithm"),
            UNIFIED_OFF,
            option="speculative_algorithm",
        )
    if r.env_flag(LAZY):
        unset: Fix = set_to(f"unset {LAZY}", **{f"env:{LAZY}": None})
        yield hit(f"{LAZY} is set, and pages under way may only move lazily", unset, UNIFIED_OFF)
    if r.enable_hisparse:
        yield hit(
            "HiSparse sends host rows that unified memory would have to translate",
            drop("enable_hisparse"),
            UNIFIED_OFF,
            option="enable_hisparse",
        )


@rule(
    "KV717",
    stage=Stage.RESOLVE,
    option="hicache_storage_backend",
    source=f"{HOOK}:565",
    example=Example(
        f"{DECODE} --disaggregation-decode-enable-offload-kvcache "
        "--hicache-storage-backend mooncake",
        model=HYBRID,
    ),
    fragments=("--enable-unified-memory with decode KV offload currently",),
)
def unified_offload_storage(r: Resolution) -> Iterator[Hit]:
    """Decode offload from unified memory goes to files.

    Why: the other stores read pages where the unified pool has none.
    Fix: --hicache-storage-backend file.
    """
    offload = r.disaggregation_decode_enable_offload_kvcache
    if _applies(r) and offload and r.hicache_storage_backend != "file":
        yield hit(
            f"the storage back end is {r.hicache_storage_backend}; from unified memory only "
            "file works",
            set_to("store pages as files in a directory", hicache_storage_backend="file"),
            UNIFIED_OFF,
        )


def _offload_obstacles(r: Resolution) -> Iterator[str]:
    if uses_mla(r):
        yield "MLA pages"
    if r.model.mambaish is not None:
        yield "recurrent states"
    if r.model.is_hybrid_swa:
        yield "sliding-window pages"


@rule(
    "KV718",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_enable_offload_kvcache",
    source=f"{HOOK}:570",
    example=Example(
        f"{DECODE} --disaggregation-decode-enable-offload-kvcache --hicache-storage-backend file",
        model=HYBRID,
    ),
    fragments=("--enable-unified-memory decode KV offload does not support",),
)
def unified_offload_model(r: Resolution) -> Iterator[Hit]:
    """Decode offload from unified memory takes plain attention models only.

    Why: it copies neither MLA pages, recurrent states nor sliding-window pages out of the
    unified pool.
    Fix: drop unified memory or the offload.
    """
    if _applies(r) and r.disaggregation_decode_enable_offload_kvcache:
        for words in _offload_obstacles(r):
            yield hit(
                f"{words} of the unified pool can't be offloaded",
                UNIFIED_OFF,
                drop("disaggregation_decode_enable_offload_kvcache"),
            )


@rule(
    "KV719",
    stage=Stage.RESOLVE,
    option="disaggregation_decode_retraction_backup",
    source=f"{HOOK}:583",
    example=Example(f"{DECODE} --disaggregation-decode-retraction-backup host_pool", model=HYBRID),
    fragments=("--enable-unified-memory host-pool decode retraction does not",),
)
def unified_retraction_model(r: Resolution) -> Iterator[Hit]:
    """Host-pool retraction from unified memory takes no recurrent states.

    Why: the host pool has no place for a request's state.
    Fix: back retracted requests up as CPU tensors.
    """
    host_pool = r.disaggregation_decode_retraction_backup == "host_pool"
    if _applies(r) and host_pool and r.model.mambaish is not None:
        yield hit(
            "recurrent states of the unified pool have no place in the host pool",
            to_cpu_tensor(r),
            UNIFIED_OFF,
        )


UNIFIED_PD_GATES: tuple[Part, ...] = (
    unified_pd_transfer,
    unified_pd_neighbours,
    unified_offload_storage,
    unified_offload_model,
    unified_retraction_model,
)
