"""Encoder disaggregation, and the network devices of Mooncake transfer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from kvtui.core.derived import architecture, whole
from kvtui.core.findings import Change, Fix, Severity, Stage, Value, drop
from kvtui.core.resolution import Example, Hit, Part, Resolution, hit, rule, step
from kvtui.core.steps.pd_language_only import LANGUAGE_MODEL_ONLY_GATES

HOOK = "arg_groups/pd_disaggregation_hook.py"
VL = "Qwen/Qwen3-VL-8B-Instruct"

ARCHITECTURES = frozenset({
    "Qwen2VLForConditionalGeneration", "Qwen3VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
    "InternS2PreviewForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration",
    "Qwen2AudioForConditionalGeneration", "Qwen2_5OmniForConditionalGeneration",
    "Dots3NoteForCausalLM", "KimiVLForConditionalGeneration", "KimiK25ForConditionalGeneration",
    "KimiK3ForConditionalGeneration", "MiMoV2ForCausalLM", "Glm5NextForConditionalGeneration",
    "MiniMaxM3SparseForConditionalGeneration", "MuseSparkForConditionalGeneration",
})  # fmt: skip
"""Models whose encoder runs apart. Source: pd_disaggregation_hook.py:348-367."""


@rule(
    "KV540",
    stage=Stage.RESOLVE,
    option="encoder_only",
    source=f"{HOOK}:306",
    example=Example("--encoder-only --language-only", model=VL),
    fragments=(
        "Cannot set --encoder-only and --language-only together",
        "Cannot set --encoder-only and --disaggregation-mode",
    ),
)
def encoder_alone(r: Resolution) -> Iterator[Hit]:
    """An encoder server does nothing but encode.

    Why: it holds no language model, so it can be neither the language side nor a side of a
    prefill/decode pair.
    Fix: drop one of the two.
    """
    if not r.encoder_only:
        return
    if r.language_only:
        yield hit(
            "a server is either the encoder or the language side",
            drop("language_only"),
            drop("encoder_only"),
        )
    if r.disaggregation_mode != "null":
        yield hit(
            f"an encoder server can't be a {r.disaggregation_mode} server",
            drop("disaggregation_mode"),
            drop("encoder_only"),
        )


@rule(
    "KV541",
    stage=Stage.RESOLVE,
    option="enable_prefix_mm_cache",
    source=f"{HOOK}:302",
    example=Example("--enable-prefix-mm-cache", model=VL),
    fragments=("--enable-prefix-mm-cache requires --encoder-only",),
)
def mm_cache_is_for_encoders(r: Resolution) -> Iterator[Hit]:
    """The prefix cache of media belongs to encoder servers.

    Why: it keeps encoded media, which only a separate encoder hands out.
    Fix: drop it, or make this an encoder server.
    """
    if r.enable_prefix_mm_cache and not r.encoder_only:
        yield hit(
            "it caches encoded media of an encoder server, and this is none",
            drop("enable_prefix_mm_cache"),
        )


def _uses_ib(r: Resolution) -> bool:
    pair = r.disaggregation_mode in ("prefill", "decode")
    mooncake = r.disaggregation_transfer_backend == "mooncake" and pair
    return bool(mooncake or r.encoder_transfer_backend == "mooncake")


def _group_complaint(names: Any, where: str) -> str | None:
    if not isinstance(names, str):
        return f"the devices of {where} are {names!r}; they must be text"
    return None if any(name.strip() for name in names.split(",")) else f"{where} has no device"


@lru_cache(maxsize=64)
def _ib_complaint(text: str) -> str | None:
    stripped = text.strip()
    if not stripped:
        return "no device is named"
    if not stripped.startswith("{"):
        return None if stripped.endswith(".json") else _group_complaint(stripped, "all GPUs")
    try:
        groups = json.loads(stripped)
    except ValueError as error:
        return f"the mapping of GPUs to devices is no JSON: {error}"
    if not isinstance(groups, dict) or not groups:
        return "the mapping of GPUs to devices is empty"
    if not all(gpu.isdigit() for gpu in groups):
        return "the mapping's keys must be GPU numbers"
    found = (_group_complaint(names, f"GPU {gpu}") for gpu, names in groups.items())
    return next((complaint for complaint in found if complaint), None)


def ib_complaint(devices: Value) -> str | None:
    """What is wrong with the text that names InfiniBand devices; None where it can be read."""
    return _ib_complaint(devices) if isinstance(devices, str) else f"it is {devices!r}, not text"


@rule(
    "KV542",
    stage=Stage.RESOLVE,
    option="disaggregation_ib_device",
    source="arg_groups/validation_hook.py:489",
    example=Example("--disaggregation-mode decode --disaggregation-ib-device ,"),
    fragments=("No valid IB devices specified", "No valid GPU mappings found in IB device JSON"),
)
def ib_devices_are_named(r: Resolution) -> Iterator[Hit]:
    """InfiniBand devices are names, or a mapping of GPUs to names.

    Why: Mooncake opens each named device.
    Fix: mlx5_0,mlx5_1 or '{"0": "mlx5_0"}', or drop it for automatic discovery.
    """
    devices = r.disaggregation_ib_device
    if _uses_ib(r) and devices is not None and (found := ib_complaint(devices)):
        yield hit(found, drop("disaggregation_ib_device", title="let Mooncake find the devices"))


@rule(
    "KV543",
    stage=Stage.RESOLVE,
    option="disaggregation_ib_device",
    source="arg_groups/validation_hook.py:536",
    severity=Severity.NOTE,
    example=Example("--disaggregation-mode decode --disaggregation-ib-device mlx5_0"),
    fragments=("InfiniBand sysfs path not found", "Invalid IB devices specified"),
)
def ib_devices_must_exist(r: Resolution) -> Iterator[Hit]:
    """Named InfiniBand devices must exist on the launch machine.

    Why: the engine compares them with /sys/class/infiniband before it starts; here they are not
    looked up.
    Fix: name devices that `ls /sys/class/infiniband` shows, or drop the option.
    """
    devices = r.disaggregation_ib_device
    if _uses_ib(r) and devices is not None and ib_complaint(devices) is None:
        yield hit(
            f"the launch stops unless the machine has the InfiniBand devices {devices}",
            drop("disaggregation_ib_device", title="let Mooncake find the devices"),
        )


@step("server_args.py:571")
def choose_encoder_transfer(r: Resolution) -> None:
    """Pick the way from encoder to language side."""
    if r.encoder_transfer_backend != "auto":
        return
    kimi = architecture(r) == "KimiK3ForConditionalGeneration" and whole(r.tp_size, 1) > 1
    r.default(
        "Kimi-K3 over several ranks sends to the tokenizer" if kimi else "the engine's own way",
        encoder_transfer_backend="zmq_to_tokenizer" if kimi else "zmq_to_scheduler",
    )


@rule(
    "KV544",
    stage=Stage.RESOLVE,
    option="encoder_only",
    source=f"{HOOK}:369",
    example=Example("--language-only"),
    fragments=("is not supported for encoder disaggregation",),
)
def encoder_model(r: Resolution) -> Iterator[Hit]:
    """Only some multimodal models run their encoder apart.

    Why: the model's code must take encoded media from outside.
    Fix: drop --encoder-only or --language-only.
    """
    if (r.encoder_only or r.language_only) and architecture(r) not in ARCHITECTURES:
        option = "encoder_only" if r.encoder_only else "language_only"
        yield hit(
            f"{architecture(r)} can't take encoded media from another server",
            Fix("serve the whole model", (Change("encoder_only"), Change("language_only"))),
            option=option,
        )


@rule(
    "KV545",
    stage=Stage.RESOLVE,
    option="enable_adaptive_dispatch_to_encoder",
    source=f"{HOOK}:382",
    example=Example(
        "--language-only --enable-adaptive-dispatch-to-encoder --json-model-override-args "
        '\'{"architectures": ["MuseSparkForConditionalGeneration"]}\'',
        model=VL,
    ),
    fragments=("Muse language-only servers do not load local encoders",),
)
def muse_has_no_local_encoder(r: Resolution) -> Iterator[Hit]:
    """Muse's language side has no encoder of its own to fall back to.

    Why: adaptive dispatch encodes small media locally.
    Fix: drop --enable-adaptive-dispatch-to-encoder.
    """
    if not (r.language_only and r.enable_adaptive_dispatch_to_encoder):
        return
    if architecture(r) == "MuseSparkForConditionalGeneration":
        yield hit(
            "Muse's language side loads no encoder, and adaptive dispatch needs one",
            drop("enable_adaptive_dispatch_to_encoder"),
        )


HANDLE_ENCODER_DISAGGREGATION: tuple[Part, ...] = (
    *LANGUAGE_MODEL_ONLY_GATES,
    mm_cache_is_for_encoders,
    encoder_alone,
    ib_devices_are_named,
    ib_devices_must_exist,
    choose_encoder_transfer,
    encoder_model,
    muse_has_no_local_encoder,
)
