"""Unified memory under decode context parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import above_one, in_pd
from kvtui.core.steps.unified_common import HOOK, HYBRID, UNIFIED_OFF, unlisted, use_backend

DCP_BACKENDS = ("trtllm_mla", "flashinfer", "cutedsl_mla")
"""Back ends that translate widened ids. Source: kv_cache_hook.py:748."""
DCP_OFF = drop("dcp_size")


def _applies(r: Resolution) -> bool:
    return bool(r.enable_unified_memory) and above_one(r.dcp_size)


@rule(
    "KV730",
    stage=Stage.RESOLVE,
    option="dcp_size",
    source=f"{HOOK}:727",
    example=Example("--enable-unified-memory --tp-size 8 --dcp-size 2", model=HYBRID),
    fragments=(
        "--enable-unified-memory with decode context parallelism",
        "supports MLA models only",
    ),
)
def unified_dcp_model(r: Resolution) -> Iterator[Hit]:
    """Unified memory with DCP takes MLA models without sliding window, outside PD.

    Why: ids are widened over the DCP ranks, which plain rows, window pages and transferred
    envelopes don't follow.
    Fix: drop --dcp-size or unified memory.
    """
    if not _applies(r):
        return
    if not uses_mla(r):
        yield hit(
            f"{r.model.name} is no MLA model, whose rows alone follow widened ids",
            DCP_OFF,
            UNIFIED_OFF,
        )
    if r.model.is_hybrid_swa:
        yield hit("sliding-window pages don't follow widened ids", DCP_OFF, UNIFIED_OFF)
    if in_pd(r):
        yield hit(
            "a page envelope holds one DCP rank's part and can't be transferred",
            DCP_OFF,
            UNIFIED_OFF,
        )


@rule(
    "KV731",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:751",
    example=Example(
        "--enable-unified-memory --tp-size 8 --dcp-size 2 --attention-backend triton",
        model="moonshotai/Kimi-K3",
        gpu="b200",
    ),
    fragments=("for the full-attention layers",),
)
def unified_dcp_backend(r: Resolution) -> Iterator[Hit]:
    """Unified memory with DCP runs on flashinfer, trtllm_mla or cutedsl_mla.

    Why: the other MLA back ends take page ids as they are, without translating widened ones.
    Fix: one of those.
    """
    found = unlisted(r, DCP_BACKENDS) if _applies(r) else []
    if found:
        allowed = DCP_BACKENDS if r.platform.is_blackwell else ("flashinfer",)
        yield hit(
            f"{', '.join(found)} can't translate widened ids; flashinfer, trtllm_mla and "
            "cutedsl_mla can",
            use_backend(r, allowed),
            DCP_OFF,
            UNIFIED_OFF,
        )


UNIFIED_DCP_GATES: tuple[Part, ...] = (unified_dcp_model, unified_dcp_backend)
