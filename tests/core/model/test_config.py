"""Model configurations: known facts of released models, options that shape them, bad files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.facts import Checkpoint, MissingFact
from kvtui.core.model.catalogue import find, models
from kvtui.core.model.config import ModelConfig, checkpoint_config
from kvtui.core.model.request import ModelRequest


def built(name: str, **request: Any) -> ModelConfig:
    checkpoint = find(name)
    assert checkpoint is not None, name
    return checkpoint_config(checkpoint, ModelRequest(**request))


def made(config: Mapping[str, Any], **request: Any) -> ModelConfig:
    key = json.dumps(config, sort_keys=True)
    return checkpoint_config(Checkpoint("made", key, config), ModelRequest(**request))


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("Qwen/Qwen3-8B", {"attention_arch": "MHA", "head_dim": 128, "total_num_kv_heads": 8,
                           "num_hidden_layers": 36, "context_len": 40960, "dtype": "bfloat16",
                           "sliding_window_size": None, "is_hybrid_swa": False}),
        ("deepseek-ai/DeepSeek-V3", {"attention_arch": "MLA", "kv_lora_rank": 512,
                                     "qk_rope_head_dim": 64, "context_len": 163840,
                                     "quantization": "fp8", "is_dsa": False}),
        ("deepseek-ai/DeepSeek-V3.2", {"is_dsa": True, "index_head_dim": 128}),
        ("openai/gpt-oss-20b", {"is_hybrid_swa": True, "has_attention_sinks": True,
                                "sliding_window_size": 128, "quantization": "mxfp4"}),
        ("google/gemma-4-26B-A4B", {"is_hybrid_swa_compress": True, "head_dim": 512,
                                    "swa_head_dim": 256, "total_num_kv_heads": 2}),
        ("google/gemma-3-27b-it", {"context_len": 131072, "is_multimodal": False,
                                   "is_hybrid_swa": False}),
        ("XiaomiMiMo/MiMo-V2-Flash", {"head_dim": 192, "v_head_dim": 128,
                                      "has_asymmetric_kv": True}),
        ("deepseek-ai/DeepSeek-V4-Flash", {"is_deepseek_v4_arch": True, "is_fp4_experts": True,
                                           "swa_attention_layer_ids": None}),
        ("google/embeddinggemma-300m", {"is_embedding": True, "is_embedding_gemma": True,
                                        "dtype": "bfloat16", "sliding_window_size": 257}),
        ("BAAI/bge-m3", {"is_embedding": True, "dtype": "float16"}),
        ("meituan-longcat/LongCat-Flash-Chat", {"num_attention_layers": 56,
                                                "attention_arch": "MLA"}),
        ("openai/whisper-large-v3", {"is_encoder_decoder": True, "num_attention_layers": 96}),
    ],
)  # fmt: skip
def test_facts(name: str, facts: dict[str, Any]) -> None:
    model = built(name)
    assert {key: getattr(model, key) for key in facts} == facts


def test_heads_per_rank() -> None:
    model = built("Qwen/Qwen3-8B")
    assert [model.get_num_kv_heads(tp) for tp in (1, 2, 8, 16)] == [8, 4, 1, 1]
    assert model.get_num_kv_heads(8, dcp_size=4) == 4
    mimo = built("XiaomiMiMo/MiMo-V2-Flash")
    assert (mimo.get_num_kv_heads(2), mimo.get_swa_num_kv_heads(2)) == (2, 4)


def test_every_catalogue_model_builds() -> None:
    for known in models():
        model = checkpoint_config(known.checkpoint, ModelRequest())
        assert model.num_hidden_layers > 0
        assert model.context_len > 0


def test_same_request_is_built_once() -> None:
    assert built("Qwen/Qwen3-8B") is built("Qwen/Qwen3-8B")
    assert built("Qwen/Qwen3-8B") is not built("Qwen/Qwen3-8B", dtype="float16")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"dtype": "half"}, {"dtype": "float16"}),
        ({"context_length": 1000}, {"context_len": 1000}),
        ({"is_embedding": True}, {"is_embedding": True, "is_generation": False}),
        ({"overrides": '{"num_key_value_heads": 2}'}, {"total_num_kv_heads": 2}),
        ({"quantization": "fp8"}, {"quantization": "fp8"}),
    ],
)
def test_options_shape_it(request_: dict[str, Any], expected: dict[str, Any]) -> None:
    model = made(LLAMA, **request_)
    assert {key: getattr(model, key) for key in expected} == expected
    assert model.problems == ()


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"context_length": 5000}, "context_length"),
        ({"dtype": "int8"}, "dtype"),
        ({"overrides": "{"}, "override_json"),
        ({"overrides": "[1]"}, "override_json"),
        ({"quantization": "gptq"}, "unknown_quantization"),
        ({"quantization": "bitsandbytes", "vendor": "amd"}, "rocm_quantization"),
        ({"quantize_and_serve": True}, "quantize_and_serve"),
    ],
)
def test_problems(request_: dict[str, Any], kind: str) -> None:
    assert kind in {problem.kind for problem in made(LLAMA, **request_).problems}


def test_longer_context_may_be_allowed() -> None:
    model = made(LLAMA, context_length=5000, longer_context_allowed=True)
    assert (model.context_len, model.problems) == (5000, ())


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"rope_type": "linear", "factor": 2.0}, 8192),
        ({"type": "dynamic", "factor": 4}, 16384),
        ({"rope_type": "yarn", "factor": 4.0}, 4096),
        ({"rope_type": "llama3", "factor": 8.0}, 4096),
        (None, 4096),
    ],
)
def test_rope_scaling_stretches_context(rope: dict[str, Any] | None, context: int) -> None:
    assert made({**LLAMA, "rope_scaling": rope}).context_len == context


def test_windows_count_only_where_switched_on() -> None:
    qwen = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    assert made({**qwen, "sliding_window": 512}).sliding_window_size is None
    switched = {**qwen, "sliding_window": 512, "use_sliding_window": True}
    assert made(switched).sliding_window_size == 512


def test_draft_head_of_the_checkpoint_itself() -> None:
    head = built("deepseek-ai/DeepSeek-V3", is_draft_model=True)
    assert head.arch == "DeepseekV3ForCausalLMNextN"
    assert head.attention_arch == "MLA"
    qwen = built("Qwen/Qwen3.5-27B", is_draft_model=True)
    assert (qwen.arch, qwen.num_nextn_predict_layers) == ("Qwen3_5ForCausalLMMTP", 1)
    assert built("Qwen/Qwen3.5-27B").arch == "Qwen3_5ForConditionalGeneration"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "architectures"),
        ({"architectures": []}, "architectures"),
        ({"architectures": [3]}, "architectures"),
        ({**LLAMA, "num_hidden_layers": "four"}, "num_hidden_layers"),
        ({**LLAMA, "hidden_size": None, "head_dim": 64}, "hidden_size"),
        ({**LLAMA, "num_attention_heads": [1]}, "num_attention_heads"),
        ({**LLAMA, "vocab_size": True}, "vocab_size"),
        ({**LLAMA, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "x"}, "kv_lora_rank"),
    ],
)
def test_bad_files_end_in_one_line(config: dict[str, Any], words: str) -> None:
    with pytest.raises(MissingFact) as raised:
        made(config)
    assert raised.value.name == "model"
    assert words in raised.value.reason
    assert "\n" not in raised.value.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "architectures", "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "rope_scaling", "layer_types", "sliding_window",
        "quantization_config", "text_config", "torch_dtype", "max_position_embeddings",
        "linear_attn_config", "hybrid_override_pattern", "compress_ratios", "attn_config",
    ]
)  # fmt: skip
BASES = [known.config for known in models() if len(json.dumps(known.config)) < 1500]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(BASES), st.dictionaries(KEYS, JSON, max_size=3))
def test_no_file_breaks_it(base: Mapping[str, Any], changes: dict[str, Any]) -> None:
    try:
        model = made({**base, **changes})
    except MissingFact as missing:
        names = {missing.name}
    else:
        names = set(model.architectures) and {"model"}
    assert names == {"model"}


def test_missing_attributes_read_as_on_the_engines_object() -> None:
    config = made(LLAMA).hf_config
    assert config.get("no_such_key", 7) == 7
    assert getattr(config, "no_such_key", None) is None
    with pytest.raises(AttributeError):
        _ = config.no_such_key


GEMMA4_TEXT: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 2560, "num_hidden_layers": 12,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
}  # fmt: skip
WIDER = {"5": {"head_dim": 512, "num_key_value_heads": 1}, "11": {"head_dim": 512}}


@pytest.mark.parametrize(
    ("changes", "full", "window"),
    [
        ({}, (512, 2), (256, 2)),
        ({"per_layer_config": WIDER}, (512, 1), (256, 2)),
        ({"per_layer_config": {}}, (256, 2), (256, 2)),
        ({"num_global_key_value_heads": 1}, (512, 2), (256, 2)),
        ({"num_global_key_value_heads": 1, "attention_k_eq_v": True}, (512, 1), (256, 2)),
        ({"layer_types": ["full_attention"] * 12}, (512, 2), (512, 2)),
    ],
)
def test_gemma4_layers_of_two_shapes(
    changes: dict[str, Any], full: tuple[int, int], window: tuple[int, int]
) -> None:
    whole = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4"}
    model = made({**whole, "text_config": {**GEMMA4_TEXT, **changes}})
    assert (model.head_dim, model.get_total_num_kv_heads()) == full
    assert (model.swa_head_dim, model.get_swa_num_kv_heads(1)) == window


@pytest.mark.parametrize(
    ("changes", "readable"),
    [
        ({}, False),
        ({"per_layer_config": {}}, True),
        ({"per_layer_config": {"5": {"num_key_value_heads": 1}}}, False),
        ({"global_head_dim": 256}, True),
        ({"head_dim": 512}, True),
        ({"global_head_dim": 256, "num_global_key_value_heads": 1, "attention_k_eq_v": True},
         False),
    ],
)  # fmt: skip
def test_gemma4_text_on_its_own(changes: dict[str, Any], readable: bool) -> None:
    model = made({"architectures": ["Gemma4ForCausalLM"], **GEMMA4_TEXT, **changes})
    assert ("layer_shapes" not in {p.kind for p in model.problems}) is readable
