"""KV sharding on PD prefill servers: each rank keeps a stripe of every page."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import architecture, attn_dp_enabled, uses_mla
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.graphs import DECODE, DISABLED, PREFILL, GraphConfig
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.kv_cache_common import above_one, number
from kvtui.core.steps.kv_shard_attention import SHARD_ATTENTION_GATES
from kvtui.core.steps.kv_shard_common import FLAG, HOOK, MLA, OFF, SHARDED, on
from kvtui.core.steps.kv_shard_features import SHARD_FEATURE_GATES
from kvtui.core.steps.kv_shard_pages import SHARD_PAGES

TREE = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
STAGING = "SGLANG_DISAGG_STAGING_BUFFER"
TRANSFER_BACKENDS = ("mooncake", "nixl")
"""Transfer back ends that send stripes. Source: kv_shard_hook.py:263."""


@rule(
    "KV370",
    stage=Stage.RESOLVE,
    option=FLAG,
    source=f"{HOOK}:108",
    example=Example("--enable-kv-cache-sharding"),
    fragments=("--enable-kv-cache-sharding is only supported on PD prefill",),
)
def sharding_is_for_prefill(r: Resolution) -> Iterator[Hit]:
    """KV sharding runs on PD prefill servers.

    Why: a rank holds a stripe of every page, which decode could not attend to locally.
    Fix: --disaggregation-mode prefill, or no sharding.
    """
    if on(r) and r.disaggregation_mode != "prefill":
        yield hit(
            f"the mode is {r.disaggregation_mode}; striped pages can't be decoded from",
            set_to("make this a prefill server", disaggregation_mode="prefill"),
            OFF,
        )


@rule(
    "KV371",
    stage=Stage.RESOLVE,
    option="speculative_algorithm",
    source=f"{HOOK}:123",
    example=Example(f"{SHARDED} --speculative-algorithm NGRAM", model=MLA, gpu="h200"),
    fragments=("KV sharding supports speculative decoding only for GLM DSA",),
)
def sharding_speculation(r: Resolution) -> Iterator[Hit]:
    """KV sharding speculates on GLM's own NextN layer only.

    Why: no other draft follows the stripes.
    Fix: drop speculative decoding on the prefill side.
    """
    if not on(r) or r.speculative_algorithm is None:
        return
    glm = (
        r.speculative_algorithm == "EAGLE"
        and architecture(r) == "GlmMoeDsaForCausalLM"
        and r.model.num_nextn_predict_layers == 1
        and r.speculative_eagle_topk == 1
        and not r.enable_multi_layer_eagle
    )
    if not glm:
        yield hit(
            f"{r.speculative_algorithm} drafts don't follow striped pages",
            drop("speculative_algorithm"),
            OFF,
        )


@step(f"{HOOK}:141")
def set_python_tree(r: Resolution) -> None:
    """Use the Python radix tree, which alone tracks stripes."""
    if on(r):
        r.env.setdefault(TREE, "python")


@rule(
    "KV372",
    stage=Stage.RESOLVE,
    option=f"env:{TREE}",
    source=f"{HOOK}:147",
    example=Example(SHARDED, model=MLA, gpu="h200", env={TREE: "rust"}),
    fragments=("--enable-kv-cache-sharding requires the Python UnifiedTreeCore",),
)
def sharding_needs_python_tree(r: Resolution) -> Iterator[Hit]:
    """KV sharding needs the Python radix tree.

    Why: only that tree knows which rank's stripe a page starts with.
    Fix: SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=python, or no radix cache.
    """
    tree = r.env.get(TREE)
    if on(r) and not r.disable_radix_cache and tree not in (None, "python"):
        yield hit(
            f"{TREE} is {tree}; striped pages need python",
            set_to("use the Python tree", **{f"env:{TREE}": "python"}),
            OFF,
        )


@rule(
    "KV373",
    stage=Stage.RESOLVE,
    option="disaggregation_transfer_backend",
    source=f"{HOOK}:264",
    example=Example(f"{SHARDED} --disaggregation-transfer-backend mori", model=MLA, gpu="h200"),
    fragments=(
        "--enable-kv-cache-sharding currently only supports the mooncake",
        "SGLANG_DISAGG_STAGING_BUFFER (the staging path assumes",
    ),
)
def sharding_transfer(r: Resolution) -> Iterator[Hit]:
    """KV sharding sends stripes by Mooncake or NIXL, without staging.

    Why: a stripe is sent row by row to chosen places; other paths send ranges.
    Fix: mooncake or nixl, and no SGLANG_DISAGG_STAGING_BUFFER.
    """
    if not on(r):
        return
    backend = r.disaggregation_transfer_backend
    if backend not in TRANSFER_BACKENDS:
        yield hit(
            f"transfer back end {backend} sends ranges, not stripes",
            set_to("transfer with mooncake", disaggregation_transfer_backend="mooncake"),
            OFF,
        )
    if r.env_flag(STAGING):
        unset: Fix = set_to(f"unset {STAGING}", **{f"env:{STAGING}": None})
        yield hit(f"{STAGING} is set, and staging sends ranges", unset, OFF)


@rule(
    "KV374",
    stage=Stage.RESOLVE,
    option=FLAG,
    source=f"{HOOK}:276",
    example=Example(f"{SHARDED} --attn-dp-size 8", model=MLA, gpu="h200"),
    fragments=(
        "--enable-kv-cache-sharding for MLA models without",
        "--enable-kv-cache-sharding for GQA models shards across",
    ),
)
def sharding_needs_ranks(r: Resolution) -> Iterator[Hit]:
    """KV sharding needs ranks to stripe over.

    Why: MLA pages are striped over plain tensor-parallel or context-parallel ranks, pages of
    other models over context-parallel ranks only.
    Fix: --enable-prefill-cp with --attn-cp-size above 1; for MLA plain --tp-size above 1 will do.
    """
    if not on(r):
        return
    cp = above_one(r.attn_cp_size)
    if not uses_mla(r):
        if not (r.enable_prefill_cp and cp):
            yield hit(
                "pages of this model are striped over context-parallel ranks, and there are none",
                _context_parallel(r),
                OFF,
                option="attn_cp_size",
            )
    elif not cp and attn_dp_enabled(r):
        yield hit(
            f"{r.attn_dp_size} attention-DP groups leave no plain ranks to stripe over",
            drop("attn_dp_size", "enable_dp_attention", "dp_size"),
            OFF,
            option="attn_dp_size",
        )
    elif not cp and not above_one(r.tp_size):
        yield hit(
            "one rank has nobody to stripe pages with",
            set_to("use two ranks", tp_size=2),
            OFF,
            option="tp_size",
        )


def _context_parallel(r: Resolution) -> Fix:
    ranks = number(r.tp_size) or 1
    changes = {
        "enable_prefill_cp": True,
        "cp_strategy": "zigzag",
        "attn_cp_size": int(ranks) if ranks > 1 else 2,
    }
    if ranks < 2:
        changes["tp_size"] = 2
    return set_to("run prefill context-parallel", **changes)


@step(f"{HOOK}:350")
def drop_graphs_for_sharding(r: Resolution) -> None:
    """Capture no prefill, and no decode where drafts run on the prefill side."""
    config = r.cuda_graph_config
    if not on(r) or not isinstance(config, GraphConfig):
        return
    graphs = config.with_phase(PREFILL, backend=DISABLED)
    if r.speculative_algorithm is not None:
        graphs = graphs.with_phase(DECODE, backend=DISABLED)
    if graphs != config:
        r.declare(
            "stripes are gathered by a plan that no captured graph holds", cuda_graph_config=graphs
        )


HANDLE_KV_CACHE_SHARDING: tuple[Part, ...] = (
    sharding_is_for_prefill,
    sharding_speculation,
    set_python_tree,
    sharding_needs_python_tree,
    *SHARD_FEATURE_GATES,
    *SHARD_ATTENTION_GATES,
    sharding_transfer,
    sharding_needs_ranks,
    *SHARD_PAGES,
    drop_graphs_for_sharding,
)
"""Runs twice: after context parallelism and at the end of resolution."""
