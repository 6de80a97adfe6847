"""Exchanges between expert-parallel ranks (`srt/arg_groups/moe_hook.py` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import attn_dp_enabled, from_instance, whole
from kvtui.core.findings import Change, Fix, Stage, drop, set_to
from kvtui.core.graphs import DECODE, DISABLED, PREFILL
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.moe import nvfp4_experts, w4a16

WHOLE_GROUP_A2A = frozenset(
    {
        "megamoe", "deepep", "deepep_v2", "mooncake", "nixl", "ascend_fuseep", "flashinfer",
        "flashinfer_megamoe", "mori", "pplx",
    }
)  # fmt: skip
"""Exchanges that spread experts over the whole tensor-parallel group (overrides.py:1584)."""

WATERFILL_A2A = ("deepep", "megamoe")

FLASHINFER_MEGA_MODELS = frozenset(
    {
        "BeamForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Glm4MoeForCausalLM",
        "GlmMoeDsaForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "KimiK3ForConditionalGeneration",
        "KimiK3LinearForCausalLM",
    }
)
"""Architectures that FlashInfer MegaMOE was validated with (moe_hook.py:238)."""

DEEPEP_V2_MODELS = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "MiMoV2ForCausalLM",
        "MiMoV2FlashForCausalLM",
    }
)
"""Architectures with a DeepEP v2 policy (configs/moe_model_registry.py:22)."""

FLASHINFER_A2A_RUNNERS = (
    "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm", "flashinfer_trtllm_routed",
    "deep_gemm",
)  # fmt: skip
COMBINE_DTYPES = ("bf16", "mxfp8", "nvfp4")
MUSE_LAYOUTS = ((4, 4), (8, 8))
EPV2_RANKS = 8

Condition = tuple[object, str, Fix]


def set_env(title: str, name: str, value: str | int | None) -> Fix:
    """A fix that sets an environment variable of the launch (None unsets it)."""
    return Fix(title, (Change(f"env:{name}", None if value is None else str(value)),))


def _first(what: str, conditions: tuple[Condition, ...]) -> Iterator[Hit]:
    """The first broken condition: later ones presuppose the earlier."""
    for broken, found, fix in conditions:
        if broken:
            yield hit(f"{what}: {found}", fix)
            return


OTHER_A2A = drop("moe_a2a_backend", title="exchange tokens the plain way")


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


@rule(
    "KV1010", stage=Stage.RESOLVE, option="flashinfer_a2a_dispatch_type",
    source="arg_groups/moe_hook.py:309",
    example=Example(
        "--tp-size 8 --flashinfer-a2a-dispatch-type nvfp4", model="deepseek-ai/DeepSeek-V3"
    ),
    fragments=("--flashinfer-a2a-dispatch-type requires --moe-a2a-backend flashinfer",),
)  # fmt: skip
def dispatch_type_needs_flashinfer(r: Resolution) -> Iterator[Hit]:
    """A dispatch type belongs to the FlashInfer exchange.

    Why: other exchanges choose their own payload.

    Fix: drop the option.
    """
    if r.moe_a2a_backend != "flashinfer" and r.flashinfer_a2a_dispatch_type not in (None, "auto"):
        yield hit(
            f"--flashinfer-a2a-dispatch-type {r.flashinfer_a2a_dispatch_type} with "
            f"--moe-a2a-backend {r.moe_a2a_backend}",
            drop("flashinfer_a2a_dispatch_type"),
        )


def _mega_quantized(r: Resolution) -> bool:
    return bool(
        r.quantization in ("mxfp8", "modelopt_fp4")
        or (r.quantization == "nvfp4_online" and w4a16(r))
        or r.model.is_fp4_experts
        or nvfp4_experts(r)
    )


def _combine_problem(r: Resolution) -> str | None:
    combine = r.env.get("SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE", "bf16").strip().lower()
    if combine not in COMBINE_DTYPES:
        return f"SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE is {combine!r}"
    if combine == "bf16":
        return None
    if w4a16(r):
        return f"16-bit activations combine in bf16, not {combine}"
    if r.env_flag("SGLANG_FLASHINFER_MEGAMOE_IN_KERNEL_FC2_REDUCE"):
        return f"reducing inside the kernel combines in bf16, not {combine}"
    return None


@rule(
    "KV1011", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/moe_hook.py:319",
    example=Example(
        "--tp-size 8 --moe-a2a-backend flashinfer_megamoe", model="openai/gpt-oss-20b", gpu="b200"
    ),
    fragments=("FlashInfer MegaMOE",),
)  # fmt: skip
def flashinfer_mega_needs(r: Resolution) -> Iterator[Hit]:
    """FlashInfer MegaMOE serves validated models with 4- or 8-bit experts under attention DP.

    Why: dispatch, experts and combine are one SM100 kernel over prepared weights, one
    attention-DP group for each rank.

    Fix: leave the exchange to the engine.
    """
    if r.moe_a2a_backend != "flashinfer_megamoe":
        return
    names = r.model.architectures
    combine = _combine_problem(r)
    yield from _first(
        "--moe-a2a-backend flashinfer_megamoe",
        (
            (not FLASHINFER_MEGA_MODELS.intersection(names), f"not validated for {names[0]}",
             OTHER_A2A),
            (not _mega_quantized(r), f"quantization is {r.quantization}", OTHER_A2A),
            (combine, combine or "",
             set_env("combine in bf16", "SGLANG_FLASHINFER_MEGAMOE_COMBINE_DTYPE", "bf16")),
            (w4a16(r) and r.model.dtype != "bfloat16", f"dtype is {r.model.dtype}",
             set_to("compute in bfloat16", dtype="bfloat16")),
            (r.attn_dp_size <= 1 or r.attn_dp_size != r.tp_size,
             f"--attn-dp-size {r.attn_dp_size} is not --tp-size {r.tp_size}",
             set_to("give every rank its attention-DP group", attn_dp_size=r.tp_size)),
            (r.moe_runner_backend not in ("auto", "flashinfer_megamoe"),
             f"--moe-runner-backend is {r.moe_runner_backend}", drop("moe_runner_backend")),
            (not r.platform.is_sm100, f"{r.platform.gpu.name} is no SM100 GPU", OTHER_A2A),
        ),
    )  # fmt: skip


@step("arg_groups/moe_hook.py:327")
def flashinfer_mega_runner(r: Resolution) -> None:
    """The exchange brings its runner."""
    if r.moe_a2a_backend == "flashinfer_megamoe" and r.moe_runner_backend == "auto":
        r.default("the exchange brings its runner", moe_runner_backend="flashinfer_megamoe")


@rule(
    "KV1012", stage=Stage.RESOLVE, option="deepep_mode", source="arg_groups/moe_hook.py:376",
    example=Example(
        "--tp-size 8 --moe-a2a-backend deepep --deepep-mode normal "
        "--moe-runner-backend flashinfer_cutedsl", model="nvidia/DeepSeek-V3.1-NVFP4", gpu="b200",
    ),
    fragments=("flashinfer_cutedsl FP4 MoE only supports DeepEP",),
)  # fmt: skip
def cutedsl_needs_low_latency(r: Resolution) -> Iterator[Hit]:
    """CuteDSL experts take DeepEP's low-latency layout only.

    Why: there is no FP4 handler for DeepEP's normal dispatch.

    Fix: leave `--deepep-mode` out.
    """
    if (
        r.moe_a2a_backend == "deepep"
        and r.moe_runner_backend == "flashinfer_cutedsl"
        and r.deepep_mode == "normal"
    ):
        yield hit(
            "--deepep-mode normal with --moe-runner-backend flashinfer_cutedsl",
            set_to("use the low-latency layout", deepep_mode="low_latency"),
        )


def _without_graphs(r: Resolution, why: str, *phases: str) -> None:
    graphs = r.cuda_graph_config
    for phase in phases:
        graphs = graphs.with_phase(phase, backend=DISABLED)
    r.declare(why, cuda_graph_config=graphs)


@step("arg_groups/moe_hook.py:363")
def deepep_modes(r: Resolution) -> None:
    """DeepEP's mode follows the runner, and its normal mode is not captured."""
    if r.moe_a2a_backend != "deepep":
        return
    if r.moe_runner_backend == "flashinfer_cutedsl" and r.deepep_mode == "auto":
        r.default("CuteDSL experts take that layout only", deepep_mode="low_latency")
    if r.deepep_mode == "normal":
        _without_graphs(r, "DeepEP's normal mode is not captured", DECODE, PREFILL)


@rule(
    "KV1013", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/moe_hook.py:396",
    example=Example("--tp-size 8 --moe-a2a-backend deepep_v2", model="openai/gpt-oss-20b"),
    fragments=("DeepEP v2 MoE", "--deepep-v2-mode direct is NVLink-only"),
)  # fmt: skip
def deepep_v2_needs(r: Resolution) -> Iterator[Hit]:
    """DeepEP v2 serves registered models on the DeepGEMM runner.

    Why: what happens after its combine was validated per architecture; overlap hooks, fused
    shared experts and other runners are not written.

    Fix: use `--moe-a2a-backend deepep`, or drop what the line names.
    """
    if r.moe_a2a_backend != "deepep_v2":
        return
    older = set_to("use DeepEP", moe_a2a_backend="deepep")
    known = not from_instance(r) and r.model.arch in DEEPEP_V2_MODELS
    yield from _first(
        "--moe-a2a-backend deepep_v2",
        (
            (not known, "the architecture is not registered for it", older),
            (r.moe_runner_backend not in ("auto", "deep_gemm"),
             f"--moe-runner-backend is {r.moe_runner_backend}", drop("moe_runner_backend")),
            (r.enable_two_batch_overlap, "--enable-two-batch-overlap is set",
             drop("enable_two_batch_overlap")),
            (r.enable_single_batch_overlap, "--enable-single-batch-overlap is set",
             drop("enable_single_batch_overlap")),
            (r.enforce_shared_experts_fusion, "--enforce-shared-experts-fusion is set",
             drop("enforce_shared_experts_fusion")),
            (r.deepep_v2_mode == "direct" and whole(r.nnodes, 1) > 1,
             f"direct mode over --nnodes {r.nnodes}",
             set_to("exchange over the network too", deepep_v2_mode="hybrid")),
        ),
    )  # fmt: skip


@step("arg_groups/moe_hook.py:400")
def deepep_v2_runner(r: Resolution) -> None:
    """DeepEP v2 runs on DeepGEMM, and its prefill reads counts that graphs can't hold."""
    if r.moe_a2a_backend != "deepep_v2":
        return
    if r.moe_runner_backend == "auto":
        r.default("DeepEP v2 runs on it", moe_runner_backend="deep_gemm")
    _without_graphs(r, "DeepEP v2 prefill is not captured", PREFILL)


@step("arg_groups/moe_hook.py:458")
def plain_exchange(r: Resolution) -> None:
    """`ascend_tp` is another word for no exchange."""
    if r.moe_a2a_backend == "ascend_tp":
        r.declare("ascend_tp means no exchange", moe_a2a_backend="none")


def _muse_sequence_parallel(r: Resolution) -> bool:
    return bool(
        r.model.arch == "MuseSparkForConditionalGeneration"
        and r.enable_layernorm_sp
        and not attn_dp_enabled(r)
        and r.attn_dp_size == 1
        and (r.tp_size, r.ep_size) in MUSE_LAYOUTS
    )


@rule(
    "KV1014", stage=Stage.RESOLVE, option="moe_a2a_backend",
    source="arg_groups/moe_hook.py:475",
    example=Example(
        "--tp-size 8 --moe-a2a-backend flashinfer", model="nvidia/DeepSeek-V3.1-NVFP4", gpu="b200"
    ),
    fragments=("Flashinfer MoE A2A requires --attn-dp-size",),
)  # fmt: skip
def flashinfer_a2a_topology(r: Resolution) -> Iterator[Hit]:
    """The FlashInfer exchange wants one attention-DP group for each rank.

    Why: its workspace is laid out for equal sources.

    Fix: set `--attn-dp-size` to `--tp-size`.
    """
    if r.moe_a2a_backend != "flashinfer":
        return
    own_groups = attn_dp_enabled(r) and r.attn_dp_size == r.tp_size
    if not own_groups and not _muse_sequence_parallel(r):
        yield hit(
            f"--moe-a2a-backend flashinfer with --attn-dp-size {r.attn_dp_size} of --tp-size "
            f"{r.tp_size}",
            OTHER_A2A,
            set_to("give every rank its attention-DP group", attn_dp_size=r.tp_size, dp_size=1),
        )


def _fp4_dispatch(r: Resolution) -> bool:
    return r.quantization == "modelopt_fp4" or nvfp4_experts(r)


def _cutedsl_16bit(r: Resolution) -> bool:
    return r.moe_runner_backend == "flashinfer_cutedsl" and w4a16(r)


@step("arg_groups/moe_hook.py:500")
def flashinfer_a2a_dispatch(r: Resolution) -> None:
    """What travels through the FlashInfer exchange follows the quantization."""
    if r.moe_a2a_backend != "flashinfer":
        return
    kind = r.flashinfer_a2a_dispatch_type
    if kind is None:
        free = "SGLANG_MOE_NVFP4_DISPATCH" not in r.env and not _cutedsl_16bit(r)
        if free and _fp4_dispatch(r):
            r.env["SGLANG_MOE_NVFP4_DISPATCH"] = "True"
            r.scratch["nvfp4_dispatch_by_engine"] = True
        return
    if r.moe_runner_backend == "flashinfer_trtllm":
        r.declare(
            "the exchange delivers chosen experts", moe_runner_backend="flashinfer_trtllm_routed"
        )
    if kind == "auto":
        kind = "nvfp4" if _fp4_dispatch(r) else "bf16"
        r.default(
            "the quantization decides what travels",
            flashinfer_a2a_dispatch_type="mxfp8" if r.quantization == "mxfp8" else kind,
        )


@rule(
    "KV1015", stage=Stage.RESOLVE, option="flashinfer_a2a_dispatch_type",
    source="arg_groups/moe_hook.py:173",
    example=Example(
        "--tp-size 8 --attn-dp-size 8 --moe-a2a-backend flashinfer "
        "--flashinfer-a2a-dispatch-type mxfp8 --moe-runner-backend deep_gemm",
        model="deepseek-ai/DeepSeek-V3",
    ),
    fragments=("--flashinfer-a2a-dispatch-type", "CuTe DSL NVFP4 W4A16 requires"),
)  # fmt: skip
def flashinfer_payload(r: Resolution) -> Iterator[Hit]:
    """What travels through the FlashInfer exchange must fit quantization and runner.

    Why: experts read the payload as it arrives; 16-bit activations arrive as bf16.

    Fix: leave the dispatch type to the engine.
    """
    if r.moe_a2a_backend != "flashinfer":
        return
    kind = r.flashinfer_a2a_dispatch_type
    drop_kind = drop("flashinfer_a2a_dispatch_type")
    set_by_user = (
        "SGLANG_MOE_NVFP4_DISPATCH" in r.env and "nvfp4_dispatch_by_engine" not in r.scratch
    )
    unset = set_env("unset SGLANG_MOE_NVFP4_DISPATCH", "SGLANG_MOE_NVFP4_DISPATCH", None)
    yield from _first(
        f"FlashInfer exchange of {kind or 'bf16'}",
        (
            (_cutedsl_16bit(r) and r.env_flag("SGLANG_MOE_NVFP4_DISPATCH"),
             "16-bit activations with SGLANG_MOE_NVFP4_DISPATCH", unset),
            (_cutedsl_16bit(r) and r.raw.flashinfer_a2a_dispatch_type in ("auto", "nvfp4"),
             "16-bit activations travel as bf16",
             set_to("send bf16", flashinfer_a2a_dispatch_type="bf16")),
            (kind is not None and set_by_user, "SGLANG_MOE_NVFP4_DISPATCH is set too", unset),
            (kind == "mxfp8" and r.quantization != "mxfp8",
             f"quantization is {r.quantization}", drop_kind),
            (kind == "mxfp8" and r.moe_runner_backend != "flashinfer_trtllm_routed",
             f"--moe-runner-backend is {r.moe_runner_backend}", drop_kind),
            (kind == "nvfp4" and not _fp4_dispatch(r), f"quantization is {r.quantization}",
             drop_kind),
        ),
    )  # fmt: skip


@rule(
    "KV1016", stage=Stage.RESOLVE, option="moe_runner_backend",
    source="arg_groups/moe_hook.py:531",
    example=Example(
        "--tp-size 8 --attn-dp-size 8 --moe-a2a-backend flashinfer",
        model="deepseek-ai/DeepSeek-V3",
    ),
    fragments=("FlashInfer MoE A2A is supported with",),
)  # fmt: skip
def flashinfer_a2a_runners(r: Resolution) -> Iterator[Hit]:
    """The FlashInfer exchange feeds five runners.

    Why: others do not read its layout, and `auto` is not resolved to one of them here.

    Fix: name a runner that fits the quantization.
    """
    if r.moe_a2a_backend == "flashinfer" and r.moe_runner_backend not in FLASHINFER_A2A_RUNNERS:
        runner = "flashinfer_cutlass" if _fp4_dispatch(r) else "deep_gemm"
        yield hit(
            f"--moe-a2a-backend flashinfer with --moe-runner-backend {r.moe_runner_backend}",
            set_to(f"run experts on {runner}", moe_runner_backend=runner),
            OTHER_A2A,
        )


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
    yield from _first(
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
