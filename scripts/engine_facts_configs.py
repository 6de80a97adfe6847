"""Write what configuration classes fill in, per model type, from an installed engine.

Run with the engine's own Python: ENGINE_PYTHON scripts/engine_facts_configs.py 0.5.23 OUT.json
A class's default is kept where it does not move with the model's size (a value that does is
worked out from others, and `kvtui.core.model.load` says how).
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

KEYS = frozenset(
    {
        "add_full_attention_sink_bias",
        "add_swa_attention_sink_bias",
        "attention_chunk_size",
        "attention_k_eq_v",
        "attention_projection_layout",
        "attn_logit_softcapping",
        "candidate_block_size",
        "candidate_source_layer_id",
        "candidate_topk_blocks",
        "cca_time0",
        "cca_time1",
        "chunk_size",
        "cli_factor",
        "conv_L_cache",
        "conv_kernel",
        "d_conv",
        "decoder_layers",
        "encoder_layers",
        "engram_layer_ids",
        "expand",
        "final_logit_softcapping",
        "first_k_dense_replace",
        "full_attention_interval",
        "global_head_dim",
        "hc_mult",
        "head_dim",
        "hidden_size",
        "hybrid_layer_pattern",
        "image_token_id",
        "image_token_index",
        "index_head_dim",
        "index_kpool",
        "index_kpool_compress",
        "index_n_heads",
        "index_skip_topk_offset",
        "index_topk",
        "index_topk_freq",
        "index_topk_pattern",
        "indexer_types",
        "interleave_moe_layer_step",
        "intermediate_size",
        "is_causal",
        "is_hybrid_swa",
        "kv_lora_rank",
        "layer_group_size",
        "layer_types",
        "learnable_sink",
        "lightning_head_dim",
        "lightning_nh",
        "lightning_nkv",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "local_layer_ids",
        "loop_num",
        "mamba_chunk_size",
        "mamba_d_conv",
        "mamba_d_head",
        "mamba_d_ssm",
        "mamba_d_state",
        "mamba_expand",
        "mamba_head_dim",
        "mamba_n_groups",
        "mamba_n_heads",
        "mamba_num_heads",
        "mamba_ssm_dtype",
        "max_position_embeddings",
        "max_seq_len",
        "max_sequence_length",
        "max_source_positions",
        "max_window_layers",
        "mhc",
        "mixer_types",
        "mlp_only_layers",
        "model_max_length",
        "moe_intermediate_size",
        "moe_layer_freq",
        "mtp_local_extent",
        "mtp_local_layer_ids",
        "multi_query",
        "multi_query_group_num",
        "n_group",
        "n_groups",
        "n_head_kv",
        "n_routed_experts",
        "n_shared_experts",
        "new_decoder_architecture",
        "ngram_embedding_n",
        "no_rope_layers",
        "num_attention_groups",
        "num_attention_heads",
        "num_experts",
        "num_experts_per_tok",
        "num_global_key_value_heads",
        "num_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "num_kv_heads",
        "num_kv_shared_layers",
        "num_local_experts",
        "num_loops",
        "num_nextn_predict_layers",
        "num_shared_experts",
        "padded_vocab_size",
        "prefix_lm",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "routed_scaling_factor",
        "sconv_kernel_size",
        "seq_length",
        "short_conv_kernel_size",
        "sliding_window",
        "sliding_window_pattern",
        "sliding_window_size",
        "ssm_state_size",
        "state_size",
        "swa_head_dim",
        "swa_kv_lora_rank",
        "swa_num_key_value_heads",
        "swa_qk_rope_head_dim",
        "swa_v_head_dim",
        "tie_word_embeddings",
        "topk_group",
        "topk_method",
        "use_bidirectional_attention",
        "use_kda",
        "use_mla",
        "use_mla_nope",
        "use_ngram_embedding",
        "use_sliding_window",
        "v_head_dim",
        "vision_n_layers",
        "vision_vocab_size",
        "vocab_size",
        "window_size",
    }
)
SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads")
NESTED = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "vision_config",
    "audio_config",
    "sound_config",
)


def plain(value: Any) -> bool:
    """Whether a default is worth a table entry."""
    if isinstance(value, list):
        return len(value) <= 4 and all(isinstance(v, (int, float, str)) for v in value)
    return isinstance(value, (bool, int, float, str))


def values(config: Any) -> dict[str, Any]:
    """The keys of interest that an instance carries."""
    found = {}
    dtype = getattr(config, "dtype", None)
    if dtype is not None:
        found["dtype"] = str(dtype).removeprefix("torch.")
    aliased = (getattr(type(config), "attribute_map", None) or {}).values()
    for key in KEYS | set(aliased):
        try:
            value = getattr(config, key)
        except Exception:
            continue
        if value is None or plain(value):
            found[key] = value
    return found


def constants(cls: Any) -> dict[str, Any]:
    """Defaults that stay when the model's size changes."""
    base = values(cls())
    kept = dict(base)
    alias = getattr(cls, "attribute_map", None) or {}
    for factor in (2, 3):
        sizes = {
            key: base[key] * factor
            for key in SIZES
            if isinstance(base.get(key), int) and base[key] > 0
        }
        for subset in [sizes, *({k: v} for k, v in sizes.items())]:
            try:
                moved = values(cls(**subset))
            except Exception:
                continue
            moving = set(subset) | {alias.get(key) for key in subset}
            for key in list(kept):
                if key not in moving and moved.get(key, kept[key]) != kept[key]:
                    del kept[key]
    return kept


def nested(cls: Any) -> dict[str, str]:
    """Model type of each language part that the class builds by itself."""
    found: dict[str, str] = {}
    try:
        config = cls()
    except Exception:
        return found
    for key in NESTED:
        part = getattr(config, key, None)
        kind = getattr(part, "model_type", None)
        if isinstance(kind, str) and kind:
            found[key] = kind
    return found


def takes_flat_text(cls: Any, parts: dict[str, str]) -> str | None:
    """The language part that the class builds from keys beside it, if any."""
    for key in parts:
        try:
            if getattr(cls(hidden_size=1536, num_attention_heads=12), key).hidden_size == 1536:
                return key
        except Exception:
            continue
    return None


def empty_parts(cls: Any) -> list[str]:
    """Parts that an instance carries as None: the engine asks for some by presence."""
    try:
        config = cls()
    except Exception:
        return []
    return [key for key in NESTED if getattr(config, key, 0) is None]


def nested_defaults(cls: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Rows for language parts whose classes no model type reaches by itself."""
    rows = {}
    for key in NESTED[:4]:
        try:
            part = getattr(cls(), key)
            kind = part.model_type
            if kind and kind not in known:
                row = {"defaults": constants(type(part)), "inner": True}
                alias = dict(type(part).attribute_map or {})
                rows[kind] = {**row, "alias": alias} if alias else row
        except Exception:
            continue
    return rows


def rope_style(cls: Any) -> str | None:
    """`split` where the class keeps a rope table a layer type, `raw` where it leaves the
    file's table as it is, else None."""
    asked = {"rope_type": "yarn", "factor": 2.0}
    try:
        rope = cls(rope_scaling=asked, max_position_embeddings=4096).rope_scaling
    except Exception:
        return None
    if not rope:
        return None
    if "full_attention" in rope:
        return "split"
    return None if "original_max_position_embeddings" in rope else "raw"


def main() -> None:
    """Ask every class that the engine can reach, and write one table."""
    warnings.filterwarnings("ignore")
    version, target = sys.argv[1], sys.argv[2]
    import transformers
    from sglang.srt.utils.hf_transformers.common import _CONFIG_REGISTRY
    from transformers import CONFIG_MAPPING

    types: dict[str, Any] = {}
    for kind in sorted(set(CONFIG_MAPPING.keys()) | set(_CONFIG_REGISTRY)):
        cls = _CONFIG_REGISTRY.get(kind)
        row: dict[str, Any] = {"own": True} if cls is not None else {}
        try:
            cls = cls or CONFIG_MAPPING[kind]
            row["defaults"] = constants(cls)
        except Exception as error:
            row["defaults"] = {}
            print(kind, type(error).__name__, error, file=sys.stderr)
        alias = dict(getattr(cls, "attribute_map", None) or {})
        if alias:
            row["alias"] = alias
        parts = nested(cls)
        if parts:
            row["parts"] = parts
        flat = takes_flat_text(cls, parts)
        if flat is not None:
            row["flat"] = flat
        style = rope_style(cls)
        if style is not None:
            row["rope"] = style
        empty = empty_parts(cls)
        if empty:
            row["empty"] = empty
        if "vocab_size" not in row["defaults"] and not parts and not row.get("own"):
            row = {}  # a tower or a tool that the engine never serves by itself
        types[kind] = row
    for kind in list(types):
        cls = _CONFIG_REGISTRY.get(kind)
        try:
            types.update(nested_defaults(cls or CONFIG_MAPPING[kind], types))
        except Exception as error:
            print(kind, type(error).__name__, error, file=sys.stderr)
    head = json.dumps({"engine_version": version, "transformers": transformers.__version__})
    rows = [f"{json.dumps(kind)}:{json.dumps(row, sort_keys=True)}" for kind, row in types.items()]
    with open(target, "w", encoding="utf-8") as out:
        out.write(head[:-1] + ',"types":{\n' + ",\n".join(rows) + "\n}}\n")


if __name__ == "__main__":
    main()
