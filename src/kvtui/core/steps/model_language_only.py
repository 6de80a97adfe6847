"""Serving the language part of a multimodal checkpoint alone (`handle_language_model_only`)."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule
from kvtui.core.steps.model_common import listed

HOOK = "arg_groups/model_hook.py"
SERVED = (
    "DeepseekV4ForCausalLM",
    "MuseGlimmerForConditionalGeneration",
    "Cosmos3ForConditionalGeneration",
    "Cosmos3EdgeForConditionalGeneration",
)
"""Architectures that can leave their towers out (server_args.py:335)."""
EXCLUDED = (
    "encoder_only",
    "language_only",
    "enable_prefix_mm_cache",
    "enable_broadcast_mm_inputs_process",
    "mm_enable_dp_encoder",
)


@rule(
    "KV161",
    stage=Stage.RESOLVE,
    option="language_model_only",
    source=f"{HOOK}:1083",
    example=Example("--language-model-only --encoder-only", model="deepseek-ai/DeepSeek-V4-Flash"),
    fragments=("--language-model-only cannot be combined with", "--language-model-only is incom"),
)
def language_only_excludes(r: Resolution) -> Iterator[Hit]:
    """Text-only serving goes without everything that feeds or splits off encoders.

    Why: the towers are not loaded, so no image cache, encoder server or disaggregated pair can
    be served with it.

    Fix: drop one of the two.
    """
    if not r.language_model_only:
        return
    for name in EXCLUDED:
        if getattr(r, name):
            flag = "--" + name.replace("_", "-")
            yield hit(f"--language-model-only with {flag}", drop("language_model_only"), drop(name))
    if r.disaggregation_mode != "null" and r.model.model_type != "deepseek_v41":
        yield hit(
            f"--language-model-only with --disaggregation-mode {r.disaggregation_mode}",
            drop("language_model_only"),
        )


@rule(
    "KV162",
    stage=Stage.RESOLVE,
    option="language_model_only",
    source=f"{HOOK}:1104",
    example=Example("--language-model-only"),
    fragments=("--language-model-only does not support",),
)
def language_only_models(r: Resolution) -> Iterator[Hit]:
    """Few architectures can leave their towers out.

    Why: the others build them with the language part.

    Fix: drop --language-model-only.
    """
    if r.language_model_only and not set(SERVED) & set(r.model.architectures):
        yield hit(
            f"--language-model-only with {r.model.arch}; it serves {listed(SERVED)}",
            drop("language_model_only"),
        )


HANDLE_LANGUAGE_MODEL_ONLY: tuple[Part, ...] = (language_only_excludes, language_only_models)
"""For the encoder hook, which starts with it."""
