"""Diffusion language models (`srt/arg_groups/dllm_hook.py` and `srt/dllm` of 0.5.23)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvtui.core.derived import from_instance, whole
from kvtui.core.findings import Stage, drop, set_to
from kvtui.core.graphs import DECODE, DISABLED, FULL, PREFILL, GraphConfig
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.attention_default import BACKEND_OPTIONS
from kvtui.core.steps.model_common import arch, listed, overriding, settle

HOOK = "arg_groups/dllm_hook.py"
RENOISE = "Gemma4Renoise"
GEMMA = "DiffusionGemmaForBlockDiffusion"
ALGORITHMS = ("LowConfidence", "JointThreshold", "JointThresholdInDel", RENOISE)


@dataclass(frozen=True, slots=True)
class DiffusionModel:
    """Tokens a block and the one algorithm that serves it, None for any."""

    block_size: int
    algorithm: str | None = None


MODELS: Mapping[str, DiffusionModel] = {
    "LLaDA2MoeModelLM": DiffusionModel(32),
    "SDARForCausalLM": DiffusionModel(4),
    "SDARMoeForCausalLM": DiffusionModel(4),
    GEMMA: DiffusionModel(256, RENOISE),
}
"""Diffusion models of the release (dllm/config.py:48)."""


def _on(r: Resolution) -> bool:
    return r.dllm_algorithm is not None and not from_instance(r)


def block_size(r: Resolution) -> int:
    """Tokens that are denoised together; one for a model that is no diffusion model."""
    if arch(r) == GEMMA:
        return whole(r.model.hf_config.get("canvas_length"), MODELS[GEMMA].block_size)
    found = MODELS.get(arch(r))
    return found.block_size if found else 1


@rule(
    "KV166",
    stage=Stage.RESOLVE,
    option="dllm_algorithm",
    source="dllm/config.py:62",
    example=Example("--dllm-algorithm LowConfidence"),
    fragments=(
        "Unknown diffusion LLM",
        "diffusion algorithm",
        "does not support model architecture",
    ),
)
def diffusion_fits_model(r: Resolution) -> Iterator[Hit]:
    """A diffusion algorithm needs a diffusion model that it serves.

    Why: block size and mask token are known for LLaDA 2, SDAR and DiffusionGemma, and the last
    has an algorithm of its own.

    Fix: drop --dllm-algorithm, or choose one that serves the model.
    """
    if not _on(r):
        return
    name, found = r.dllm_algorithm, MODELS.get(arch(r))
    undo = drop("dllm_algorithm")
    if name not in ALGORITHMS:
        yield hit(f"--dllm-algorithm {name}; there are {listed(ALGORITHMS)}", undo)
    elif found is None:
        yield hit(f"--dllm-algorithm {name} with {arch(r)}, which is no diffusion model", undo)
    elif (found.algorithm or name) != name or (name == RENOISE and arch(r) != GEMMA):
        own = found.algorithm or ALGORITHMS[0]
        yield hit(f"{name} with {arch(r)}", set_to(f"use {own}", dllm_algorithm=own))


@rule(
    "KV167",
    stage=Stage.RESOLVE,
    option="dllm_algorithm",
    source="dllm/algorithm/gemma4_renoise.py:81",
    example=Example(
        overriding(architectures=["DiffusionGemmaForBlockDiffusion"])
        + " --dllm-algorithm Gemma4Renoise --pp-size 2",
        model="google/gemma-4-26B-A4B",
    ),
    fragments=("DiffusionGemma does not support", "DiffusionGemma currently supports"),
)
def diffusion_gemma_excludes(r: Resolution) -> Iterator[Hit]:
    """DiffusionGemma runs whole, unquantized, on a GPU.

    Why: its denoiser keeps canvases on one rank group and reads 16-bit weights; whole prefill
    graphs need fa4.

    Fix: drop the option that is named.
    """
    if not _on(r) or r.dllm_algorithm != RENOISE:
        return
    for name in ("pp_size", "dcp_size", "attn_cp_size"):
        if whole(getattr(r, name), 1) > 1:
            flag = "--" + name.replace("_", "-")
            yield hit(f"DiffusionGemma with {flag} {getattr(r, name)}", drop(name), option=name)
    if r.model.quantization is not None:
        yield hit(f"DiffusionGemma in {r.model.quantization}", drop("quantization"))
    if r.cuda_graph_config.prefill.backend == FULL and r.backends[0] != "fa4":
        option = "cuda_graph_backend_prefill"
        yield hit("full prefill graphs without fa4", drop(option), option=option)


def _wanted_backend(r: Resolution) -> str | None:
    """The attention backend that denoising runs on, None for the one that is resolved."""
    if r.platform.is_hip:
        return None if r.attention_backend in ("triton", "aiter") else "triton"
    captures = r.cuda_graph_config.decode.backend != DISABLED
    return "flashinfer" if captures and r.attention_backend != "flashinfer" else None


@step("arg_groups/overrides.py:1671")
def dllm_attention_backend(r: Resolution) -> None:
    """The attention backend that denoising runs on."""
    if not _on(r):
        return
    why = f"{r.dllm_algorithm} runs on it"
    if r.dllm_algorithm == RENOISE:
        if any(getattr(r, name) not in (None, "triton", "fa4") for name in BACKEND_OPTIONS):
            settle(r, why, **dict.fromkeys(BACKEND_OPTIONS, "triton"))
        return
    wanted = _wanted_backend(r)
    if wanted is not None:
        settle(r, why, attention_backend=wanted)


@step(f"{HOOK}:37")
def dllm_graphs(r: Resolution) -> None:
    """Graphs and caches as the algorithm and the platform take them."""
    if not _on(r):
        return
    graphs: GraphConfig = r.cuda_graph_config
    if r.dllm_algorithm == RENOISE:
        settle(r, "canvases are read whole", disable_radix_cache=True, chunked_prefill_size=-1)
        if graphs.prefill.backend != FULL:
            graphs = graphs.with_phase(PREFILL, backend=DISABLED)
    if r.platform.is_hip:
        graphs = graphs.with_phase(DECODE, backend=DISABLED).with_phase(PREFILL, backend=DISABLED)
    if graphs != r.cuda_graph_config:
        r.declare("denoising is not captured otherwise", cuda_graph_config=graphs)


OFF = {
    "enable_hierarchical_cache": False,
    "enable_lmcache": False,
    "enable_flexkv": False,
}
PLAIN = {
    "pp_size": 1,
    "enable_lora": False,
    "disaggregation_mode": "null",
    "enable_mixed_chunk": False,
}


@step(f"{HOOK}:61")
def dllm_plain_serving(r: Resolution) -> None:
    """Denoising runs without overlap, host caches, stages, adapters and disaggregation."""
    if not _on(r):
        return
    why = "a diffusion model denoises whole blocks"
    settle(r, why, disable_overlap_schedule=True)
    block, page = block_size(r), whole(r.page_size, 1)
    if (not r.disable_radix_cache and page % block) or page > block:
        settle(r, f"blocks hold {block} tokens", page_size=block)
    values = PLAIN if r.disable_radix_cache else {**OFF, **PLAIN}
    changed = {name: value for name, value in values.items() if getattr(r, name) != value}
    settle(r, why, **changed)


HANDLE_DLLM_INFERENCE: tuple[Part, ...] = (
    diffusion_fits_model,
    dllm_attention_backend,
    diffusion_gemma_excludes,
    dllm_graphs,
    dllm_plain_serving,
)
