"""Data, tensor and pipeline widths (`srt/arg_groups/parallel_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, ep_scale_joiner, num_dp_ranks, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.graphs import PREFILL, prefill_graph_sizes
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

DP_CONSERVATIVENESS = 0.3
"""Factor on `schedule_conservativeness` under attention DP."""


@step("arg_groups/parallel_hook.py:37")
def deprecated_dp_attention(r: Resolution) -> None:
    """`--dp-size N --enable-dp-attention` counts attention groups, not replicas."""
    if not r.enable_dp_attention:
        return
    if r.attn_dp_size == 1:
        r.respell(
            "--enable-dp-attention turns --dp-size into attention-DP groups",
            attn_dp_size=r.dp_size,
            dp_size=1,
        )
    r.respell("--attn-dp-size says the same", enable_dp_attention=False)


HANDLE_DEPRECATED_DP_ATTENTION: tuple[Part, ...] = (deprecated_dp_attention,)


@rule(
    "KV450", stage=Stage.RESOLVE, option="attn_dp_size", source="arg_groups/parallel_hook.py:283",
    example=Example("--attn-dp-size 0"), fragments=("--attn-dp-size must be positive",),
)  # fmt: skip
def attn_dp_size_positive(r: Resolution) -> Iterator[Hit]:
    """Attention-DP groups are counted from one.

    Why: the tensor-parallel group is divided by this number.

    Fix: leave it out, or give a divisor of the tensor-parallel size.
    """
    if whole(r.attn_dp_size, 1) < 1:
        yield hit(
            f"--attn-dp-size is {r.attn_dp_size}; it must be at least 1",
            set_to("run attention without data parallelism", attn_dp_size=1, dp_size=1),
        )


@rule(
    "KV451", stage=Stage.RESOLVE, option="attn_dp_size", source="arg_groups/parallel_hook.py:285",
    example=Example("--dp-size 2 --attn-dp-size 2 --tp-size 4"),
    fragments=("data-parallel replicas combined with attention data parallelism",),
)  # fmt: skip
def replicas_or_attention_dp(r: Resolution) -> Iterator[Hit]:
    """Replicas and attention data parallelism exclude each other.

    Why: attention DP does not run inside replicas; one controller serves one of the two.

    Fix: drop one of them, or run several servers behind a router.
    """
    if whole(r.attn_dp_size) > 1 and whole(r.dp_size) > 1:
        yield hit(
            f"--dp-size {r.dp_size} together with --attn-dp-size {r.attn_dp_size}: "
            "a server has replicas or attention-DP groups, not both",
            set_to("keep attention DP, run one replica", dp_size=1),
            set_to("keep replicas, run attention without DP", attn_dp_size=1),
        )


@step("arg_groups/overrides.py:1363")
def data_parallelism_defaults(r: Resolution) -> None:
    """A single DP rank has no LM head of its own to keep."""
    if num_dp_ranks(r) == 1 and not ep_scale_joiner(r):
        r.declare("there is one data-parallel rank", enable_dp_lm_head=False)


@rule(
    "KV452", stage=Stage.RESOLVE, option="attn_dp_size", source="arg_groups/parallel_hook.py:326",
    example=Example("--tp-size 4 --attn-dp-size 3"),
)  # fmt: skip
def attn_dp_divides_tp(r: Resolution) -> Iterator[Hit]:
    """Attention-DP groups are equal shares of the tensor-parallel group.

    Why: every group gets `tp_size / attn_dp_size` ranks; the engine asserts that this is whole
    and says nothing more.

    Fix: choose a divisor of the tensor-parallel size.
    """
    groups = whole(r.attn_dp_size, 1)
    if attn_dp_enabled(r) and groups >= 1 and whole(r.tp_size, 1) % groups:
        yield hit(
            f"--attn-dp-size {groups} does not divide --tp-size {r.tp_size}",
            set_to(f"set --tp-size to {groups}, one rank for each group", tp_size=groups),
        )


@step("arg_groups/parallel_hook.py:311")
def attention_dp_shares(r: Resolution) -> None:
    """Attention DP admits requests more freely and splits the prefill chunk between groups."""
    groups = whole(r.attn_dp_size, 1)
    if not attn_dp_enabled(r) or groups < 1:
        return
    r.declare(
        "attention DP admits requests more freely",
        schedule_conservativeness=r.schedule_conservativeness * DP_CONSERVATIVENESS,
    )
    if r.env_flag("SGLANG_RUST_SERVER"):
        r.declare("the Rust server needs it", enable_dp_attention_local_control_broadcast=True)
    r.declare(
        f"the chunk is split between {groups} attention-DP groups",
        chunked_prefill_size=r.chunked_prefill_size // groups,
    )
    graphs = r.cuda_graph_config
    prefill = graphs.prefill
    if (
        prefill.enabled
        and prefill.max_bs is not None
        and prefill.max_bs > r.chunked_prefill_size
        and not graphs.is_locked(PREFILL, "max_bs")
    ):
        sizes = prefill.bs
        if not graphs.is_locked(PREFILL, "bs"):
            sizes = prefill_graph_sizes(r.chunked_prefill_size)
        r.declare(
            "prefill graphs follow the chunk of one attention-DP group",
            cuda_graph_config=graphs.with_phase(PREFILL, max_bs=r.chunked_prefill_size, bs=sizes),
        )


@step("arg_groups/overrides.py:1400")
def tp_lm_head_all_to_all_default(r: Resolution) -> None:
    """A decode server whose groups are single ranks shards the LM head over the TP group."""
    if r.enable_tp_lm_head_all_to_all is None:
        r.default(
            "a pure attention-DP decode server shards its LM head",
            enable_tp_lm_head_all_to_all=(
                r.disaggregation_mode == "decode"
                and r.attn_dp_size > 1
                and r.tp_size == r.attn_dp_size
                and r.attn_cp_size == 1
                and not r.enable_dp_lm_head
            ),
        )


@rule(
    "KV453", stage=Stage.RESOLVE, option="enable_dp_lm_head",
    source="arg_groups/overrides.py:1427", example=Example("--dp-size 2 --enable-dp-lm-head"),
    fragments=("--enable-dp-lm-head requires attention DP",),
)  # fmt: skip
def dp_lm_head_needs_attention_dp(r: Resolution) -> Iterator[Hit]:
    """A data-parallel LM head needs attention data parallelism.

    Why: the head is replicated per attention-DP group; replicas have whole models anyway.

    Fix: drop the flag, or turn replicas into attention-DP groups.
    """
    if r.enable_dp_lm_head and not attn_dp_enabled(r):
        yield hit(
            f"--enable-dp-lm-head with --attn-dp-size {r.attn_dp_size}: there are no "
            "attention-DP groups",
            drop("enable_dp_lm_head"),
        )


@rule(
    "KV454", stage=Stage.RESOLVE, option="enable_tp_lm_head_all_to_all",
    source="arg_groups/overrides.py:1432", example=Example("--enable-tp-lm-head-all-to-all"),
    fragments=("--enable-tp-lm-head-all-to-all",),
)  # fmt: skip
def lm_head_all_to_all_needs(r: Resolution) -> Iterator[Hit]:
    """The all-to-all LM head runs only where each rank is its own attention-DP group.

    Why: the head stays sharded over the whole TP group, so every group must be one rank, without
    context parallelism and without a replicated head.

    Fix: drop the flag.
    """
    if not r.enable_tp_lm_head_all_to_all:
        return
    fix = drop("enable_tp_lm_head_all_to_all")
    for broken, found in (
        (not attn_dp_enabled(r), "there are no attention-DP groups (--attn-dp-size)"),
        (r.enable_dp_lm_head, "--enable-dp-lm-head replicates the head"),
        (r.tp_size != r.attn_dp_size,
         f"--tp-size {r.tp_size} differs from --attn-dp-size {r.attn_dp_size}"),
        (r.attn_cp_size != 1, f"--attn-cp-size is {r.attn_cp_size}"),
    ):  # fmt: skip
        if broken:
            yield hit(f"--enable-tp-lm-head-all-to-all: {found}", fix)
            return


HANDLE_DATA_PARALLELISM: tuple[Part, ...] = (
    attn_dp_size_positive,
    replicas_or_attention_dp,
    data_parallelism_defaults,
    attn_dp_divides_tp,
    attention_dp_shares,
    tp_lm_head_all_to_all_default,
    dp_lm_head_needs_attention_dp,
    lm_head_all_to_all_needs,
)


@step("arg_groups/overrides.py:1630")
def pipeline_parallel_overlap_disable(r: Resolution) -> None:
    """Pipeline stages run without the overlap scheduler."""
    if whole(r.pp_size, 1) > 1:
        r.declare(
            "pipeline parallelism runs without the overlap scheduler",
            disable_overlap_schedule=True,
        )


PIPELINE_PARALLEL_OVERLAP_DISABLE: tuple[Part, ...] = (pipeline_parallel_overlap_disable,)
