"""Kernels of linear attention (GDN, KDA, Mamba2 …) and the buffered ReplaySSM decode.

Mirrors `handle_linear_attn_backend` of `srt/arg_groups/attention_hook.py` (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.attention_kernels import HYBRID, decode_kernels, verify_kernels
from kvtui.core.steps.attention_replay import REPLAY
from kvtui.core.steps.graphs import uses_kda


def _has_bf16_state_kernels(r: Resolution) -> bool:
    """From capability 10 up FlashInfer's state kernels exist for bfloat16 states only."""
    return r.platform.is_cuda and r.platform.device_capability[0] >= 10


@step("arg_groups/attention_hook.py:293")
def flashinfer_decodes_bf16_states(r: Resolution) -> None:
    """Data-centre Blackwell decodes bfloat16 states with FlashInfer."""
    if (
        r.linear_attn_decode_backend is None
        and r.linear_attn_backend != "helion"
        and r.platform.is_sm100
        and r.mamba_ssm_dtype == "bfloat16"
    ):
        r.default(
            "it is the fastest for bfloat16 states on SM100",
            linear_attn_decode_backend="flashinfer",
        )


@rule(
    "KV240",
    stage=Stage.RESOLVE,
    option="linear_attn_decode_backend",
    source="arg_groups/attention_hook.py:322",
    example=Example("--linear-attn-decode-backend flashkda", model=HYBRID),
    fragments=("--linear-attn-decode-backend flashkda is not supported",),
)
def flashkda_prefills_only(r: Resolution) -> Iterator[Hit]:
    """`flashkda` can't decode.

    Why: FlashKDA has prefill kernels only.

    Fix: name it for prefill; decode stays on triton.
    """
    if r.linear_attn_decode_backend == "flashkda":
        yield hit(
            "FlashKDA has prefill kernels only",
            set_to(
                "prefill with it, decode with triton",
                linear_attn_prefill_backend="flashkda",
                linear_attn_decode_backend=None,
            ),
        )


@step("arg_groups/attention_hook.py:328")
def flashkda_decodes_with_triton(r: Resolution) -> None:
    """Where flashkda is the common choice, Triton decodes."""
    if r.linear_attn_decode_backend is None and r.linear_attn_backend == "flashkda":
        r.default("FlashKDA only prefills", linear_attn_decode_backend="triton")


def _bf16_fixes(r: Resolution, option: str) -> tuple[Fix, ...]:
    own = option if r.chose(option) else "linear_attn_decode_backend"
    back = own if r.chose(own) else "linear_attn_backend"
    return (
        set_to("keep states in bfloat16 (half the state memory)", mamba_ssm_dtype="bfloat16"),
        drop(back),
    )


@rule(
    "KV241",
    stage=Stage.RESOLVE,
    option="linear_attn_decode_backend",
    source="arg_groups/attention_hook.py:341",
    example=Example("--linear-attn-decode-backend flashinfer", model=HYBRID, gpu="b200"),
    fragments=("--linear-attn-decode-backend flashinfer on SM100+",),
)
def flashinfer_decode_needs_bf16_states(r: Resolution) -> Iterator[Hit]:
    """FlashInfer decodes linear attention on Blackwell from bfloat16 states only.

    Why: the kernels of SM100 and later keep states in bfloat16; float32 is Hopper's.

    Fix: set --mamba-ssm-dtype bfloat16, or decode with triton.
    """
    needs = decode_kernels(r) == "flashinfer" and _has_bf16_state_kernels(r)
    if needs and r.mamba_ssm_dtype != "bfloat16":
        found = r.mamba_ssm_dtype or "none (the checkpoint's)"
        yield hit(
            f"flashinfer decodes bfloat16 states on SM{r.platform.sm}; found {found}",
            *_bf16_fixes(r, "linear_attn_decode_backend"),
        )


@step("arg_groups/attention_hook.py:350")
def pipelined_kda_verifies_with_triton(r: Resolution) -> None:
    """Speculation across pipeline stages lays rows out in a way FlashInfer's KDA doesn't take."""
    if (
        r.env_flag("SGLANG_ENABLE_PP_SPEC")
        and verify_kernels(r) == "flashinfer"
        and uses_kda(r)
    ):  # fmt: skip
        r.declare(
            "pipelined verification of KDA needs Triton's row layout",
            linear_attn_verify_backend="triton",
        )


@rule(
    "KV242",
    stage=Stage.RESOLVE,
    option="linear_attn_verify_backend",
    source="arg_groups/attention_hook.py:374",
    example=Example("--linear-attn-verify-backend flashinfer", model=HYBRID, gpu="b200"),
    fragments=("--linear-attn-verify-backend flashinfer on SM100+",),
)
def flashinfer_verify_needs_bf16_states(r: Resolution) -> Iterator[Hit]:
    """FlashInfer verifies drafts of linear attention on Blackwell from bfloat16 states only.

    Why: the kernels of SM100 and later keep states in bfloat16.

    Fix: set --mamba-ssm-dtype bfloat16, or verify with triton.
    """
    if not _has_bf16_state_kernels(r) or r.mamba_ssm_dtype == "bfloat16":
        return
    if r.linear_attn_verify_backend == "flashinfer":
        found = r.mamba_ssm_dtype or "none (the checkpoint's)"
        yield hit(
            f"flashinfer verifies bfloat16 states on SM{r.platform.sm}; found {found}",
            *_bf16_fixes(r, "linear_attn_verify_backend"),
        )


HANDLE_LINEAR_ATTN_BACKEND: tuple[Part, ...] = (
    flashinfer_decodes_bf16_states,
    flashkda_prefills_only,
    flashkda_decodes_with_triton,
    flashinfer_decode_needs_bf16_states,
    pipelined_kda_verifies_with_triton,
    flashinfer_verify_needs_bf16_states,
    *REPLAY,
)
