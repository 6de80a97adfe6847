"""The offline catalogue: names, tags, look-up, and lines for people."""

from __future__ import annotations

import json

import pytest

from kvtui.core.model.catalogue import find, models
from kvtui.core.model.config import checkpoint_config
from kvtui.core.model.describe import describe
from kvtui.core.model.request import ModelRequest

TAGS = {"dense", "moe", "mla", "dsa", "swa", "hybrid", "vlm", "embedding", "quantized"}


def test_many_models_each_once() -> None:
    names = [model.name for model in models()]
    assert len(names) >= 60
    assert len({name.lower() for name in names}) == len(names)
    assert names == sorted(names, key=str.lower)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_entry(model: object) -> None:
    from kvtui.core.model.catalogue import CatalogueModel

    assert isinstance(model, CatalogueModel)
    assert model.tags
    assert set(model.tags) <= TAGS
    assert model.name.count("/") == 1
    built = checkpoint_config(model.checkpoint, ModelRequest())
    assert ("mla" in model.tags) == (built.attention_arch == "MLA")
    assert ("hybrid" in model.tags) == (built.mambaish is not None)
    assert ("swa" in model.tags) == built.is_hybrid_swa
    assert ("dsa" in model.tags) == built.is_dsa
    if built.quantization is not None:
        assert "quantized" in model.tags
    lines = describe(built)
    assert 2 <= len(lines) <= 6
    assert all(line and len(line) <= 100 and "None" not in line for line in lines)
    assert len(json.dumps(model.config)) < 30_000


def test_find() -> None:
    exact = find("Qwen/Qwen3-8B")
    assert exact is not None
    assert find("qwen/qwen3-8b") is not None
    assert find("Qwen3-8B") == exact
    assert exact.origin == "catalogue"
    assert find("") is None
    assert find("Qwen3") is None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Qwen/Qwen3-8B", "MHA · 36 layers · 8 KV heads x 128"),
        ("Qwen/Qwen3.5-27B", "hybrid: 48 GDN + 16 full attention"),
        ("deepseek-ai/DeepSeek-V3", "MLA · 61 layers · latent 512 + rope 64"),
        ("openai/gpt-oss-20b", "sliding window 128 in 12 of 24 layers"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "chunks of 8192 in 36 of 48 layers"),
        ("deepseek-ai/DeepSeek-V3.2", "sparse attention with an index of 128"),
    ],
)
def test_describe(name: str, line: str) -> None:
    checkpoint = find(name)
    assert checkpoint is not None
    assert line in describe(checkpoint_config(checkpoint, ModelRequest()))
