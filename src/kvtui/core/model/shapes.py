"""Attention geometry and context length out of a configuration (`_derive_model_shapes`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvtui.core.facts import MissingFact
from kvtui.core.model import archs
from kvtui.core.model.hf import HfConfig

MLA = "MLA"
MHA = "MHA"
SSM = "SSM"

CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
"""Where a context length may stand, in the engine's order of preference (common.py:623)."""

NO_CONTEXT_STATED = 2048
MLA_HEAD_DIM = 256
KIMI_LINEAR_HEAD_DIM = 72
MINICPM3_HEAD_DIM = 128
BAILING_V3_HEAD_DIM = 128

KV_HEAD_KEYS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)


def number(config: HfConfig, key: str) -> int:
    """A whole number that the configuration must state; raises MissingFact otherwise."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        found = "nothing" if value is None else f"{value!r:.40}"
        raise MissingFact("model", f"config.json: {key} should be a whole number, found {found}")
    return int(value)


def optional_number(config: HfConfig, key: str) -> int | None:
    """A whole number, or None where the configuration has none."""
    return None if config.get(key) is None else number(config, key)


def derived_context_length(text: HfConfig) -> int:
    """Tokens that the checkpoint itself allows, with its rope scaling taken into account."""
    scaling = text.get("rope_scaling") or {}
    factor: float = 1
    if isinstance(scaling, Mapping) and not (
        "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3"
    ):
        stated = scaling.get("factor", 1)
        factor = stated if isinstance(stated, (int, float)) else 1
    for key in CONTEXT_KEYS:
        if text.get(key) is not None:
            return int(factor * number(text, key))
    return NO_CONTEXT_STATED


@dataclass(frozen=True, slots=True)
class Shapes:
    """Per-layer attention geometry as the engine names it."""

    attention_arch: str
    head_dim: int
    v_head_dim: int
    swa_head_dim: int
    swa_v_head_dim: int
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    swa_kv_lora_rank: int | None = None
    swa_qk_rope_head_dim: int | None = None
    index_head_dim: int | None = None
    compress_ratios: tuple[int, ...] | None = None
    window_size: int | None = None


def is_deepseek_dsa(config: HfConfig) -> bool:
    """True for a sparse-attention model: the architecture is one and `index_topk` is stated."""
    names: Any = config.get("architectures") or ()
    return bool(names) and names[0] in archs.DSA and config.get("index_topk") is not None


def _plain_dims(text: HfConfig, pure_ssm: bool) -> tuple[int, int, int, int]:
    """(K, V, sliding K, sliding V) row widths, written back where the file states none."""
    head = optional_number(text, "head_dim")
    if head is None:
        head = (
            0
            if pure_ssm
            else number(text, "hidden_size") // max(1, number(text, "num_attention_heads"))
        )
    v_head = optional_number(text, "v_head_dim") or head
    swa = optional_number(text, "swa_head_dim")
    swa = head if swa is None else swa
    swa_v = optional_number(text, "swa_v_head_dim")
    swa_v = swa if swa_v is None else swa_v
    if not pure_ssm:
        text.put("head_dim", head)
    text.put("v_head_dim", v_head)
    text.put("swa_head_dim", swa)
    text.put("swa_v_head_dim", swa_v)
    return head, v_head, swa, swa_v


def _deepseek_mla(text: HfConfig, swa: tuple[int, int]) -> Shapes:
    rank, rope = number(text, "kv_lora_rank"), number(text, "qk_rope_head_dim")
    dots = text.get("model_type") == "dots3"
    return Shapes(
        MLA,
        MLA_HEAD_DIM,
        number(text, "v_head_dim"),
        *swa,
        kv_lora_rank=rank,
        qk_nope_head_dim=number(text, "qk_nope_head_dim"),
        qk_rope_head_dim=rope,
        swa_kv_lora_rank=number(text, "swa_kv_lora_rank") if dots else rank,
        swa_qk_rope_head_dim=number(text, "swa_qk_rope_head_dim") if dots else rope,
        index_head_dim=number(text, "index_head_dim") if is_deepseek_dsa(text) else None,
    )


def _mla(text: HfConfig, head_dim: int, v_head: int, swa: tuple[int, int]) -> Shapes:
    return Shapes(
        MLA,
        head_dim,
        v_head,
        *swa,
        kv_lora_rank=number(text, "kv_lora_rank"),
        qk_nope_head_dim=optional_number(text, "qk_nope_head_dim"),
        qk_rope_head_dim=number(text, "qk_rope_head_dim"),
    )


def _deepseek_v4(config: HfConfig, swa: tuple[int, int]) -> Shapes:
    head, rope = number(config, "head_dim"), number(config, "qk_rope_head_dim")
    ratios = config.get("compress_ratios")
    if not isinstance(ratios, (list, tuple)):
        raise MissingFact("model", "config.json: compress_ratios should list one ratio a layer")
    return Shapes(
        MHA,
        head,
        head,
        *swa,
        qk_nope_head_dim=head - rope,
        qk_rope_head_dim=rope,
        index_head_dim=number(config, "index_head_dim"),
        compress_ratios=tuple(ratios),
        window_size=number(config, "sliding_window"),
    )


def _is_plain_mla(names: frozenset[str], text: HfConfig) -> bool:
    pixtral = "PixtralForConditionalGeneration" in names and text.get("kv_lora_rank") is not None
    return pixtral or not names.isdisjoint(archs.MLA)


def _is_bailing_mla(names: frozenset[str], text: HfConfig) -> bool:
    draft = "BailingMoeForCausalLMNextN" in names and text.get("kv_lora_rank") is not None
    return draft or "BailingMoeV2_5ForCausalLM" in names


def _bailing_v3(text: HfConfig, swa: tuple[int, int]) -> Shapes:
    rope = 0 if text.get("use_mla_nope", False) else number(text, "qk_rope_head_dim")
    return Shapes(
        MLA,
        BAILING_V3_HEAD_DIM,
        number(text, "v_head_dim"),
        *swa,
        kv_lora_rank=number(text, "kv_lora_rank"),
        qk_nope_head_dim=number(text, "qk_nope_head_dim"),
        qk_rope_head_dim=rope,
    )


def shapes_of(config: HfConfig, text: HfConfig) -> Shapes:
    """Attention geometry of the model; raises MissingFact for a key that it must state."""
    names = frozenset(config.get("architectures") or ())
    pure_ssm = not names.isdisjoint(archs.PURE_SSM)
    head, v_head, *rest = _plain_dims(text, pure_ssm)
    swa = (rest[0], rest[1])
    if _is_plain_mla(names, text):
        return _deepseek_mla(text, swa)
    if not names.isdisjoint(archs.DEEPSEEK_V4):
        return _deepseek_v4(config, swa)
    if "Glm4MoeForCausalLMNextN" in names:
        return Shapes(MHA, head, head, swa[0], swa[0])
    if "MiniCPM3ForCausalLM" in names:
        return replace(_mla(config, MINICPM3_HEAD_DIM, v_head, swa), qk_nope_head_dim=None)
    if "DeepseekVL2ForCausalLM" in names and text.get("use_mla", True):
        return _mla(text, MLA_HEAD_DIM, v_head, swa)
    if "KimiVLForConditionalGeneration" in names:
        return _mla(text, MLA_HEAD_DIM, number(text, "v_head_dim"), swa)
    if not names.isdisjoint(archs.KIMI_K3 | {"KimiLinearForCausalLM"}):
        return _mla(text, KIMI_LINEAR_HEAD_DIM, number(text, "v_head_dim"), swa)
    if _is_bailing_mla(names, text):
        return _mla(text, number(text, "head_dim"), number(config, "v_head_dim"), swa)
    if not names.isdisjoint(archs.BAILING_V3):
        return _bailing_v3(text, swa)
    if "SarvamMLAForCausalLM" in names:
        whole = number(config, "qk_nope_head_dim") + number(config, "qk_rope_head_dim")
        return _mla(config, whole, number(config, "v_head_dim"), swa)
    return Shapes(SSM if pure_ssm else MHA, head, v_head, *swa)


def _key(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, (Mapping, HfConfig)) else None


def _nas_kv_heads(config: HfConfig) -> int:
    """KV heads of a Nemotron-NAS model; raises MissingFact where layers differ."""
    heads = number(config, "num_attention_heads")
    found = set()
    for block in config.get("block_configs") or ():
        attention = _key(block, "attention")
        group = _key(attention, "n_heads_in_group")
        if not _key(attention, "no_op") and group:
            found.add(heads // int(group))
    if len(found) != 1:
        raise MissingFact("model", "config.json: block_configs must give one KV head count")
    return found.pop()


def total_kv_heads(config: HfConfig, text: HfConfig, attention_arch: str) -> int:
    """KV heads of the whole model, before any split over ranks."""
    kind = config.get("model_type")
    falcon = kind in ("falcon", "RefinedWeb", "RefinedWebModel")
    if text.get("multi_query", False) and not (
        falcon and config.get("new_decoder_architecture", False)
    ):
        return 1
    if kind in ("mpt", "dbrx"):
        stated = _key(config.get("attn_config"), "kv_n_heads")
        return int(stated) if stated is not None else number(config, "num_attention_heads")
    if kind == "nemotron-nas":
        return _nas_kv_heads(config)
    for key in KV_HEAD_KEYS:
        if text.get(key) is not None:
            return number(text, key)
    return 0 if attention_arch == SSM else number(text, "num_attention_heads")


def attention_layer_count(config: HfConfig, text: HfConfig, layers: int) -> int:
    """Attention calls a forward pass, where a layer may hold more than one."""
    names = frozenset(config.get("architectures") or ())
    if "LongcatFlashForCausalLM" in names:
        return layers * 2
    if "IQuestLoopCoderForCausalLM" in names:
        return layers * int(text.get("loop_num", 1))
    if "NanbeigeForCausalLM" in names:
        return layers * int(text.get("num_loops", 1))
    if "WhisperForConditionalGeneration" in names:
        return int(text.get("encoder_layers", 0)) + 2 * int(text.get("decoder_layers", layers))
    return layers


def window_split(
    config: HfConfig, text: HfConfig
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """(sliding, full) layer ids of a hybrid-SWA model; (None, None) where it states none."""
    names = frozenset(config.get("architectures") or ())
    count = number(text, "num_hidden_layers")
    every = range(count)
    if "Llama4ForConditionalGeneration" in names:
        return _split(every, lambda i: (i + 1) % 4 != 0)
    if not names.isdisjoint(archs.SWA_BY_LAYER_TYPES):
        return _by_types(text.get("layer_types") or ())
    if not names.isdisjoint(archs.MIMO_V2):
        return _by_pattern(text, every)
    if not names.isdisjoint({"MiMoV2MTP", "Step3p5MTP"}):
        return (0,), ()
    if not names.isdisjoint({"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"}):
        return _by_types((text.get("layer_types") or ())[:count])
    if "InklingForConditionalGenerationMTP" in names:
        local = frozenset(text.get("mtp_local_layer_ids") or ())
        depths = range(int(text.get("num_nextn_predict_layers") or 0))
        return tuple(sorted(local)), tuple(i for i in depths if i not in local)
    if "InklingForConditionalGeneration" in names:
        local = frozenset(text.get("local_layer_ids") or ())
        return _split(every, lambda i: i in local)
    if "UnlimitedOCRForCausalLM" in names:
        return tuple(every), ()
    if text.get("hybrid_layer_pattern") is not None:
        return _by_pattern(text, every)
    return None, None


def _split(every: range, sliding: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(i for i in every if sliding(i)), tuple(i for i in every if not sliding(i))


def _by_types(types: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (
        tuple(i for i, kind in enumerate(types) if kind == "sliding_attention"),
        tuple(i for i, kind in enumerate(types) if kind == "full_attention"),
    )


def _by_pattern(text: HfConfig, every: range) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pattern = text.get("hybrid_layer_pattern")
    if not isinstance(pattern, (list, tuple)) or len(pattern) < len(every):
        raise MissingFact("model", "config.json: hybrid_layer_pattern should have one mark a layer")
    return (
        tuple(i for i in every if pattern[i] == 1),
        tuple(i for i in every if pattern[i] == 0),
    )


def is_hybrid_swa(config: HfConfig, text: HfConfig) -> bool:
    """Whether the model has a sliding-window pool beside the full one, options aside."""
    names = frozenset(config.get("architectures") or ())
    if names.isdisjoint(archs.HYBRID_SWA):
        return bool(text.get("is_hybrid_swa", False))
    if "BeamForCausalLM" in names:
        return "sliding_attention" in (text.get("layer_types") or ())
    return not ("LagunaForCausalLM" in names and not text.get("sliding_window", 0))


def has_attention_sinks(config: HfConfig, text: HfConfig) -> bool:
    """Whether learned sinks take part in the softmax."""
    names = frozenset(config.get("architectures") or ())
    if not names.isdisjoint(archs.SWA_SINKS):
        return True
    if not names.isdisjoint(archs.MIMO_V2 | {"MiMoV2MTP"}):
        return bool(
            text.get("add_swa_attention_sink_bias", False)
            or text.get("add_full_attention_sink_bias", False)
        )
    return bool(text.get("learnable_sink", False))


def sliding_window(text: HfConfig) -> int | None:
    """The window in tokens, or None."""
    for key in ("sliding_window_size", "sliding_window", "window_size"):
        if text.get(key) is not None:
            return number(text, key)
    return None
