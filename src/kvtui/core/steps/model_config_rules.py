"""What the engine refuses while it reads the model's configuration.

Mirrors the checks of `ModelConfig` (`srt/configs/model_config.py`, 0.5.23) and of the class
lookup before it. The engine builds it on first use and stops at the first problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvtui.core.derived import from_instance, is_dummy
from kvtui.core.findings import Severity, Stage, drop, set_to
from kvtui.core.model.classes import config_classes, knows_type
from kvtui.core.model.config import Problem
from kvtui.core.model.known import FALLBACK, REFUSED, UNKNOWN
from kvtui.core.model.load import LONGCAT
from kvtui.core.model.quant import COMPATIBLE
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.model_common import listed, overriding

SOURCE = "configs/model_config.py"
LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def _reads_model(r: Resolution) -> bool:
    return isinstance(r.model_path, str) and not is_dummy(r) and not from_instance(r)


def _problems(r: Resolution, kind: str) -> Iterator[Problem]:
    if _reads_model(r):
        yield from (one for one in r.model.problems if one.kind == kind)


def _unknown_type(r: Resolution) -> tuple[str | None, bool] | None:
    """(model type, whether the checkpoint brings code for it) where the release has no class."""
    config = r.facts.checkpoint(r.model_path).config
    kind, names = config.get("model_type"), config.get("architectures") or ()
    raw_mamba = not kind and not names and "d_model" in config and "ssm_cfg" in config
    if knows_type(kind) or raw_mamba or any(name in LONGCAT for name in names):
        return None
    code = config.get("auto_map")
    return kind, isinstance(code, Mapping) and "AutoConfig" in code


@rule(
    "KV100",
    stage=Stage.RESOLVE,
    option="model_path",
    source="utils/hf_transformers/config.py:240",
    example=Example("", model="sgl-project/DeepSeek-V4-Flash-FP8", gpu="h200"),
    fragments=(
        "but Transformers does not recognize this architecture",
        "Unrecognized model in",
        "is a per-layer attribute and may vary across layers",
    ),
)
def model_type_unknown(r: Resolution) -> Iterator[Hit]:
    """This release can read the model's type.

    Why: config.json names a `model_type` that neither the engine nor its Transformers has a
    class for, and the checkpoint brings no code of its own. Or it is the text part of a Gemma 4
    on its own: layers of two shapes are read only inside the whole model's configuration.

    Fix: use a newer engine, or the checkpoint as its makers published it.
    """
    found = _unknown_type(r) if _reads_model(r) else None
    if found is not None and not found[1]:
        named = f"model type {found[0]!r}" if found[0] else "no model type"
        yield hit(f"{r.model_path}: config.json has {named}, which this release can't read")
    elif found is None:
        for problem in _problems(r, "layer_shapes"):
            yield hit(
                f"{r.model_path}: layers of two shapes in a {problem.found} configuration, which"
                " this release reads only as part of the whole model's"
            )


@rule(
    "KV101",
    stage=Stage.RESOLVE,
    option="trust_remote_code",
    source="utils/hf_transformers/config.py:240",
    example=Example("", model="inclusionAI/Ling-flash-2.0"),
    fragments=("contains custom code which must be executed",),
)
def model_needs_own_code(r: Resolution) -> Iterator[Hit]:
    """A model type of the checkpoint's own needs leave to run its code.

    Why: the configuration class lies in the checkpoint, and the engine runs such code only with
    --trust-remote-code.

    Fix: read that code, then add --trust-remote-code (it runs with your rights).
    """
    found = _unknown_type(r) if _reads_model(r) else None
    if found is not None and found[1] and not r.trust_remote_code:
        yield hit(
            f"{r.model_path}: model type {found[0]!r} needs code from the checkpoint",
            set_to("run the checkpoint's code", trust_remote_code=True),
        )


@rule(
    "KV102",
    stage=Stage.RESOLVE,
    option="context_length",
    source=f"{SOURCE}:1314",
    example=Example("--context-length 65536", model="Qwen/Qwen3-8B"),
    fragments=("is greater than the derived context_length",),
)
def context_longer_than_trained(r: Resolution) -> Iterator[Hit]:
    """The context is no longer than the checkpoint allows.

    Why: beyond its trained length (rope scaling included) a model's output is unreliable, and
    position tables may end.

    Fix: lower --context-length, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 (quality is
    then your risk).
    """
    for problem in _problems(r, "context_length"):
        yield hit(
            f"--context-length {problem.found} is more than the checkpoint's {problem.wanted}",
            set_to(f"use {problem.wanted} tokens", context_length=problem.wanted),
            set_to("override it (quality is then your risk)", **{f"env:{LONGER}": "1"}),
        )


@rule(
    "KV104",
    stage=Stage.RESOLVE,
    option="quantization",
    source=f"{SOURCE}:2143",
    example=Example("--quantization bitsandbytes", model="deepseek-ai/DeepSeek-V3"),
    fragments=("Quantization method specified in the model config",),
)
def quantization_matches_checkpoint(r: Resolution) -> Iterator[Hit]:
    """A quantized checkpoint runs with its own method.

    Why: its weights are stored in one format; only a few methods can read another's.

    Fix: drop --quantization, the engine finds the checkpoint's method.
    """
    for problem in _problems(r, "quantization"):
        others = [name for name, reads in COMPATIBLE.items() if problem.wanted in reads]
        more = f" ({listed(others)} can read it)" if others else ""
        yield hit(
            f"--quantization {problem.found} on a checkpoint in {problem.wanted}{more}",
            drop("quantization", title=f"run it as {problem.wanted}"),
        )


@rule(
    "KV105",
    stage=Stage.RESOLVE,
    option="quantization",
    source=f"{SOURCE}:2152",
    example=Example("--quantization gptq"),
    fragments=("Unknown quantization method:",),
)
def quantization_implemented(r: Resolution) -> Iterator[Hit]:
    """The quantization method has kernels on this platform.

    Why: the parser takes methods that exist on other hardware only (plain gptq on CPUs and
    Intel GPUs, mlx on Apple's), and a checkpoint may name one that no kernel reads.

    Fix: drop --quantization, or use a method with kernels here.
    """
    for problem in _problems(r, "unknown_quantization"):
        chosen = r.chose("quantization")
        where = "--quantization" if chosen else "the checkpoint's quantization_config"
        fixes = (drop("quantization"),) if chosen else ()
        yield hit(f"{where} {problem.found} has no kernels on this platform", *fixes)


@rule(
    "KV106",
    stage=Stage.RESOLVE,
    option="quantization",
    source=f"{SOURCE}:2157",
    example=Example("--quantization bitsandbytes", gpu="mi300x"),
    fragments=("quantization is currently not supported in ROCm",),
)
def quantization_on_rocm(r: Resolution) -> Iterator[Hit]:
    """The quantization method is one that runs on ROCm.

    Why: the other methods' kernels are written for CUDA.

    Fix: use a checkpoint in fp8, awq, mxfp4 or compressed-tensors.
    """
    for problem in _problems(r, "rocm_quantization"):
        fixes = (drop("quantization"),) if r.chose("quantization") else ()
        yield hit(f"{problem.found} has no kernels for ROCm", *fixes)


@rule(
    "KV107",
    stage=Stage.RESOLVE,
    option="quantize_and_serve",
    source=f"{SOURCE}:1960",
    example=Example("--quantize-and-serve --quantization modelopt_fp8"),
    fragments=("quantize_and_serve requires ModelOpt", "quantize_and_serve functionality is"),
)
def quantize_and_serve_disabled(r: Resolution) -> Iterator[Hit]:
    """Quantizing at start-up is switched off in this release.

    Why: the path broke and the release refuses it, with or without a ModelOpt method.

    Fix: quantize and export the model first, then serve the export.
    """
    for _ in _problems(r, "quantize_and_serve"):
        yield hit("--quantize-and-serve is refused", drop("quantize_and_serve"))


@rule(
    "KV108",
    stage=Stage.RESOLVE,
    option="json_model_override_args",
    source=f"{SOURCE}:617",
    example=Example("--json-model-override-args no-json"),
)
def overrides_are_json(r: Resolution) -> Iterator[Hit]:
    """Overrides of config.json are one JSON object.

    Why: they are merged into the model's configuration key by key.

    Fix: write an object, as in '{"max_position_embeddings": 65536}'.
    """
    for problem in _problems(r, "override_json"):
        found = f"--json-model-override-args {str(problem.found)[:60]!r} is no JSON object"
        yield hit(found, drop("json_model_override_args"))


def _stands_in(r: Resolution) -> str | None:
    """How Transformers may serve the model, None where the engine has a class for it."""
    if not _reads_model(r) or r.model_impl == "mindspore" or r.model.is_known:
        return None
    brought = r.model.hf_config.get("auto_map")
    if isinstance(brought, Mapping) and "AutoModel" in brought:
        return BROUGHT
    return r.model.support


BROUGHT = "brought"
"""The checkpoint has model code of its own."""


@rule(
    "KV109",
    stage=Stage.LOAD,
    option="model_path",
    source="model_loader/utils.py:93",
    example=Example(overriding(architectures=["BambaForCausalLM"])),
    fragments=(
        "Cannot find model module",
        "has no SGlang implementation and the Transformers",
        "are not supported for now. Supported architectures",
    ),
)
def architecture_implemented(r: Resolution) -> Iterator[Hit]:
    """The model's class exists in the engine, or one in Transformers can stand in.

    Why: weights are loaded into a class of that name; without one, or with one whose attention
    the engine can't replace, loading stops.

    Fix: use a newer engine, or another model.
    """
    found = _stands_in(r)
    if found == UNKNOWN:
        told = f"{r.model.arch} is in neither this release nor its Transformers"
        known = config_classes().get(r.model.model_type)
        if known is not None and known.own:
            # The engine brings this model type itself, so no plug-in is behind the class.
            yield hit(told)
        else:
            r.doubt(f"{told}: a newer engine or a plug-in may have it; ask an engine")
    elif found == REFUSED and r.model_impl != "transformers":
        yield hit(f"{r.model.arch} is only in Transformers, with attention that can't be replaced")


@rule(
    "KV190",
    stage=Stage.LOAD,
    option="model_impl",
    severity=Severity.WARNING,
    source="model_loader/utils.py:160",
    fragments=("has no SGLang implementation, falling back to Transformers",),
)
def transformers_stand_in(r: Resolution) -> Iterator[Hit]:
    """A model without a class in the engine runs through Transformers.

    Why: the stand-in serves plain attention, slower and without many features.

    Fix: expect less, or use a model that the engine implements.
    """
    if _stands_in(r) == FALLBACK:
        yield hit(f"{r.model.arch} has no class in this release; Transformers stands in")


@step("model_loader/utils.py:90")
def unjudged_models(r: Resolution) -> None:
    """Leave the verdict open where files beside config.json decide how a model is served."""
    if not _reads_model(r):
        return
    model = r.model
    if _stands_in(r) == BROUGHT:
        r.doubt(f"{model.arch} runs on code from the checkpoint, which the rules don't read")
    for name in ("decision_config.json", "joint_head_config.json", "head.pt"):
        if name in model.checkpoint.files and model.arch.startswith("Qwen3_5"):
            r.doubt(f"{name} beside the weights changes how the engine serves this model")


MODEL_CONFIG: tuple[Part, ...] = (
    model_type_unknown,
    model_needs_own_code,
    overrides_are_json,
    quantize_and_serve_disabled,
    context_longer_than_trained,
    quantization_matches_checkpoint,
    quantization_implemented,
    quantization_on_rocm,
    architecture_implemented,
    transformers_stand_in,
    unjudged_models,
)
