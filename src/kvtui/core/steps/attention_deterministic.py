"""Deterministic inference: batch-invariant kernels and reductions.

Mirrors `handle_deterministic_inference` of `srt/arg_groups/attention_hook.py` (0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import from_instance
from kvtui.core.findings import Fix, Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step

BATCH_INVARIANT = ("ascend", "fa3", "fa4", "flashinfer", "intel_xpu", "triton")
"""Backends with batch-invariant kernels (arg_groups/choices.py:113)."""

BATCH_INVARIANT_WITH_RADIX = ("ascend", "fa3", "fa4", "triton")
"""Those that stay so with cached prefixes (arg_groups/choices.py:249)."""

ABSORBED_MLA = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "Glm4MoeLiteForCausalLM",
    }
)
"""Models that prefill absorbed, for which the engine picks Triton on Blackwell."""

ABSORBED_MLA_CHECKED = ABSORBED_MLA | {"Glm5NextForConditionalGeneration"}


def _architecture(r: Resolution) -> str | None:
    names = None if from_instance(r) else r.model.hf_config.get("architectures")
    return str(names[0]) if names else None


@step("arg_groups/attention_hook.py:591")
def rl_target_is_deterministic(r: Resolution) -> None:
    """An on-policy RL target asks for deterministic inference."""
    if r.rl_on_policy_target is not None:
        r.declare("--rl-on-policy-target needs it", enable_deterministic_inference=True)
        r.env["SGLANG_VLM_CACHE_SIZE_MB"] = "0"
        r.env["SGLANG_ENABLE_DETERMINISTIC_INFERENCE"] = "True"


@step("arg_groups/attention_hook.py:605")
def deterministic_kernels(r: Resolution) -> None:
    """Fused reductions go, sampling moves to PyTorch, attention to a batch-invariant backend."""
    if not r.enable_deterministic_inference:
        return
    why = "deterministic inference needs a fixed order of sums"
    if r.enable_aiter_allreduce_fusion:
        r.declare(why, enable_aiter_allreduce_fusion=False)
    if r.flashinfer_allreduce_fusion_backend is not None:
        r.declare(why, flashinfer_allreduce_fusion_backend=None)
    if r.sampling_backend != "ascend":
        r.declare("deterministic inference samples in PyTorch", sampling_backend="pytorch")
    if r.attention_backend is None:
        platform = r.platform
        backend = "fa3"
        if platform.is_sm100 or platform.is_sm120:
            backend = "triton" if _architecture(r) in ABSORBED_MLA else "flashinfer"
        r.default("it is batch-invariant on this GPU", attention_backend=backend)


def _deterministic_off(r: Resolution) -> tuple[Fix, ...]:
    names = ("enable_deterministic_inference", "rl_on_policy_target")
    chosen = [name for name in names if r.chose(name)]
    return (drop(*chosen, title="give up deterministic inference"),) if chosen else ()


@rule(
    "KV210",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/overrides.py:1115",
    example=Example("--enable-deterministic-inference --attention-backend flashmla"),
    fragments=("attention backends are supported for deterministic inference, but you",),
)
def deterministic_backend_is_batch_invariant(r: Resolution) -> Iterator[Hit]:
    """Deterministic inference runs on batch-invariant attention backends only.

    Why: other kernels split their sums by batch size, so a token's result would depend on
    its neighbours.

    Fix: choose fa3, fa4, flashinfer or triton, or leave the choice to the engine.
    """
    if r.enable_deterministic_inference and r.attention_backend not in BATCH_INVARIANT:
        yield hit(
            f"{r.attention_backend} is not batch-invariant; "
            f"{', '.join(BATCH_INVARIANT)} are",
            set_to("use triton (runs everywhere)", attention_backend="triton"),
            *_deterministic_off(r),
        )  # fmt: skip


@rule(
    "KV211",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:652",
    example=Example(
        "--enable-deterministic-inference --attention-backend flashinfer",
        model="deepseek-ai/DeepSeek-V3",
        gpu="b200",
    ),
    fragments=("supported for deterministic inference with absorbed-MLA models",),
)
def deterministic_mla_backend(r: Resolution) -> Iterator[Hit]:
    """Deterministic inference of absorbed-MLA models runs on fewer backends.

    Why: FlashInfer's MLA kernels are not batch-invariant.

    Fix: use triton, or fa3 on Hopper.
    """
    backend = r.attention_backend
    if not r.enable_deterministic_inference or backend not in BATCH_INVARIANT:
        return
    if _architecture(r) in ABSORBED_MLA_CHECKED and backend not in BATCH_INVARIANT_WITH_RADIX:
        yield hit(
            f"{backend} is not batch-invariant for this MLA model",
            set_to("use triton", attention_backend="triton"),
            *_deterministic_off(r),
        )


@rule(
    "KV212",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source="arg_groups/attention_hook.py:656",
    example=Example(
        "--enable-deterministic-inference --attention-backend fa4",
        model="deepseek-ai/DeepSeek-V3",
    ),
    fragments=("Deterministic inference with absorbed-MLA models on the fa4",),
)
def deterministic_mla_fa4_gpu(r: Resolution) -> Iterator[Hit]:
    """Deterministic MLA on fa4 needs SM100 or SM110.

    Why: FA4 implements absorbed MLA for these GPUs only.

    Fix: use triton, or fa3 on Hopper.
    """
    if not r.enable_deterministic_inference or r.attention_backend != "fa4":
        return
    if _architecture(r) in ABSORBED_MLA_CHECKED and not r.platform.is_sm100_or_sm110:
        yield hit(
            f"fa4 has no absorbed MLA on SM{r.platform.sm}",
            set_to("use triton", attention_backend="triton"),
        )


@step("arg_groups/attention_hook.py:663")
def deterministic_prefix_cache(r: Resolution) -> None:
    """Cached prefixes change the order of sums in some backends, so the cache goes."""
    if r.enable_deterministic_inference and r.attention_backend not in BATCH_INVARIANT_WITH_RADIX:
        r.declare(
            f"{r.attention_backend} is deterministic only without cached prefixes",
            disable_radix_cache=True,
        )


@rule(
    "KV213",
    stage=Stage.RESOLVE,
    option="disable_custom_all_reduce",
    source="arg_groups/overrides.py:1076",
    example=Example(
        "--enable-deterministic-inference --attention-backend triton --tp-size 4 "
        "--disable-custom-all-reduce",
        gpu="mi300x",
    ),
    fragments=("--disable-custom-all-reduce cannot be combined",),
)
def deterministic_rocm_needs_custom_all_reduce(r: Resolution) -> Iterator[Hit]:
    """On ROCm, deterministic inference over more than two ranks needs the custom all-reduce.

    Why: RCCL's results change with the batch.

    Fix: keep the custom all-reduce.
    """
    if (
        r.enable_deterministic_inference
        and r.platform.is_hip
        and r.tp_size > 2
        and r.disable_custom_all_reduce
    ):
        yield hit(
            f"{r.tp_size} ranks would reduce through RCCL, which is not batch-invariant",
            drop("disable_custom_all_reduce"),
            *_deterministic_off(r),
        )


@step("arg_groups/attention_hook.py:683")
def deterministic_reduction(r: Resolution) -> None:
    """Several CUDA ranks reduce through one fixed NCCL tree."""
    if not r.enable_deterministic_inference or r.tp_size <= 1 or r.platform.is_hip:
        return
    r.declare(
        "deterministic inference reduces through a fixed NCCL tree",
        disable_custom_all_reduce=True,
        enable_torch_symm_mem=False,
    )
    channels = str(r.env_int("SGLANG_DETERMINISTIC_NCCL_NCHANNELS", 8))
    r.env["NCCL_ALGO"] = "allreduce:tree"
    r.env["NCCL_MIN_NCHANNELS"] = r.env["NCCL_MAX_NCHANNELS"] = channels


HANDLE_DETERMINISTIC_INFERENCE: tuple[Part, ...] = (
    rl_target_is_deterministic,
    deterministic_kernels,
    deterministic_backend_is_batch_invariant,
    deterministic_mla_backend,
    deterministic_mla_fa4_gpu,
    deterministic_prefix_cache,
    deterministic_rocm_needs_custom_all_reduce,
    deterministic_reduction,
)
