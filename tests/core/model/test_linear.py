"""State of recurrent layers: which layers, what shapes, how many bytes a request."""

from __future__ import annotations

import pytest

from kvtui.core.model.catalogue import find
from kvtui.core.model.config import checkpoint_config
from kvtui.core.model.linear import Mambaish
from kvtui.core.model.request import ModelRequest


def recurrent(name: str) -> Mambaish:
    checkpoint = find(name)
    assert checkpoint is not None
    found = checkpoint_config(checkpoint, ModelRequest()).mambaish
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "kind", "linear", "full", "width", "nbytes"),
    [
        # 48 layers x (10240 x 3 window values in 2 bytes + 48 x 128 x 128 in 4 bytes)
        ("Qwen/Qwen3.5-27B", "gdn", 48, 16, 1, 48 * (10240 * 3 * 2 + 48 * 128 * 128 * 4)),
        ("Qwen/Qwen3.5-27B", "gdn", 48, 16, 4, 48 * (2560 * 3 * 2 + 12 * 128 * 128 * 4)),
        # 23 layers x (6144 x 3 in 2 bytes + 64 x 64 x 128 in 4 bytes)
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "mamba2", 23, 6, 1,
         23 * (6144 * 3 * 2 + 64 * 64 * 128 * 4)),
        # 10 short convolutions of 2048 channels over 2 tokens, no recurrent state
        ("LiquidAI/LFM2-1.2B", "shortconv", 10, 6, 1, 10 * 2048 * 2 * 2),
        # 20 layers x (3 tokens of 3 x 4096 channels in 2 bytes + 32 x 128 x 128 in 4 bytes)
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "kda", 20, 7, 1,
         20 * (3 * 3 * 4096 * 2 + 32 * 128 * 128 * 4)),
        ("tiiuae/Falcon-H1-7B-Instruct", "mamba2", 44, 44, 1,
         44 * ((3072 + 2 * 256) * 3 * 2 + 24 * 128 * 256 * 4)),
    ],
)  # fmt: skip
def test_bytes_per_request(
    name: str, kind: str, linear: int, full: int, width: int, nbytes: int
) -> None:
    found = recurrent(name)
    assert (found.kind, len(found.layer_ids)) == (kind, linear)
    assert len(found.full_attention_layer_ids) == full
    assert found.state(width).bytes_per_request == nbytes


def test_dtypes_follow_the_switches() -> None:
    found = recurrent("Qwen/Qwen3.5-27B")
    half = found.state(1, ssm_dtype="bfloat16")
    assert half.temporal_dtype == "bfloat16"
    assert half.temporal_bytes_per_layer * 2 == found.state(1).temporal_bytes_per_layer
    assert found.state(1, ssm_dtype="int4").temporal_dtype == "float32"
    assert found.state(1, conv_dtype="float32").conv_dtype == "float32"


def test_widths_that_do_not_divide_are_named() -> None:
    found = recurrent("Qwen/Qwen3.5-27B")
    assert found.indivisible(8) is None
    assert found.indivisible(5) == ("state heads", 48)


def test_plain_models_have_none() -> None:
    checkpoint = find("Qwen/Qwen3-8B")
    assert checkpoint is not None
    assert checkpoint_config(checkpoint, ModelRequest()).mambaish is None
