"""Parameters and bytes of checkpoints, against what is known of released models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtui.core.capacity.result import Capacity
from kvtui.core.capacity.weights import loaded
from kvtui.core.facts import Checkpoint
from kvtui.core.model.catalogue import find
from tests.core.test_pool_sizes import resolved
from tests.support import draft_of, facts_for, judge

GIB = 1 << 30


def capacity_of(argv: str, gpu: str = "h200") -> Capacity:
    """The predicted capacity; fails where there is none."""
    capacity = judge(argv, gpu).capacity
    assert capacity is not None
    return capacity


@pytest.mark.parametrize(
    ("model", "billions", "margin"),
    [
        ("Qwen/Qwen3-8B", 8.19, 0.005),
        ("Qwen/Qwen3-0.6B", 0.596, 0.005),
        ("Qwen/Qwen3-30B-A3B", 30.5, 0.005),
        ("meta-llama/Llama-3.3-70B-Instruct", 70.55, 0.005),
        ("deepseek-ai/DeepSeek-V3", 671, 0.005),
        ("openai/gpt-oss-20b", 20.9, 0.01),
        ("openai/gpt-oss-120b", 116.8, 0.01),
        ("Qwen/Qwen3.5-27B", 27.4, 0.02),
        ("mistralai/Mixtral-8x7B-v0.1", 46.7, 0.005),
        ("google/gemma-2-9b-it", 9.24, 0.01),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 79.7, 0.01),
    ],
)
def test_parameters(model: str, billions: float, margin: float) -> None:
    _, g = resolved(f"--model-path {model} --tp-size 8", "h200")
    assert loaded(g.model).params / 1e9 == pytest.approx(billions, rel=margin)


def test_printed_weights_of_public_boots() -> None:
    """Load usage that logs print, less the 0.2 GiB of exchange buffers on linked GPUs."""
    for argv, gpu, printed in (
        ("--model-path Qwen/Qwen3-32B --tp-size 4", "b200", 15.5 - 0.2),
        ("--model-path meta-llama/Llama-3.1-8B-Instruct", "h200", 15.02),
        ("--model-path zai-org/GLM-5-FP8 --tp-size 8", "rtxpro6000", 89.44 - 0.2),
    ):
        weights = capacity_of(argv, gpu).weights.value / GIB
        assert weights == pytest.approx(printed, rel=0.01), argv


def test_tensor_parallel_ranks_share() -> None:
    one = capacity_of("--model-path Qwen/Qwen3-32B").weights.value
    four = capacity_of("--model-path Qwen/Qwen3-32B --tp-size 4").weights.value
    assert four == pytest.approx(one / 4, rel=0.01)


def test_attention_groups_hold_attention_whole() -> None:
    split = capacity_of("--model-path deepseek-ai/DeepSeek-V3 --tp-size 8").weights.value
    groups = capacity_of(
        "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --attn-dp-size 8"
    ).weights.value
    assert split * 1.1 < groups < split * 1.3


def test_pipeline_stages_share_layers() -> None:
    one = capacity_of("--model-path Qwen/Qwen3-32B").weights.value
    two = capacity_of("--model-path Qwen/Qwen3-32B --pp-size 2").weights.value
    assert one * 0.499 < two < one * 0.6


def test_quantised_checkpoints_shrink() -> None:
    plain = capacity_of("--model-path Qwen/Qwen3-32B").weights.value
    fp8 = capacity_of("--model-path Qwen/Qwen3-32B-FP8").weights.value
    assert 0.5 < fp8 / plain < 0.56
    whole = capacity_of("--model-path Qwen/Qwen3-235B-A22B --tp-size 8").weights.value
    nvfp4 = capacity_of("--model-path nvidia/Qwen3-235B-A22B-NVFP4 --tp-size 8").weights.value
    assert 0.27 < nvfp4 / whole < 0.32


def test_fp8_while_loading_halves_linear_weights() -> None:
    plain = capacity_of("--model-path Qwen/Qwen3-32B").weights.value
    online = capacity_of("--model-path Qwen/Qwen3-32B --quantization fp8").weights.value
    assert 0.5 < online / plain < 0.56


def test_a_stated_size_sharpens_the_estimate() -> None:
    known = find("Qwen/Qwen3-8B")
    assert known is not None
    stated = replace(known, key="stated", weight_bytes=int(8.19e9 * 2 * 1.02))
    draft = draft_of("--model-path Qwen/Qwen3-8B", gpu="h200")
    from kvtui.core.evaluate import evaluate

    guess = evaluate(draft, facts_for(draft)).capacity
    read = evaluate(draft, facts_for(draft, {"Qwen/Qwen3-8B": stated})).capacity
    assert guess is not None
    assert read is not None
    assert read.weights.value > guess.weights.value * 1.01
    assert read.weights.error <= guess.weights.error


def test_host_offload_frees_the_gpu() -> None:
    plain = capacity_of("--model-path Qwen/Qwen3-32B").weights.value
    away = capacity_of("--model-path Qwen/Qwen3-32B --cpu-offload-gb 20").weights.value
    assert away == pytest.approx(plain - 20 * GIB, rel=1e-6)


def test_an_unknown_architecture_is_said_to_be_a_guess() -> None:
    config = {
        "architectures": ["NobodysForCausalLM"], "model_type": "llama", "hidden_size": 1024,
        "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 8,
        "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    checkpoint = Checkpoint(name="nobody", key="nobody", config=config)
    report = judge("--model-path nobody", "h100", checkpoints={"nobody": checkpoint})
    assert report.capacity is not None
    assert any("usual transformer" in one for one in report.capacity.assumed)
