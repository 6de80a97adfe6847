"""Models from folders, files, the hub cache and the catalogue; and what is no model."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.errors import InputError
from kvtui.probe.model import (
    cached_models,
    find_in_cache,
    header_bytes,
    load_checkpoint,
    models_in,
    read_json,
)

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 8}


def model_folder(where: Path, config: Any = CONFIG) -> Path:
    """A model folder with a config.json."""
    where.mkdir(parents=True, exist_ok=True)
    (where / "config.json").write_text(json.dumps(config))
    return where


def safetensors(path: Path, tensors: dict[str, int]) -> None:
    """A file with a real header (and no data behind it)."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [1], "data_offsets": [at, at + size]}  # type: ignore[dict-item]
        at += size
    data = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(data)) + data)


def test_a_folder(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "org--name")
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}')
    safetensors(folder / "model.safetensors", {"a": 10, "b": 32})
    found = load_checkpoint(str(folder))
    assert found.name == "org/name"
    assert found.config["hidden_size"] == 8
    assert found.weight_bytes == 42
    assert found.generation_config == {"eos_token_id": 1}
    assert "model.safetensors" in found.files


def test_the_index_tells_the_size(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    index = {"metadata": {"total_size": 123456}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load_checkpoint(str(folder)).weight_bytes == 123456


def test_a_config_file_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(CONFIG))
    assert load_checkpoint(str(path)).origin == "file"


def test_the_key_changes_with_the_content(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    before = load_checkpoint(str(folder)).key
    model_folder(folder, {**CONFIG, "hidden_size": 9})
    assert load_checkpoint(str(folder)).key != before


def test_the_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    repo = tmp_path / "hub" / "models--org--name"
    model_folder(repo / "snapshots" / "abc")
    model_folder(repo / "snapshots" / "def", {**CONFIG, "hidden_size": 16})
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("def\n")
    (tmp_path / "hub" / "models--org--empty").mkdir()
    assert cached_models() == ("org/name",)
    assert find_in_cache("org/name") == repo / "snapshots" / "def"
    found = load_checkpoint("org/name")
    assert (found.origin, found.name) == ("hf-cache", "org/name")
    assert found.config["hidden_size"] == 16
    (repo / "refs" / "main").write_text("gone")
    assert find_in_cache("org/name") is not None


def test_the_catalogue_needs_no_file() -> None:
    assert load_checkpoint("Qwen/Qwen3-8B").origin == "catalogue"


def test_models_in_a_folder(tmp_path: Path) -> None:
    model_folder(tmp_path / "b")
    model_folder(tmp_path / "a")
    (tmp_path / "c").mkdir()
    assert [path.name for path in models_in(tmp_path)] == ["a", "b"]
    assert models_in(tmp_path / "nowhere") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1', "line 1"),
        ("[1]", "a list, a JSON object was expected"),
        ("null", "a NoneType"),
        ("[" * 100_000, "nested too deep"),
        ("", "a JSON object was expected"),
    ],
)
def test_a_bad_config(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=expected) as caught:
        load_checkpoint(str(tmp_path))
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InputError, match="UTF-8"):
        load_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "empty"),
        ("a\0b", "empty or not a path"),
        ("/nowhere/at/all", "no such folder"),
        ("someone/unheard-of", "not in the catalogue"),
        ("x" * 5000, "name a folder or a hub id|not in the catalogue"),
    ],
)
def test_paths_that_name_no_model(path: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        load_checkpoint(path)


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        load_checkpoint(str(tmp_path))
    (tmp_path / "params.json").write_text("{}")
    with pytest.raises(InputError, match="Mistral-format"):
        load_checkpoint(str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    (folder / "config.json").chmod(0)
    with pytest.raises(InputError, match="permission denied"):
        load_checkpoint(str(folder))


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_as_a_header_are_a_size_or_none(data: bytes, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("h") / "x.safetensors"
    path.write_bytes(data)
    size = header_bytes(path)
    assert size is None or isinstance(size, int)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=80))
def test_any_text_as_json_is_an_object_or_one_line(text: str, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("j") / "config.json"
    path.write_text(text, encoding="utf-8")
    try:
        found: Any = read_json(path)
    except InputError as error:
        found = str(error)
    assert isinstance(found, dict) or "\n" not in found
