"""Speculative decoding on the unified memory pool."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.kv_cache_common import above_one
from kvtui.core.steps.kv_cache_compat import to_cpu_tensor
from kvtui.core.steps.unified_common import HOOK, HYBRID, UNIFIED_OFF, unlisted, use_backend

ALGORITHMS = (None, "DSPARK", "EAGLE", "EAGLE3", "DFLASH")
"""Source: kv_cache_hook.py:588."""
EAGLE = ("EAGLE", "EAGLE3")
MHA_RAILS = ("triton", "flashinfer", "fa3", "trtllm_mha")
VERIFY_BACKENDS = ("triton", "trtllm_mla", "cutedsl_mla", "flashmla", "flashinfer", "fa3")
"""Back ends whose verification translates ids. Source: kv_cache_hook.py:478-489."""
SPEC_OFF = drop("speculative_algorithm", title="drop speculative decoding")
NEXTN = (
    "--enable-unified-memory --speculative-algorithm EAGLE --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)


@rule(
    "KV720",
    stage=Stage.RESOLVE,
    option="speculative_algorithm",
    source=f"{HOOK}:588",
    example=Example("--enable-unified-memory --speculative-algorithm NGRAM", model=HYBRID),
    fragments=("--enable-unified-memory only supports --speculative-algorithm",),
)
def unified_spec_algorithm(r: Resolution) -> Iterator[Hit]:
    """Unified memory takes DSPARK, DFLASH, EAGLE and EAGLE3.

    Why: other algorithms use page ids that the unified pool has not translated.
    Fix: one of those, or no unified memory.
    """
    name = r.speculative_algorithm
    if r.enable_unified_memory and name not in ALGORITHMS:
        yield hit(
            f"{name} uses untranslated page ids; DSPARK, DFLASH, EAGLE and EAGLE3 don't",
            SPEC_OFF,
            UNIFIED_OFF,
        )


@rule(
    "KV721",
    stage=Stage.RESOLVE,
    option="speculative_eagle_topk",
    source=f"{HOOK}:601",
    example=Example(NEXTN.replace("topk 1", "topk 4"), model=HYBRID),
    fragments=("--enable-unified-memory supports a linear draft chain only",),
)
def unified_spec_chain(r: Resolution) -> Iterator[Hit]:
    """Unified memory takes draft chains, not trees.

    Why: accepted tokens of a tree are moved one by one, and the unified pool moves whole pages.
    Fix: --speculative-eagle-topk 1.
    """
    topk = r.speculative_eagle_topk
    takes = r.enable_unified_memory and r.speculative_algorithm in ALGORITHMS
    if takes and topk not in (None, 1):
        yield hit(
            f"top-k {topk} drafts a tree, whose tokens the unified pool can't move",
            set_to("draft a chain", speculative_eagle_topk=1),
            UNIFIED_OFF,
        )


def _eagle(r: Resolution) -> bool:
    return bool(r.enable_unified_memory and r.speculative_algorithm in EAGLE)


@rule(
    "KV722",
    stage=Stage.RESOLVE,
    option="speculative_algorithm",
    source=f"{HOOK}:610",
    example=Example(f"{NEXTN} --speculative-draft-model-path Qwen/Qwen3-0.6B"),
    fragments=("--enable-unified-memory + EAGLE/EAGLE3 requires a unified",),
)
def unified_eagle_target(r: Resolution) -> Iterator[Hit]:
    """EAGLE on unified memory needs a hybrid target.

    Why: the draft's rows lie inside the target's pages, and only hybrid models have such a pool.
    Fix: drop unified memory.
    """
    if _eagle(r) and not r.model.is_hybrid_swa and r.model.mambaish is None:
        yield hit(
            f"{r.model.name} is neither sliding-window hybrid nor recurrent hybrid",
            UNIFIED_OFF,
            SPEC_OFF,
        )


@rule(
    "KV723",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:622",
    example=Example(f"{NEXTN} --attention-backend fa4", model=HYBRID, gpu="b200"),
    fragments=("--enable-unified-memory + EAGLE/EAGLE3 requires the target on",),
)
def unified_eagle_backend(r: Resolution) -> Iterator[Hit]:
    """EAGLE on unified memory verifies on back ends that translate ids.

    Why: verification reads the target's pages by their physical places.
    Fix: one of the named back ends.
    """
    if not _eagle(r):
        return
    allowed = VERIFY_BACKENDS if uses_mla(r) else MHA_RAILS
    found = unlisted(r, allowed)
    if found:
        yield hit(
            f"{', '.join(found)} can't verify drafts on the unified pool; {', '.join(allowed)} can",
            use_backend(r, allowed),
            SPEC_OFF,
            UNIFIED_OFF,
        )


@rule(
    "KV724",
    stage=Stage.RESOLVE,
    option="speculative_draft_attention_backend",
    source=f"{HOOK}:633",
    example=Example(f"{NEXTN} --speculative-draft-attention-backend fa4", model=HYBRID, gpu="b200"),
    fragments=("--enable-unified-memory + EAGLE/EAGLE3 runs the draft on",),
)
def unified_eagle_draft_backend(r: Resolution) -> Iterator[Hit]:
    """An EAGLE draft on unified memory runs on triton, flashinfer, fa3 or trtllm_mha.

    Why: its rows are plain attention rows inside the target's pages.
    Fix: --speculative-draft-attention-backend with one of them.
    """
    if not _eagle(r):
        return
    own = r.speculative_draft_attention_backend
    found = sorted({name for name in ((own,) if own else r.backends) if name} - set(MHA_RAILS))
    if found:
        runs = "fa3" if r.platform.is_sm90 else "triton"
        yield hit(
            f"the draft would run on {', '.join(found)}; {', '.join(MHA_RAILS)} read its rows",
            set_to(f"run the draft on {runs}", speculative_draft_attention_backend=runs),
            UNIFIED_OFF,
        )


@rule(
    "KV725",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:517",
    example=Example(
        "--enable-unified-memory --speculative-algorithm DFLASH "
        "--speculative-draft-model-path Qwen/Qwen3-0.6B --attention-backend fa4",
        model=HYBRID,
        gpu="b200",
    ),
    fragments=("requires spec-verify-audited",),
)
def unified_verify_backend(r: Resolution) -> Iterator[Hit]:
    """DSPARK and DFLASH on unified memory verify on back ends that translate ids.

    Why: verification reads the target's pages by their physical places; under DCP flashinfer
    does not translate them.
    Fix: one of the named back ends.
    """
    name = r.speculative_algorithm
    if not r.enable_unified_memory or name not in ("DSPARK", "DFLASH"):
        return
    allowed: tuple[str, ...] = (*VERIFY_BACKENDS, "fa4") if name == "DSPARK" else MHA_RAILS
    if above_one(r.dcp_size):
        allowed = tuple(one for one in allowed if one != "flashinfer")
    found = unlisted(r, allowed)
    if found:
        yield hit(
            f"{', '.join(found)} can't verify {name} drafts on the unified pool; "
            f"{', '.join(allowed)} can",
            use_backend(r, allowed),
            SPEC_OFF,
            UNIFIED_OFF,
        )


@rule(
    "KV726",
    stage=Stage.RESOLVE,
    option="speculative_algorithm",
    source=f"{HOOK}:669",
    example=Example(f"{NEXTN} --enable-hierarchical-cache", model=HYBRID),
    fragments=("--enable-unified-memory + EAGLE/EAGLE3 does not support",),
)
def unified_eagle_host_pools(r: Resolution) -> Iterator[Hit]:
    """EAGLE on unified memory excludes HiCache and host-pool retraction.

    Why: both build the draft's host pool from a device pool of its own, which a draft inside
    the target's pages does not have.
    Fix: drop the host pool, speculation or unified memory.
    """
    if not _eagle(r):
        return
    if r.disaggregation_decode_retraction_backup == "host_pool":
        yield hit(
            "host-pool retraction needs a device pool of the draft's own",
            to_cpu_tensor(r),
            SPEC_OFF,
            UNIFIED_OFF,
        )
    if r.enable_hierarchical_cache:
        yield hit(
            "HiCache needs a device pool of the draft's own",
            drop("enable_hierarchical_cache"),
            SPEC_OFF,
            UNIFIED_OFF,
        )


UNIFIED_SPEC_GATES: tuple[Part, ...] = (
    unified_spec_algorithm,
    unified_spec_chain,
    unified_eagle_target,
    unified_eagle_backend,
    unified_eagle_draft_backend,
    unified_verify_backend,
)
"""Before the neighbours of the pool are looked at."""

UNIFIED_SPEC_TIER_GATES: tuple[Part, ...] = (unified_eagle_host_pools,)
"""After them."""
