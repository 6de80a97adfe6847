"""Buffered ReplaySSM decode and replayed verification of linear attention.

Mirrors the second half of `handle_linear_attn_backend` (`arg_groups/attention_hook.py:395`).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import mamba_extra_buffer, whole
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.attention_kernels import HYBRID, RAGGED_MODES, decode_kernels


@rule(
    "KV243",
    stage=Stage.RESOLVE,
    option="enable_linear_replayssm",
    source="arg_groups/attention_hook.py:414",
    example=Example(
        "--enable-linear-replayssm --mamba-radix-cache-strategy no_buffer "
        "--linear-attn-decode-backend cutedsl",
        model=HYBRID,
    ),
    fragments=("--enable-linear-replayssm requires Triton",),
)
def replay_decodes_with_triton(r: Resolution) -> Iterator[Hit]:
    """Buffered ReplaySSM decode runs on Triton, or on Helion for KDA.

    Why: only these kernels read the ring of buffered steps.

    Fix: decode with triton, or drop the buffered decode.
    """
    decode = decode_kernels(r)
    # A flashkda decode was refused or replaced before, so it is not judged twice.
    if r.enable_linear_replayssm and decode not in ("triton", "helion", "flashkda"):
        yield hit(
            f"buffered decode needs triton or helion kernels; found {decode}",
            set_to("decode with triton", linear_attn_decode_backend="triton"),
            drop("enable_linear_replayssm"),
        )


@rule(
    "KV244",
    stage=Stage.RESOLVE,
    option="enable_linear_replayssm",
    source="arg_groups/attention_hook.py:421",
    example=Example("--enable-linear-replayssm", model=HYBRID),
    fragments=("--enable-linear-replayssm requires --mamba-radix-cache-strategy",),
)
def replay_needs_no_buffer(r: Resolution) -> Iterator[Hit]:
    """Buffered ReplaySSM decode excludes spare state buffers in the prefix cache.

    Why: donating a spare buffer does not reset the ring of buffered steps.

    Fix: use --mamba-radix-cache-strategy no_buffer (without the overlap scheduler), or drop
    the buffered decode.
    """
    if r.enable_linear_replayssm and mamba_extra_buffer(r):
        yield hit(
            f"buffered decode needs mamba_radix_cache_strategy no_buffer; "
            f"found {r.mamba_radix_cache_strategy}",
            drop("enable_linear_replayssm"),
            set_to(
                "use no_buffer, which needs the slower scheduler without overlap",
                mamba_radix_cache_strategy="no_buffer",
                disable_overlap_schedule=True,
            ),
        )


@rule(
    "KV245",
    stage=Stage.RESOLVE,
    option="enable_linear_replayssm",
    source="arg_groups/attention_hook.py:433",
    example=Example(
        "--enable-linear-replayssm --mamba-radix-cache-strategy no_buffer "
        "--disaggregation-mode prefill",
        model=HYBRID,
    ),
    fragments=("--enable-linear-replayssm is not supported under PD",),
)
def replay_is_not_disaggregated(r: Resolution) -> Iterator[Hit]:
    """Buffered ReplaySSM decode excludes PD disaggregation.

    Why: the decode server's request pool has no ring of buffered steps.

    Fix: drop the buffered decode.
    """
    if r.enable_linear_replayssm and r.disaggregation_mode != "null":
        yield hit(
            f"a {r.disaggregation_mode} server has no ring of buffered steps",
            drop("enable_linear_replayssm"),
        )


@rule(
    "KV246",
    stage=Stage.RESOLVE,
    option="linear_replayssm_cache_len",
    source="arg_groups/attention_hook.py:439",
    example=Example(
        "--enable-linear-replayssm --mamba-radix-cache-strategy no_buffer "
        "--linear-replayssm-cache-len 0",
        model=HYBRID,
    ),
    fragments=("--linear-replayssm-cache-len must be >= 1",),
)
def replay_ring_holds_a_step(r: Resolution) -> Iterator[Hit]:
    """The ring of buffered ReplaySSM steps holds at least one.

    Why: a step is written to the ring before it is folded into the state.

    Fix: use the default of 16, or another positive length.
    """
    length = whole(r.linear_replayssm_cache_len, 1)
    if r.enable_linear_replayssm and length < 1:
        yield hit(f"needs at least one step; found {length}", drop("linear_replayssm_cache_len"))


@rule(
    "KV247",
    stage=Stage.RESOLVE,
    option="speculative_eagle_topk",
    source="arg_groups/attention_hook.py:458",
    example=Example(
        "--enable-linear-replayssm-spec --speculative-algorithm EAGLE "
        "--speculative-num-steps 3 --speculative-eagle-topk 2 --speculative-num-draft-tokens 4",
        model=HYBRID,
    ),
    fragments=("--enable-linear-replayssm-spec requires a linear draft chain",),
)
def replay_verifies_one_path(r: Resolution) -> Iterator[Hit]:
    """Replayed verification takes one chain of drafts, no tree.

    Why: its kernel masks strictly by position, which is wrong between branches.

    Fix: draft one path, or drop replayed verification.
    """
    if r.enable_linear_replayssm_spec and r.speculative_eagle_topk not in (None, 1):
        yield hit(
            f"replayed verification needs one draft path; found {r.speculative_eagle_topk}",
            set_to("draft one path", speculative_eagle_topk=1),
            drop("enable_linear_replayssm_spec"),
        )


@rule(
    "KV248",
    stage=Stage.RESOLVE,
    option="enable_linear_replayssm_spec",
    source="arg_groups/attention_hook.py:466",
    example=Example(
        "--enable-linear-replayssm-spec --linear-attn-decode-backend cutedsl", model=HYBRID
    ),
    fragments=("--enable-linear-replayssm-spec requires the triton or",),
)
def replay_verifies_beside_triton(r: Resolution) -> Iterator[Hit]:
    """Replayed verification needs triton or flashinfer decode kernels.

    Why: verify and decode share the state layout of these kernels.

    Fix: decode with triton, or drop replayed verification.
    """
    decode = decode_kernels(r)
    if r.enable_linear_replayssm_spec and decode not in ("triton", "flashinfer", "flashkda"):
        yield hit(
            f"replayed verification needs triton or flashinfer decode; found {decode}",
            set_to("decode with triton", linear_attn_decode_backend="triton"),
            drop("enable_linear_replayssm_spec"),
        )


@rule(
    "KV249",
    stage=Stage.RESOLVE,
    option="enable_linear_replayssm_spec",
    source="arg_groups/attention_hook.py:490",
    example=Example(
        "--enable-linear-replayssm-spec",
        model=HYBRID,
        env={"SGLANG_RAGGED_VERIFY_MODE": "compact"},
    ),
    fragments=("KDA fold-every-commit family", "invalid SGLANG_RAGGED_VERIFY_MODE"),
)
def replay_of_ragged_drafts(r: Resolution) -> Iterator[Hit]:
    """Replayed verification of ragged drafts is for DSPARK and DFLASH on ring-writing kernels.

    Why: other kernels don't write the ring for ragged rows, so stale steps would be folded in.

    Fix: unset SGLANG_RAGGED_VERIFY_MODE, or drop replayed verification.
    """
    mode = r.env.get("SGLANG_RAGGED_VERIFY_MODE", "static")
    if not r.enable_linear_replayssm_spec or mode == "static":
        return
    ring = str(r.speculative_algorithm or "").upper() in ("DSPARK", "DFLASH")
    if mode not in RAGGED_MODES or not (
        ring and r.linear_attn_verify_backend in ("triton", "nv_cutedsl")
    ):
        yield hit(
            f"SGLANG_RAGGED_VERIFY_MODE is {mode}, and {r.speculative_algorithm} drafts on "
            f"{r.linear_attn_verify_backend or 'default'} kernels verify as static rows only",
            _static_rows(),
            drop("enable_linear_replayssm_spec"),
        )


def _static_rows() -> Fix:
    return set_to("verify static rows", **{"env:SGLANG_RAGGED_VERIFY_MODE": None})


@rule(
    "KV250",
    stage=Stage.RESOLVE,
    option="enable_linear_replayssm_spec",
    source="arg_groups/attention_hook.py:501",
    example=Example("--enable-linear-replayssm-spec --disaggregation-mode prefill", model=HYBRID),
    fragments=("--enable-linear-replayssm-spec is not supported on a PD",),
)
def replay_verifies_on_decode_servers(r: Resolution) -> Iterator[Hit]:
    """A prefill server verifies no drafts, so replayed verification has no place there.

    Why: the ring would only cost memory.

    Fix: drop it on this server.
    """
    if r.enable_linear_replayssm_spec and r.disaggregation_mode == "prefill":
        yield hit("a prefill server verifies no drafts", drop("enable_linear_replayssm_spec"))


@rule(
    "KV251",
    stage=Stage.RESOLVE,
    option="enable_linear_replayssm_spec",
    source="arg_groups/attention_hook.py:507",
    example=Example(
        "--enable-linear-replayssm-spec --enable-linear-replayssm "
        "--mamba-radix-cache-strategy no_buffer",
        model=HYBRID,
    ),
    fragments=("--enable-linear-replayssm-spec and --enable-linear-replayssm are",),
)
def replay_modes_exclude_each_other(r: Resolution) -> Iterator[Hit]:
    """Buffered decode and replayed verification exclude each other.

    Why: they share one ring and move through it in different ways.

    Fix: keep the one that the launch needs: verification with speculation, else decode.
    """
    if r.enable_linear_replayssm_spec and r.enable_linear_replayssm:
        yield hit(
            "buffered decode and replayed verification share one ring",
            drop("enable_linear_replayssm"),
            drop("enable_linear_replayssm_spec"),
        )


@step("arg_groups/attention_hook.py:514")
def replay_keeps_float32_states(r: Resolution) -> None:
    """Replayed verification keeps states in float32 unless the user says otherwise."""
    if r.enable_linear_replayssm_spec and r.mamba_ssm_dtype is None:
        r.default("replayed verification corrects float32 states", mamba_ssm_dtype="float32")


REPLAY: tuple[Part, ...] = (
    replay_decodes_with_triton,
    replay_needs_no_buffer,
    replay_is_not_disaggregated,
    replay_ring_holds_a_step,
    replay_verifies_one_path,
    replay_verifies_beside_triton,
    replay_of_ragged_drafts,
    replay_verifies_on_decode_servers,
    replay_modes_exclude_each_other,
    replay_keeps_float32_states,
)
