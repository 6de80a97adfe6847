"""The unified memory pool: layout, attention and state kernels, speculation and neighbours."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.graphs import DISABLED, FULL, PREFILL, GraphConfig
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.unified_common import (
    HOOK,
    HYBRID,
    UNIFIED_OFF,
    unlisted,
    use_backend,
)
from kvtui.core.steps.unified_dcp import UNIFIED_DCP_GATES
from kvtui.core.steps.unified_pd import UNIFIED_PD_GATES
from kvtui.core.steps.unified_spec import UNIFIED_SPEC_GATES, UNIFIED_SPEC_TIER_GATES

MLA_BACKENDS = ("triton", "fa3", "trtllm_mla", "flashinfer", "cutedsl_mla", "flashmla")
ASYMMETRIC_BACKENDS = ("triton", "fa3", "fa4")
PLAIN_BACKENDS = ("triton", "fa3", "fa4", "flashinfer", "trtllm_mha")
"""Back ends that read strided rows, by model. Source: kv_cache_hook.py:793-816."""
DECODE_KERNELS = ("triton", "flashinfer")
PREFILL_KERNELS = ("triton", "flashkda", "flashinfer")
MLA_KERNELS = ("cutedsl", "helion")
"""Linear-attention kernels that read strided states; the last only beside MLA.
Source: kv_cache_hook.py:839-844."""
FULL_GRAPH_BACKENDS = ("fa3", "fa4")
"""Back ends that capture whole prefills. Source: kv_cache_hook.py:695."""


@step(f"{HOOK}:773")
def imply_page_major(r: Resolution) -> None:
    """Lay pages out page by page under unified memory."""
    if r.enable_unified_memory:
        r.declare("unified memory lays pages out page by page", enable_page_major_kv_layout=True)


@rule(
    "KV710",
    stage=Stage.RESOLVE,
    option="enable_page_major_kv_layout",
    source=f"{HOOK}:783",
    example=Example("--enable-page-major-kv-layout"),
    fragments=("--enable-page-major-kv-layout without --enable-unified-memory is",),
)
def page_major_needs_unified(r: Resolution) -> Iterator[Hit]:
    """The page-major layout comes with unified memory only.

    Why: this release has no such layout for pools of fixed shares.
    Fix: drop it; --enable-unified-memory brings it for hybrid models.
    """
    if r.enable_page_major_kv_layout and not r.enable_unified_memory:
        yield hit(
            "it is set without --enable-unified-memory, the only pool that has this layout",
            drop("enable_page_major_kv_layout"),
            set_to("use unified memory (hybrid models only)", enable_unified_memory=True),
        )


def strided_backends(r: Resolution) -> tuple[str, ...]:
    """Attention back ends that read the strided rows of a unified pool of this model."""
    if uses_mla(r):
        return MLA_BACKENDS
    return ASYMMETRIC_BACKENDS if r.model.has_asymmetric_kv else PLAIN_BACKENDS


def _page_major(r: Resolution) -> bool:
    return bool(r.enable_page_major_kv_layout and r.enable_unified_memory)


@rule(
    "KV711",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:822",
    example=Example(
        "--enable-unified-memory --attention-backend flashinfer",
        model="XiaomiMiMo/MiMo-V2-Flash",
    ),
    fragments=("--enable-page-major-kv-layout: the resolved attention backends",),
)
def unified_attention_backend(r: Resolution) -> Iterator[Hit]:
    """Unified memory needs attention back ends that read strided rows.

    Why: a page holds the rows of all layers, so one layer's rows lie apart; which back ends
    follow the strides depends on MLA and on K and V rows of unequal width.
    Fix: one of those, or no unified memory.
    """
    if not _page_major(r):
        return
    allowed = strided_backends(r)
    found = unlisted(r, allowed)
    if found:
        yield hit(
            f"{', '.join(found)} can't read the strided rows of the unified pool; "
            f"{', '.join(allowed)} can",
            use_backend(r, allowed),
            UNIFIED_OFF,
        )


@rule(
    "KV712",
    stage=Stage.RESOLVE,
    option="linear_attn_backend",
    source=f"{HOOK}:848",
    example=Example("--enable-unified-memory --linear-attn-backend cutedsl", model=HYBRID),
    fragments=(
        "linear-attention DECODE backend must",
        "linear-attention PREFILL backend must",
    ),
)
def unified_linear_kernels(r: Resolution) -> Iterator[Hit]:
    """Unified memory needs linear-attention kernels that read strided states.

    Why: recurrent states lie inside pages, apart from one another.
    Fix: triton or flashinfer (flashkda for prefill; cutedsl and helion beside MLA).
    """
    if not _page_major(r):
        return
    extra = MLA_KERNELS if uses_mla(r) else ()
    for phase, base in (("decode", DECODE_KERNELS), ("prefill", PREFILL_KERNELS)):
        own = f"linear_attn_{phase}_backend"
        kernels = getattr(r, own) or r.linear_attn_backend
        if kernels is None or kernels in (*base, *extra):
            continue
        option = own if getattr(r, own) else "linear_attn_backend"
        yield hit(
            f"{phase} kernels {kernels} can't read strided states; "
            f"{', '.join((*base, *extra))} can",
            set_to(f"run {phase} of linear attention on triton", **{option: "triton"}),
            UNIFIED_OFF,
            option=option,
        )


@rule(
    "KV713",
    stage=Stage.RESOLVE,
    option="mamba_backend",
    source=f"{HOOK}:858",
    example=Example(
        "--enable-unified-memory --mamba-backend flashinfer",
        model="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    ),
    fragments=("requires the Triton Mamba kernels",),
)
def unified_mamba_kernels(r: Resolution) -> Iterator[Hit]:
    """Unified memory runs Mamba on triton.

    Why: only those kernels read strided states.
    Fix: --mamba-backend triton.
    """
    if _page_major(r) and r.mamba_backend not in (None, "triton"):
        yield hit(
            f"Mamba kernels {r.mamba_backend} can't read strided states",
            set_to("run Mamba on triton", mamba_backend="triton"),
            UNIFIED_OFF,
        )


@rule(
    "KV714",
    stage=Stage.RESOLVE,
    option="enable_unified_memory",
    source=f"{HOOK}:653",
    example=Example("--enable-unified-memory --enable-lmcache", model=HYBRID),
    fragments=(
        "--enable-unified-memory does not support --enable-two-batch-overlap",
        "--enable-unified-memory is not yet compatible with --enable-lmcache",
        "--enable-unified-memory does not support --enable-unified-cache-external-linker",
    ),
)
def unified_neighbours(r: Resolution) -> Iterator[Hit]:
    """Unified memory excludes two-batch overlap, LMCache and the external linker.

    Why: all three address pages by the ids they are handed, and under unified memory those are
    virtual.
    Fix: drop one of the two.
    """
    if not r.enable_unified_memory:
        return
    for option, found in (
        ("enable_two_batch_overlap", "two-batch overlap reads page tables of half a batch"),
        ("enable_lmcache", "LMCache copies pages by their device ids"),
        ("enable_unified_cache_external_linker", "the external linker stores pages by device ids"),
    ):
        if getattr(r, option):
            yield hit(
                f"{found}, and unified memory hands out virtual ids",
                drop(option),
                UNIFIED_OFF,
                option=option,
            )


@step(f"{HOOK}:694")
def drop_full_prefill_graph(r: Resolution) -> None:
    """Capture no whole prefills where the back ends can't."""
    config = r.cuda_graph_config
    if not r.enable_unified_memory or not isinstance(config, GraphConfig):
        return
    unable = {name for name in r.backends if name} - set(FULL_GRAPH_BACKENDS)
    if config.prefill.backend == FULL and unable:
        r.declare(
            f"whole prefills are captured on fa3 and fa4 only, and {', '.join(sorted(unable))} "
            "runs",
            cuda_graph_config=config.with_phase(PREFILL, backend=DISABLED),
        )


HANDLE_PAGE_MAJOR_KV_LAYOUT: tuple[Part, ...] = (
    imply_page_major,
    page_major_needs_unified,
    unified_attention_backend,
    unified_linear_kernels,
    unified_mamba_kernels,
)

HANDLE_UNIFIED_MEMORY_POOL: tuple[Part, ...] = (
    *UNIFIED_PD_GATES,
    *UNIFIED_SPEC_GATES,
    unified_neighbours,
    *UNIFIED_SPEC_TIER_GATES,
    *UNIFIED_DCP_GATES,
    drop_full_prefill_graph,
)
