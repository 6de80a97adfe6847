"""`--language-model-only`: a multimodal checkpoint served for text."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.derived import architecture
from kvtui.core.findings import Stage, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule

HOOK = "arg_groups/model_hook.py"
V4 = "deepseek-ai/DeepSeek-V4-Flash"
OFF = drop("language_model_only")
EXCLUDED = (
    "encoder_only",
    "language_only",
    "enable_prefix_mm_cache",
    "enable_broadcast_mm_inputs_process",
    "mm_enable_dp_encoder",
)
"""Options about media. Source: model_hook.py:1083."""
ARCHITECTURES = frozenset({
    "DeepseekV4ForCausalLM", "MuseGlimmerForConditionalGeneration",
    "Cosmos3ForConditionalGeneration", "Cosmos3EdgeForConditionalGeneration",
})  # fmt: skip
"""Source: server_args.py:335."""


@rule(
    "KV546",
    stage=Stage.RESOLVE,
    option="language_model_only",
    source=f"{HOOK}:1094",
    example=Example("--language-model-only --encoder-only --tp-size 8", model=V4, gpu="h200"),
    fragments=(
        "--language-model-only cannot be combined with",
        "--language-model-only is incompatible with --disaggregation-mode",
    ),
)
def text_only_has_no_media(r: Resolution) -> Iterator[Hit]:
    """A text-only server takes no option about media, and only V4.1 forms pairs.

    Why: the encoder is not loaded at all.
    Fix: drop one of the two.
    """
    if not r.language_model_only:
        return
    for option in EXCLUDED:
        if getattr(r, option):
            yield hit(
                f"--{option.replace('_', '-')} is about media, and none is taken", drop(option), OFF
            )
    pair = r.disaggregation_mode != "null"
    if pair and r.model.hf_config.get("model_type") != "deepseek_v41":
        yield hit(
            f"a {r.disaggregation_mode} server can't be text-only", drop("disaggregation_mode"), OFF
        )


@rule(
    "KV547",
    stage=Stage.RESOLVE,
    option="language_model_only",
    source=f"{HOOK}:1106",
    example=Example("--language-model-only"),
    fragments=("--language-model-only does not support",),
)
def text_only_model(r: Resolution) -> Iterator[Hit]:
    """Text-only serving exists for a few models.

    Why: the model's code must load without its encoder.
    Fix: drop --language-model-only.
    """
    if r.language_model_only and not ARCHITECTURES & set(r.model.architectures):
        yield hit(f"{architecture(r)} can't leave its encoder out", OFF)


LANGUAGE_MODEL_ONLY_GATES: tuple[Part, ...] = (text_only_has_no_media, text_only_model)
