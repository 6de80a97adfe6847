"""Exchanges between expert-parallel ranks (`srt/arg_groups/moe_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import from_instance, whole
from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.moe_a2a_common import (
    OTHER_A2A,
    first_broken,
    set_env,
)
from kvtui.core.steps.moe_a2a_deepep import (
    cutedsl_needs_low_latency,
    deepep_modes,
    deepep_v2_needs,
    deepep_v2_runner,
)
from kvtui.core.steps.moe_a2a_flashinfer import (
    dispatch_type_needs_flashinfer,
    flashinfer_a2a_dispatch,
    flashinfer_a2a_runners,
    flashinfer_a2a_topology,
    flashinfer_mega_needs,
    flashinfer_mega_runner,
    flashinfer_payload,
)

WHOLE_GROUP_A2A = frozenset(
    {
        "megamoe", "deepep", "deepep_v2", "mooncake", "nixl", "ascend_fuseep", "flashinfer",
        "flashinfer_megamoe", "mori", "pplx",
    }
)  # fmt: skip
"""Exchanges that spread experts over the whole tensor-parallel group (overrides.py:1584)."""

WATERFILL_A2A = ("deepep", "megamoe")


EPV2_RANKS = 8


@step("arg_groups/overrides.py:1600")
def a2a_layout(r: Resolution) -> None:
    """Waterfill needs DeepEP or MegaMoE; exchanges spread experts over all ranks."""
    if r.enable_waterfill and r.moe_a2a_backend not in WATERFILL_A2A:
        r.declare("Waterfill rides on DeepEP or MegaMoE", moe_a2a_backend="deepep")
    a2a = r.moe_a2a_backend
    if a2a in WHOLE_GROUP_A2A:
        r.declare(f"{a2a} spreads experts over all tensor-parallel ranks", ep_size=r.tp_size)
    if a2a in WATERFILL_A2A and r.enable_waterfill:
        if r.disable_shared_experts_fusion:
            r.declare("Waterfill fuses shared experts", disable_shared_experts_fusion=False)
    elif a2a in ("flashinfer", "flashinfer_megamoe", "deepep_v2"):
        r.declare(f"{a2a} keeps shared experts apart", disable_shared_experts_fusion=True)
    if r.enable_waterfill:
        r.declare("Waterfill fuses shared experts", enforce_shared_experts_fusion=True)


@step("arg_groups/moe_hook.py:458")
def plain_exchange(r: Resolution) -> None:
    """`ascend_tp` is another word for no exchange."""
    if r.moe_a2a_backend == "ascend_tp":
        r.declare("ascend_tp means no exchange", moe_a2a_backend="none")


def _mori_v2(r: Resolution) -> bool:
    if not r.env_flag("SGLANG_MORI_EP_V2", True):
        return False
    fits = (
        (r.tp_size <= EPV2_RANKS or "gfx1250" in r.platform.gpu.gcn_arch)
        and r.env_flag("SGLANG_USE_AITER")
        and not r.env_flag("MORI_ENABLE_SDMA")
        and not from_instance(r)
        and r.model.dtype == "bfloat16"
        and r.model.is_deepseek_v4_arch
    )
    return fits or "SGLANG_MORI_EP_V2" in r.env


@step("arg_groups/moe_hook.py:543")
def mori_and_pplx_modes(r: Resolution) -> None:
    """MORI dispatches in normal mode, pplx in low-latency mode on DeepGEMM."""
    mode = r.deepep_mode
    if r.moe_a2a_backend == "mori":
        if mode == "auto" or (mode == "low_latency" and _mori_v2(r)):
            r.declare("MORI dispatches in it", deepep_mode="normal")
    elif r.moe_a2a_backend == "pplx":
        if mode == "auto":
            r.default("pplx dispatches in it", deepep_mode="low_latency")
        if r.moe_runner_backend == "auto":
            r.default("pplx feeds DeepGEMM", moe_runner_backend="deep_gemm")


@rule(
    "KV1017", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/moe_hook.py:574",
    example=Example("--tp-size 8 --moe-a2a-backend pplx", model="deepseek-ai/DeepSeek-V3"),
    fragments=("moe_a2a_backend='pplx'",),
)  # fmt: skip
def pplx_needs(r: Resolution) -> Iterator[Hit]:
    """The pplx exchange runs in low-latency mode between attention-DP groups on DeepGEMM.

    Why: its kernel addresses groups, not ranks, and delivers masked batches.

    Fix: give `--attn-dp-size`, and leave mode and runner out.
    """
    if r.moe_a2a_backend != "pplx":
        return
    yield from first_broken(
        "--moe-a2a-backend pplx",
        (
            (r.deepep_mode == "normal", "--deepep-mode is normal", drop("deepep_mode")),
            (r.attn_dp_size < 2, f"--attn-dp-size is {r.attn_dp_size}, it must be at least 2",
             OTHER_A2A),
            (r.moe_runner_backend not in ("deep_gemm", "auto"),
             f"--moe-runner-backend is {r.moe_runner_backend}", drop("moe_runner_backend")),
        ),
    )  # fmt: skip


@rule(
    "KV1018", stage=Stage.RESOLVE, option="chunked_prefill_size",
    source="arg_groups/moe_hook.py:563",
    example=Example("--tp-size 8 --moe-a2a-backend mori", model="deepseek-ai/DeepSeek-V3"),
    fragments=(
        "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
        "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
    ),
)  # fmt: skip
def dispatch_buffer_holds_chunk(r: Resolution) -> Iterator[Hit]:
    """MORI's and pplx's buffers have to hold what one rank dispatches in a step.

    Why: the buffers are allocated once, from an environment variable.

    Fix: raise the variable, or prefill in smaller chunks.
    """
    defaults = {"mori": 4096, "pplx": 128}
    a2a = r.moe_a2a_backend
    if a2a not in defaults or r.disaggregation_mode == "decode":
        return
    needed = whole(r.chunked_prefill_size)
    if needed <= 0:
        return
    if a2a == "pplx":
        needed = max(needed, whole(r.cuda_graph_max_bs_decode))
    name = f"SGLANG_{a2a.upper()}_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
    held = r.env_int(name, defaults[a2a])
    if needed > held:
        yield hit(
            f"{a2a} dispatches {needed} tokens a rank, {name} holds {held}",
            set_env(f"set {name} to {needed}", name, needed),
        )


HANDLE_A2A_MOE: tuple[Part, ...] = (
    a2a_layout,
    dispatch_type_needs_flashinfer,
    flashinfer_mega_needs,
    flashinfer_mega_runner,
    cutedsl_needs_low_latency,
    deepep_modes,
    deepep_v2_needs,
    deepep_v2_runner,
    plain_exchange,
    flashinfer_a2a_topology,
    flashinfer_a2a_dispatch,
    flashinfer_payload,
    flashinfer_a2a_runners,
    pplx_needs,
    mori_and_pplx_modes,
    dispatch_buffer_holds_chunk,
)
