"""Layer types that configuration classes work out where the file states none.

Sources are `transformers/models/*/configuration_*.py` of 5.19 and `srt/configs` of 0.5.23.
"""

from __future__ import annotations

from collections.abc import Callable

from kvtui.core.facts import MissingFact
from kvtui.core.model.hf import HfConfig

Fixup = Callable[[HfConfig], None]

FULL, SLIDING = "full_attention", "sliding_attention"


def layer_count(config: HfConfig) -> int:
    value = config.get("num_hidden_layers")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MissingFact(
            "model",
            f"config.json: num_hidden_layers should be a whole number, found {value!r:.40}",
        )
    return value


def every_nth_full(default: int | None, key: str | None = None) -> Fixup:
    """`layer_types` with one full layer in each group, where the file states none."""

    def fix(config: HfConfig) -> None:
        if config.get("layer_types") is not None:
            return
        group = config.get(key, default) if key else default
        if not isinstance(group, int) or group <= 0:
            return
        config.put(
            "layer_types",
            [SLIDING if (i + 1) % group else FULL for i in range(layer_count(config))],
        )

    return fix


def last_layer_full(config: HfConfig) -> None:
    types = config.get("layer_types")
    if isinstance(types, (list, tuple)) and types and types[-1] != "full_attention":
        config.put("layer_types", [*types[:-1], "full_attention"])


def lfm2_layers(config: HfConfig) -> None:
    if config.get("layer_types") is None:
        count = layer_count(config)
        full = config.get("full_attn_idxs")
        full = range(count) if full is None else full
        config.put("layer_types", ["full_attention" if i in full else "conv" for i in range(count)])


def llama4_layers(config: HfConfig) -> None:
    count, interval = layer_count(config), int(config.get("no_rope_layer_interval") or 4)
    marks = config.get("no_rope_layers") or [int((i + 1) % interval != 0) for i in range(count)]
    config.put("no_rope_layers", marks)
    if config.get("layer_types") is None:
        config.put(
            "layer_types", ["chunked_attention" if mark else "full_attention" for mark in marks]
        )


def granite_layers(config: HfConfig) -> None:
    """The engine's own names, with attention in every sixth layer where none is stated."""
    types = config.get("layer_types")
    if types is None:
        types = ["mamba" if (i + 1) % 6 else "attention" for i in range(layer_count(config))]
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    config.put("layer_types", [names.get(kind, kind) for kind in types])


def first_of_four_full(config: HfConfig) -> None:
    """Every fourth layer attends in full, beginning with the first."""
    if config.get("layer_types") is None:
        count = layer_count(config)
        config.put("layer_types", [SLIDING if i % 4 else FULL for i in range(count)])


def all_full(config: HfConfig) -> None:
    """Every layer attends in full."""
    if not config.get("layer_types"):
        config.put("layer_types", [FULL] * layer_count(config))


def laguna_layers(config: HfConfig) -> None:
    """Laguna's shapes: the first full layer's heads stand for all."""
    all_full(config)
    types, heads = config.layer_types, config.get("num_attention_heads_per_layer")
    if heads:
        config.put("num_attention_heads", heads[types.index(FULL) if FULL in types else 0])
    config.put("swa_num_key_value_heads", config.get("num_key_value_heads"))
    config.put("swa_head_dim", config.get("head_dim"))
    config.put("swa_v_head_dim", config.get("head_dim"))


def iquest_layers(config: HfConfig) -> None:
    """IQuest Q1's schedule: a few full layers around repeated blocks of four."""
    count = layer_count(config)
    if not (config.get("use_hybrid_layers", True) and config.get("use_sliding_window", True)):
        config.put("layer_types", [FULL] * count)
        return
    block = config.get("hybrid_layers_types_block") or [FULL, SLIDING, SLIDING, SLIDING]
    first = config.get("first_layers_types") or [FULL]
    last = config.get("last_layers_types") or [FULL, FULL, FULL]
    blocks = int(config.get("num_hybrid_layers_block", 21))
    config.put("layer_types", [*first, *(list(block) * blocks), *last])


def window_by_types(config: HfConfig) -> None:
    """Classes that call themselves hybrid where any layer has a window."""
    types = config.get("layer_types") or ()
    config.put("is_hybrid_swa", SLIDING in types)


def spark_layers(config: HfConfig) -> None:
    """Spark 2.5: one full layer in four, and marks that follow from it."""
    every_nth_full(4)(config)
    types = config.get("layer_types")[: layer_count(config)]
    config.put("layer_types", types)
    config.put("hybrid_layer_pattern", [int(kind == SLIDING) for kind in types])
    window_by_types(config)


def glm5_next_layers(config: HfConfig) -> None:
    """The linear-attention table of GLM 5 Next, numbered from zero."""
    if config.get("linear_attn_config") is not None:
        return
    count, types = layer_count(config), config.get("layer_types")
    if types is None:
        linear = [i for i in range(count) if i % 4 != 3]
    else:
        linear = [i for i, kind in enumerate(types) if kind == "linear_attention"]
    config.put(
        "linear_attn_config",
        {
            "kda_layers": linear,
            "full_attn_layers": [i for i in range(count) if i not in linear],
            "head_dim": config.get("linear_head_dim", 128),
            "num_heads": config.get("linear_num_heads"),
            "short_conv_kernel_size": config.get("linear_conv_kernel_dim", 4),
        },
    )


def hrm_layers(config: HfConfig) -> None:
    """HRM-Text runs each stack several times; the file states one stack's layers."""
    if config.get("num_layers_per_stack") is None:
        count = layer_count(config)
        cycles = int(config.get("H_cycles", 2)) * (int(config.get("L_cycles", 3)) + 1)
        config.put("num_layers_per_stack", count)
        config.put("num_hidden_layers", count * cycles)
