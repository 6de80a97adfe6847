"""Attention backends that a family accepts, checked once the overrides are in."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.model_common import arch, backend_option, listed, overriding, use_backend
from kvtui.core.steps.model_overrides_attention import EXAONE, GEMMA4

HOOK = "arg_groups/model_hook.py"
GPT_OSS = ("triton", "trtllm_mha", "fa3", "fa4", "ascend", "intel_amx", "intel_xpu", "aiter")
LLAMA4 = ("fa3", "aiter", "triton", "ascend", "trtllm_mha", "intel_xpu")
GEMMA4_BACKENDS = ("trtllm_mha", "triton", "fa4", "ascend", "intel_xpu", "intel_amx", "aiter")
EXAONE_BACKENDS = ("fa3", "triton", "trtllm_mha")


def _refused(r: Resolution, accepted: tuple[str, ...]) -> tuple[str, str | None] | None:
    """(phase, backend) of the first phase whose backend is not accepted."""
    phases = zip(("prefill", "decode"), r.backends, strict=True)
    return next(((phase, name) for phase, name in phases if name not in accepted), None)


@rule(
    "KV116",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:538",
    example=Example("--attention-backend flashinfer", model="openai/gpt-oss-20b"),
    fragments=("GptOssForCausalLM requires one of",),
)
def gpt_oss_backends(r: Resolution) -> Iterator[Hit]:
    """GPT-OSS needs a backend with attention sinks and windows, for both phases.

    Why: every layer adds a learned sink to the softmax, every other one attends to a window.

    Fix: leave the backend to the engine, or use triton, fa3, fa4, trtllm_mha or aiter.
    """
    found = _refused(r, GPT_OSS) if arch(r) == "GptOssForCausalLM" else None
    if found is not None:
        yield hit(
            f"{found[1]} for {found[0]} with GPT-OSS; {listed(GPT_OSS)} know attention sinks",
            *use_backend(r, "triton"),
            option=backend_option(r, found[1]),
        )


@rule(
    "KV117",
    stage=Stage.RESOLVE,
    option="moe_runner_backend",
    source=f"{HOOK}:577",
    example=Example(
        "--tp-size 2 --ep-size 2 --moe-runner-backend triton_kernel", model="openai/gpt-oss-20b"
    ),
    fragments=("Triton kernel MoE is only supported when ep_size",),
)
def gpt_oss_triton_kernel_ep(r: Resolution) -> Iterator[Hit]:
    """GPT-OSS on triton_kernel keeps all experts on every rank.

    Why: that package's kernels have no notion of experts that live elsewhere.

    Fix: drop --ep-size, or choose another runner.
    """
    on_package = arch(r) == "GptOssForCausalLM" and r.moe_runner_backend == "triton_kernel"
    if on_package and r.ep_size != 1:
        yield hit(
            f"triton_kernel with --ep-size {r.ep_size}",
            drop("ep_size"),
            set_to("run experts on triton", moe_runner_backend="triton"),
        )


@rule(
    "KV119",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:622",
    example=Example(
        "--tp-size 8 --attention-backend flashinfer",
        model="meta-llama/Llama-4-Scout-17B-16E-Instruct",
    ),
    fragments=("is required for Llama4 model but got",),
)
def llama4_backends(r: Resolution) -> Iterator[Hit]:
    """Llama 4 needs a backend with chunked local attention.

    Why: three of four layers attend within chunks, which FlashInfer and others don't do.

    Fix: leave the backend to the engine, or use fa3, triton, trtllm_mha or aiter.
    """
    is_llama4 = arch(r) in ("Llama4ForConditionalGeneration", "Llama4ForCausalLM")
    if is_llama4 and r.device != "cpu" and r.attention_backend not in LLAMA4:
        yield hit(
            f"{r.attention_backend} with Llama 4; {listed(LLAMA4)} know local attention",
            *use_backend(r, "triton"),
        )


@rule(
    "KV120",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:656",
    example=Example("--attention-backend fa3", model="google/gemma-4-26B-A4B"),
    fragments=("Gemma4 only supports trtllm_mha",),
)
def gemma4_backends(r: Resolution) -> Iterator[Hit]:
    """Gemma 4 needs a backend that takes two head sizes, for both phases.

    Why: full and sliding layers have heads of 512 and 256.

    Fix: leave the backend to the engine, or use triton, fa4, trtllm_mha or aiter.
    """
    found = _refused(r, GEMMA4_BACKENDS) if arch(r) in GEMMA4.split() else None
    if found is not None:
        yield hit(
            f"{found[1]} for {found[0]} with Gemma 4; {listed(GEMMA4_BACKENDS)} take its heads",
            *use_backend(r, "triton"),
            option=backend_option(r, found[1]),
        )


@rule(
    "KV121",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:684",
    example=Example("--attention-backend flashinfer", model="LGAI-EXAONE/EXAONE-4.0-32B"),
    fragments=("One of the attention backends in",),
)
def exaone_backends(r: Resolution) -> Iterator[Hit]:
    """EXAONE 4 needs a backend with sliding windows.

    Why: most of its layers attend to a window.

    Fix: leave the backend to the engine, or use fa3, triton or trtllm_mha.
    """
    windows = (
        arch(r) in EXAONE.split() and r.model.hf_config.get("sliding_window_pattern") is not None
    )
    if windows and r.attention_backend not in EXAONE_BACKENDS:
        yield hit(
            f"{r.attention_backend} with {arch(r)}; {listed(EXAONE_BACKENDS)} know windows",
            *use_backend(r, "triton"),
        )


@rule(
    "KV122",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:697",
    example=Example(
        overriding(architectures=["Olmo2ForCausalLM"]) + " --attention-backend flashinfer"
    ),
    fragments=("significantly degrade the performance of Olmo3",),
)
def olmo2_backends(r: Resolution) -> Iterator[Hit]:
    """Olmo 2 and 3 don't run on FlashInfer.

    Why: its sliding windows are slow for this architecture, and the engine refuses it.

    Fix: leave the backend to the engine.
    """
    if arch(r) == "Olmo2ForCausalLM" and r.attention_backend == "flashinfer":
        yield hit("flashinfer with Olmo2ForCausalLM", *use_backend(r, "triton"))


@rule(
    "KV123",
    stage=Stage.RESOLVE,
    option="attention_backend",
    source=f"{HOOK}:733",
    example=Example("--attention-backend triton", model="LiquidAI/LFM2-1.2B"),
    fragments=("does not support triton attention backend",),
)
def lfm2_backends(r: Resolution) -> Iterator[Hit]:
    """LFM2 doesn't run on Triton attention.

    Why: that backend sizes its buffers by the first layer, which is no attention layer here.

    Fix: leave the backend to the engine, or use flashinfer.
    """
    is_lfm2 = arch(r) in ("Lfm2ForCausalLM", "Lfm2MoeForCausalLM")
    if is_lfm2 and r.attention_backend == "triton":
        yield hit(f"triton with {arch(r)}", *use_backend(r, "flashinfer"))


MODEL_BACKENDS: tuple[Part, ...] = (
    gpt_oss_backends,
    gpt_oss_triton_kernel_ep,
    llama4_backends,
    gemma4_backends,
    exaone_backends,
    olmo2_backends,
    lfm2_backends,
)
