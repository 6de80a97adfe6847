"""Values that configuration classes work out from others, per model type.

Sources are `transformers/models/*/configuration_*.py` of 5.19 and `srt/configs` of 0.5.23.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvtui.core.facts import MissingFact
from kvtui.core.model import layer_fixups as layers
from kvtui.core.model.hf import HfConfig
from kvtui.core.model.layer_fixups import layer_count

Fixup = Callable[[HfConfig], None]

LAYERED_TEXTS = frozenset(
    {"gemma4_text", "gemma4_unified_text", "diffusion_gemma_text", "embedding_gemma2_text"}
)
"""Text parts whose full-attention layers are wider than their sliding ones."""
NEMOTRON_H_MARKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
NEMOTRON_H_KINDS = {kind: mark for mark, kind in NEMOTRON_H_MARKS.items()}
NEMOTRON_H_DEFAULT = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"


def _window_switch(off: int | None) -> Fixup:
    """A window that counts only where `use_sliding_window` is set."""

    def fix(config: HfConfig) -> None:
        if not config.get("use_sliding_window", False):
            config.put("sliding_window", off)

    return fix


def _no_window(config: HfConfig) -> None:
    config.fill("sliding_window", None)


def _two_sided_window(when: str | bool) -> Fixup:
    """Half the window, plus one, where attention looks both ways."""

    def fix(config: HfConfig) -> None:
        flag = config.get("use_bidirectional_attention", False)
        if (flag == when if isinstance(when, str) else bool(flag)) and config.get("sliding_window"):
            config.put("sliding_window", config.sliding_window // 2 + 1)

    return fix


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


def _layer_shape(text: HfConfig, kind: str) -> tuple[Any, Any]:
    """Head width and KV heads of a kind of layer, where the file states layers one by one."""
    per_layer = text.get("per_layer_config")
    types = text.get("layer_types") or ()
    index = next((i for i, one in enumerate(types) if one == kind), None)
    stated: Any = {}
    if isinstance(per_layer, Mapping):
        rows = {str(key): row for key, row in per_layer.items()}
        stated = rows.get(str(index))
    stated = stated if isinstance(stated, Mapping) else {}
    dim, heads = text.get("head_dim", 256), text.get("num_key_value_heads")
    return stated.get("head_dim", dim), stated.get("num_key_value_heads", heads)


def _gemma4_attention(config: HfConfig) -> None:
    """The engine's flat shapes: the base is full attention, `swa_*` the sliding layers."""
    text = config.get("text_config")
    if not isinstance(text, HfConfig):
        return
    swa_dim, swa_heads = text.get("head_dim", 256), text.get("num_key_value_heads")
    if "per_layer_config" in text:
        full_dim, full_heads = _layer_shape(text, "full_attention")
        swa_dim, swa_heads = _layer_shape(text, "sliding_attention")
    else:
        full_dim = text.get("global_head_dim")
        full_dim = 512 if full_dim is None else full_dim
        wide = text.get("attention_k_eq_v", True) and text.get("num_global_key_value_heads")
        full_heads = wide or swa_heads
    if "sliding_attention" not in (text.get("layer_types") or ()):
        swa_dim, swa_heads = full_dim, full_heads
    text.put("head_dim", full_dim)
    text.put("num_key_value_heads", full_heads)
    text.put("swa_head_dim", swa_dim)
    text.put("swa_v_head_dim", swa_dim)
    text.put("swa_num_key_value_heads", swa_heads)
    text.fill("v_head_dim", full_dim)


def layers_differ(config: HfConfig) -> bool:
    """True for a text model on its own whose kinds of layer have other shapes, where the engine
    takes the split apart only inside the whole model's configuration.
    """
    if config.get("model_type") not in LAYERED_TEXTS:
        return False
    base = config.get("head_dim", 256), config.get("num_key_value_heads")
    if "per_layer_config" in config:
        kinds = set(config.get("layer_types") or ())
        return any(_layer_shape(config, kind) != base for kind in kinds)
    wide = config.get("attention_k_eq_v", True) and config.get("num_global_key_value_heads")
    full = config.get("global_head_dim", 512), wide or base[1]
    return full != base


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
    """MLA classes that call the rotary slice the head, whatever the file says."""
    if config.get("qk_rope_head_dim") is not None:
        config.put("head_dim", config.qk_rope_head_dim)


def _rope_part_head_unless_stated(config: HfConfig) -> None:
    """MLA classes that call the rotary slice the head where the file names no other."""
    if config.get("head_dim") is None:
        _rope_part_head(config)


def _minicpm3(config: HfConfig) -> None:
    config.put("head_dim", config.get("qk_rope_head_dim"))
    if config.get("v_head_dim") is None:
        config.put("v_head_dim", config.hidden_size // config.num_attention_heads)


def _mamba_inner(config: HfConfig) -> None:
    """Inner channels of a pure Mamba model, a multiple of its hidden size."""
    if config.get("intermediate_size") is None:
        config.put("intermediate_size", int(config.get("expand", 2) * config.hidden_size))


def _inkling(config: HfConfig) -> None:
    """Sliding layers of Inkling have the full layers' shape where none is stated."""
    if config.get("head_dim") is None:
        config.put("head_dim", config.hidden_size // config.num_attention_heads)
    for own, base in (
        ("v_head_dim", "head_dim"),
        ("swa_num_key_value_heads", "num_key_value_heads"),
        ("swa_head_dim", "head_dim"),
        ("swa_v_head_dim", "swa_head_dim"),
    ):
        if config.get(own) is None:
            config.put(own, config.get(base))
    if config.get("local_layer_ids") is None:
        config.put("local_layer_ids", [])


def _video_rope(config: HfConfig) -> None:
    """Bailing V3 VL turns the language part's rope over time and space."""
    text = config.get("text_config")
    if isinstance(text, HfConfig):
        rope = dict(text.get("rope_parameters") or text.get("rope_scaling") or {})
        sections = config.get("mrope_section") or rope.get("mrope_section", [8, 12, 12])
        rope.update(rope_type="default", mrope_section=sections)
        text.put("rope_scaling", rope)
        text.put("rope_parameters", rope)


def _one_kv_head(config: HfConfig) -> None:
    if config.get("attn_config") is None:
        config.put("attn_config", {"kv_n_heads": 1})


def _one_global_kv_head(config: HfConfig) -> None:
    config.fill("num_key_value_heads", 2)
    config.fill("num_global_key_value_heads", 1)


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
        ["shared" if max(i - offset + 1, 0) % freq else "full" for i in range(layer_count(config))],
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
    layers.every_nth_full(6),
    layers.last_layer_full,
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
    "gemma2": (layers.every_nth_full(2),),
    "gemma3_text": (_two_sided_window(True), layers.every_nth_full(6, "sliding_window_pattern")),
    "gemma3n_text": (layers.every_nth_full(5),),
    "gemma4_text": _GEMMA4_TEXT,
    "gemma4_unified_text": _GEMMA4_TEXT,
    "diffusion_gemma_text": _GEMMA4_TEXT,
    "embedding_gemma2_text": (*_GEMMA4_TEXT, _one_global_kv_head),
    "gemma4": (_gemma4_attention,),
    "gemma4_assistant": (_gemma4_attention,),
    "gemma4_unified": (_gemma4_attention,),
    "gemma4_unified_assistant": (_gemma4_attention,),
    "diffusion_gemma": (_gemma4_attention,),
    "embedding_gemma2": (_gemma4_attention,),
    "gpt_oss": (layers.every_nth_full(2),),
    "cohere2": (layers.every_nth_full(4, "sliding_window_pattern"),),
    "olmo3": (layers.every_nth_full(4),),
    "llama4_text": (layers.llama4_layers,),
    "lfm2": (layers.lfm2_layers,),
    "lfm2_moe": (layers.lfm2_layers,),
    "granitemoehybrid": (layers.granite_layers,),
    "nemotron_h": (_nemotron_h,),
    "nemotron_h_puzzle": (_nemotron_h,),
    "inkling_mm_model": (_inkling_heads,),
    "bailing_moe_v3_vl": (_video_rope,),
    "beam": (layers.every_nth_full(6), layers.last_layer_full),
    "dbrx": (_one_kv_head,),
    "deepseek_v2": (_rope_part_head,),
    "deepseek_v3": (_rope_part_head_unless_stated,),
    "deepseek_v32": (_rope_part_head_unless_stated,),
    "kimi_k2": (_rope_part_head_unless_stated,),
    "falcon_mamba": (_mamba_inner,),
    "mamba": (_mamba_inner,),
    "mamba2": (_mamba_inner,),
    "glm5_next_text": (layers.glm5_next_layers,),
    "granite_swa": (layers.first_of_four_full,),
    "granitemoe_swa": (layers.first_of_four_full,),
    "hrm_text": (layers.hrm_layers,),
    "inkling_model": (_inkling,),
    "iquest_q1": (layers.iquest_layers,),
    "laguna": (layers.laguna_layers,),
    "mellum": (layers.all_full,),
    "muse_spark_text": (layers.window_by_types,),
    "spark2_5": (layers.spark_layers,),
    "glm_moe_dsa": (_rope_part_head, _glm_indexers),
    "minicpm3": (_minicpm3,),
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
