"""Values that configuration classes work out from others, per model type.

Sources are `transformers/models/*/configuration_*.py` of 5.19 and `srt/configs` of 0.5.23.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvtui.core.facts import MissingFact
from kvtui.core.model.hf import HfConfig

Fixup = Callable[[HfConfig], None]

NEMOTRON_H_MARKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
NEMOTRON_H_KINDS = {kind: mark for mark, kind in NEMOTRON_H_MARKS.items()}
NEMOTRON_H_DEFAULT = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"


def _count(config: HfConfig) -> int:
    value = config.get("num_hidden_layers")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MissingFact(
            "model",
            f"config.json: num_hidden_layers should be a whole number, found {value!r:.40}",
        )
    return value


def _window_switch(off: int | None) -> Fixup:
    """A window that counts only where `use_sliding_window` is set."""

    def fix(config: HfConfig) -> None:
        if not config.get("use_sliding_window", False):
            config.put("sliding_window", off)

    return fix


def _no_window(config: HfConfig) -> None:
    config.put("sliding_window", None)


def _two_sided_window(when: str | bool) -> Fixup:
    """Half the window, plus one, where attention looks both ways."""

    def fix(config: HfConfig) -> None:
        flag = config.get("use_bidirectional_attention", False)
        if (flag == when if isinstance(when, str) else bool(flag)) and config.get("sliding_window"):
            config.put("sliding_window", config.sliding_window // 2 + 1)

    return fix


def _every_nth_full(default: int | None, key: str | None = None) -> Fixup:
    """`layer_types` with one full layer in each group, where the file states none."""

    def fix(config: HfConfig) -> None:
        if config.get("layer_types") is not None:
            return
        group = config.get(key, default) if key else default
        if not isinstance(group, int) or group <= 0:
            return
        config.put(
            "layer_types",
            [
                "sliding_attention" if (i + 1) % group else "full_attention"
                for i in range(_count(config))
            ],
        )

    return fix


def _last_layer_full(config: HfConfig) -> None:
    types = config.get("layer_types")
    if isinstance(types, (list, tuple)) and types and types[-1] != "full_attention":
        config.put("layer_types", [*types[:-1], "full_attention"])


def _lfm2_layers(config: HfConfig) -> None:
    if config.get("layer_types") is None:
        count = _count(config)
        full = config.get("full_attn_idxs")
        full = range(count) if full is None else full
        config.put("layer_types", ["full_attention" if i in full else "conv" for i in range(count)])


def _llama4_layers(config: HfConfig) -> None:
    count, interval = _count(config), int(config.get("no_rope_layer_interval") or 4)
    marks = config.get("no_rope_layers") or [int((i + 1) % interval != 0) for i in range(count)]
    config.put("no_rope_layers", marks)
    if config.get("layer_types") is None:
        config.put(
            "layer_types", ["chunked_attention" if mark else "full_attention" for mark in marks]
        )


def _granite_layers(config: HfConfig) -> None:
    """Mamba layers, and full attention on the eleventh of each group where none is stated."""
    types = config.get("layer_types")
    if types is None:
        return
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    config.put("layer_types", [names.get(kind, kind) for kind in types])


def _nemotron_kinds(config: HfConfig, key: str, pattern_key: str) -> list[Any] | None:
    kinds = config.get(key)
    pattern = config.get(pattern_key)
    if kinds is None and isinstance(pattern, str):
        kinds = [NEMOTRON_H_MARKS.get(mark) for mark in pattern]
    return kinds if isinstance(kinds, list) else None


def _nemotron_h(config: HfConfig) -> None:
    """One list of layer kinds, whichever spelling the file has; the layer count follows it."""
    kinds = _nemotron_kinds(config, "layers_block_type", "hybrid_override_pattern")
    if kinds is None:
        kinds = [NEMOTRON_H_MARKS[mark] for mark in NEMOTRON_H_DEFAULT]
    bad = [kind for kind in kinds if kind not in NEMOTRON_H_KINDS]
    if bad:
        raise MissingFact(
            "model", f"config.json: layers_block_type has the unknown kind {bad[0]!r}"
        )
    config.put("layers_block_type", kinds)
    config.put("hybrid_override_pattern", "".join(NEMOTRON_H_KINDS[kind] for kind in kinds))
    config.put("num_hidden_layers", len(kinds))
    mtp = _nemotron_kinds(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    mtp = mtp or ["attention", "moe"]
    config.put("mtp_layers_block_type", mtp)
    config.put(
        "mtp_hybrid_override_pattern", "".join(NEMOTRON_H_KINDS.get(kind, "") for kind in mtp)
    )
    chunk = config.get("chunk_size")
    if chunk is not None:
        config.put("mamba_chunk_size", chunk)


def _gemma4_attention(config: HfConfig) -> None:
    """The engine's flat shapes: the base is full attention, `swa_*` the sliding layers."""
    text = config.get("text_config")
    if not isinstance(text, HfConfig):
        return
    swa_dim, swa_heads = text.get("head_dim", 256), text.get("num_key_value_heads")
    full_dim = text.get("global_head_dim")
    full_dim = 512 if full_dim is None else full_dim
    wide = text.get("num_global_key_value_heads") if text.get("attention_k_eq_v", True) else None
    full_heads = swa_heads if wide is None else wide
    if "sliding_attention" not in (text.get("layer_types") or ()):
        swa_dim, swa_heads = full_dim, full_heads
    text.put("head_dim", full_dim)
    text.put("num_key_value_heads", full_heads)
    text.put("swa_head_dim", swa_dim)
    text.put("swa_v_head_dim", swa_dim)
    text.put("swa_num_key_value_heads", swa_heads)
    text.fill("v_head_dim", full_dim)


def _inkling_heads(config: HfConfig) -> None:
    """The draft head's depths, which the checkpoint states beside the text part."""
    text, mtp = config.get("text_config"), config.get("mtp_config")
    if not isinstance(text, HfConfig) or not isinstance(mtp, Mapping):
        return
    if "n_layers" in mtp:
        text.put("num_nextn_predict_layers", mtp["n_layers"])
    if mtp.get("local_layer_ids"):
        text.put("mtp_local_layer_ids", list(mtp["local_layer_ids"]))
        if mtp.get("local_extent") is not None:
            text.put("mtp_local_extent", mtp["local_extent"])


def _rope_part_head(config: HfConfig) -> None:
    """MLA classes that call the rotary slice the head."""
    if config.get("qk_rope_head_dim") is not None:
        config.put("head_dim", config.qk_rope_head_dim)


def _glm_indexers(config: HfConfig) -> None:
    """Which layers compute their own top-k, where the file does not say."""
    if config.get("indexer_types") is not None:
        return
    pattern = config.get("index_topk_pattern")
    if isinstance(pattern, str):
        names = {"F": "full", "S": "shared"}
        config.put("indexer_types", [names.get(mark, "full") for mark in pattern])
        return
    freq = max(int(config.get("index_topk_freq") or 1), 1)
    offset = int(config.get("index_skip_topk_offset", 2) or 0)
    config.put(
        "indexer_types",
        ["shared" if max(i - offset + 1, 0) % freq else "full" for i in range(_count(config))],
    )


def _kimi_linear(config: HfConfig) -> None:
    config.put("n_routed_experts", config.get("num_experts"))
    if config.get("head_dim") is None:
        config.put("head_dim", config.hidden_size // config.num_attention_heads)
    if config.get("num_key_value_heads") is None:
        config.put("num_key_value_heads", config.num_attention_heads)


def _sizes_of_text(config: HfConfig) -> None:
    """Wrapper classes whose sizes are those of their language part."""
    text = config.get("text_config")
    for key in ("hidden_size", "vocab_size"):
        if isinstance(text, HfConfig) and key in text:
            config.put(key, text.get(key))


def _no_layer_types(config: HfConfig) -> None:
    """Classes that take `layer_types` and keep none: the interval alone counts."""
    config.drop("layer_types")


def _quant_from_text(config: HfConfig) -> None:
    text = config.get("text_config")
    if isinstance(text, HfConfig) and text.get("quantization_config") is not None:
        config.put("quantization_config", text.quantization_config)


_GEMMA4_TEXT: tuple[Fixup, ...] = (
    _two_sided_window("all"),
    _every_nth_full(6),
    _last_layer_full,
)

def _sizes_of_llm(config: HfConfig) -> None:
    llm = config.get("llm_config")
    if isinstance(llm, HfConfig) and "hidden_size" in llm:
        config.put("hidden_size", llm.hidden_size)


FIXUPS: Mapping[str, tuple[Fixup, ...]] = {
    "qwen2": (_window_switch(None),),
    "qwen3": (_window_switch(None),),
    "qwen3_moe": (_window_switch(None),),
    "qwen2_moe": (_window_switch(0),),
    "qwen2_vl_text": (_window_switch(None),),
    "qwen2_5_vl_text": (_window_switch(None),),
    "qwen2_5_omni_text": (_window_switch(None),),
    "qwen2_5_omni_talker": (_window_switch(None),),
    "qwen3_vl_moe_text": (_no_window,),
    "gemma2": (_every_nth_full(2),),
    "gemma3_text": (_two_sided_window(True), _every_nth_full(6, "sliding_window_pattern")),
    "gemma3n_text": (_every_nth_full(5),),
    "gemma4_text": _GEMMA4_TEXT,
    "gemma4_unified_text": _GEMMA4_TEXT,
    "diffusion_gemma_text": _GEMMA4_TEXT,
    "embedding_gemma2_text": _GEMMA4_TEXT,
    "gemma4": (_gemma4_attention,),
    "gemma4_assistant": (_gemma4_attention,),
    "gemma4_unified": (_gemma4_attention,),
    "gemma4_unified_assistant": (_gemma4_attention,),
    "diffusion_gemma": (_gemma4_attention,),
    "embedding_gemma2": (_gemma4_attention,),
    "gpt_oss": (_every_nth_full(2),),
    "cohere2": (_every_nth_full(4, "sliding_window_pattern"),),
    "olmo3": (_every_nth_full(4),),
    "llama4_text": (_llama4_layers,),
    "lfm2": (_lfm2_layers,),
    "lfm2_moe": (_lfm2_layers,),
    "granitemoehybrid": (_granite_layers,),
    "nemotron_h": (_nemotron_h,),
    "nemotron_h_puzzle": (_nemotron_h,),
    "inkling_mm_model": (_inkling_heads,),
    "deepseek_v2": (_rope_part_head,),
    "deepseek_v3": (_rope_part_head,),
    "deepseek_v32": (_rope_part_head,),
    "kimi_k2": (_rope_part_head,),
    "glm_moe_dsa": (_rope_part_head, _glm_indexers),
    "minicpm3": (_rope_part_head,),
    "kimi_linear": (_kimi_linear,),
    "internvl_chat": (_sizes_of_llm,),
    "kimi_k25": (_sizes_of_text,),
    "kimi_k3": (_sizes_of_text, _quant_from_text),
    "glm5_next": (_quant_from_text,),
    "qwen3_next": (_no_layer_types,),
    "qwen3_5_text": (_no_layer_types,),
    "qwen3_5_moe_text": (_no_layer_types,),
}
"""Model type -> what its class does after defaults are in, in order."""
