"""Facts of every shared model, as the engine itself printed them, where those lie beside us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvtui.core.facts import Checkpoint
from kvtui.core.model.config import ModelConfig, checkpoint_config
from kvtui.core.model.request import ModelRequest

SHARED = Path(__file__).parents[4] / "shared"
VECTORS = sorted((SHARED / "vectors").glob("*.jsonl"))
FACTS = ("num_layers", "head_dim", "v_head_dim", "total_kv_heads", "is_hybrid_swa", "mla",
         "kv_lora_rank", "qk_rope_head_dim", "sliding_window")  # fmt: skip

pytestmark = pytest.mark.skipif(not VECTORS, reason="no shared vectors beside the repository")


def printed() -> dict[str, dict[str, Any]]:
    """Facts by model, from the plain launches: no options that change what the model is."""
    found: dict[str, dict[str, Any]] = {}
    for file in VECTORS:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            pool = row.get("pool") or {}
            plain = {"--model-path", "--tp-size", "--attention-backend"}
            options = {word for word in row["argv"] if word.startswith("--")}
            if "num_layers" in pool and options <= plain:
                found.setdefault(row["argv"][1], pool)
    return found


PRINTED = printed() if VECTORS else {}


def model_at(path: str) -> ModelConfig:
    """The model in a shared folder."""
    folder = SHARED / path
    quant = folder / "hf_quant_config.json"
    checkpoint = Checkpoint(
        name=folder.name,
        key=str(folder),
        config=json.loads((folder / "config.json").read_text()),
        quant_config=json.loads(quant.read_text()) if quant.is_file() else None,
    )
    return checkpoint_config(checkpoint, ModelRequest())


@pytest.mark.parametrize("path", sorted(PRINTED))
def test_facts(path: str) -> None:
    model, pool = model_at(path), PRINTED[path]
    ours: dict[str, Any] = {
        "num_layers": model.num_hidden_layers,
        "head_dim": model.head_dim,
        "v_head_dim": model.v_head_dim,
        "total_kv_heads": model.get_total_num_kv_heads(),
        "is_hybrid_swa": model.is_hybrid_swa,
        "mla": model.attention_arch == "MLA",
        "kv_lora_rank": model.kv_lora_rank,
        "qk_rope_head_dim": model.qk_rope_head_dim,
        "sliding_window": model.sliding_window_size,
    }
    assert ours == {name: pool[name] for name in FACTS}
    assert model.context_len == pool["context_len"]
    assert f"torch.{model.dtype}" == pool["model_dtype"]
    if pool["is_hybrid_swa"]:
        layers = len(model.swa_attention_layer_ids or ()), len(model.full_attention_layer_ids or ())
        assert layers == (pool["swa_layers"], pool["full_layers"])
