"""The memory budget: chunk, graph limit and the automatic static fraction."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.core.facts import Checkpoint
from kvtui.core.steps.memory_classes import MEMORY_CLASSES, memory_class
from kvtui.core.steps.memory_encoders import encoder_size
from tests.support import judge

DENSE = "--model-path Qwen/Qwen3-8B"
MLA = "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8"
VISION = "--model-path Qwen/Qwen3-VL-8B-Instruct"


def value(argv: str, option: str, gpu: str = "h100", **kwargs: Any) -> Any:
    """One resolved value."""
    return judge(argv, gpu, **kwargs).plan.values[option]


def fraction(argv: str, gpu: str = "h100", **kwargs: Any) -> float:
    """The resolved static fraction."""
    return float(value(argv, "mem_fraction_static", gpu, **kwargs))


def captured(argv: str, gpu: str = "h100", **kwargs: Any) -> int:
    """The largest captured decode batch."""
    return int(value(argv, "cuda_graph_config", gpu, **kwargs).decode.max_bs)


def test_classes_rise_and_cover_everything() -> None:
    limits = [row.below_mib for row in MEMORY_CLASSES]
    assert limits == sorted(limits)
    assert memory_class(10**9) is MEMORY_CLASSES[-1]
    assert memory_class(None).chunked_prefill_size == 4096


@pytest.mark.parametrize(
    ("gpu", "chunk", "narrow", "wide"),
    [
        ("t4", 2048, 8, 8),
        ("rtx4090", 4096, 48, 160),
        ("a100-40", 4096, 32, 160),
        ("h100", 8192, 256, 512),
        ("h200", 8192, 256, 512),
        ("b200", 16384, 512, 512),
    ],
)
def test_memory_class_sets_chunk_and_graph_limit(
    gpu: str, chunk: int, narrow: int, wide: int
) -> None:
    assert value(DENSE, "chunked_prefill_size", gpu) == chunk
    assert captured(DENSE, gpu) == narrow
    assert captured(f"{DENSE} --tp-size 4", gpu) == wide


def test_graph_limit_follows_the_request_limit_only_downwards() -> None:
    assert captured(f"{DENSE} --max-running-requests 20") == 20
    assert captured(f"{DENSE} --max-running-requests 1000") == 256


def test_qwen3_vl_on_hopper_captures_up_to_the_request_limit() -> None:
    assert captured(f"{VISION} --max-running-requests 400") == 400
    assert captured(f"{VISION} --max-running-requests 400", "a100-80") == 256
    assert captured(f"{VISION} --max-running-requests 600") == 256


def test_the_fraction_leaves_room_for_activations_graphs_and_ranks() -> None:
    reserve = 512 + 8192 * 1.5 + 1 / 8 * 1024 + 256 * 2 + 58 * 8
    assert fraction(DENSE) == round((81559 - reserve) / 81559, 3)
    assert fraction(f"{DENSE} --mem-fraction-static 0.5") == 0.5


def test_large_gpus_keep_at_least_ten_gib_free() -> None:
    assert fraction(f"{DENSE} --chunked-prefill-size 2048") == round((81559 - 10240) / 81559, 3)


@pytest.mark.parametrize(
    "smaller",
    [
        f"{DENSE} --chunked-prefill-size 16384",
        f"{DENSE} --chunked-prefill-size -1",
        f"{DENSE} --tp-size 4",
        f"{DENSE} --cuda-graph-max-bs-decode 1024",
    ],
)
def test_what_costs_memory_lowers_the_fraction(smaller: str) -> None:
    assert fraction(smaller) < fraction(DENSE)


def test_data_parallel_attention_pads_graphs() -> None:
    argv = f"{MLA} --attn-dp-size 8 --chunked-prefill-size 8192"
    assert fraction(argv, "h200") < fraction(MLA, "h200") - 0.1


def test_a_decode_server_budgets_for_drafts_not_chunks() -> None:
    decode = f"{DENSE} --disaggregation-mode decode"
    assert fraction(decode, "h200") > fraction(DENSE, "h200")
    assert fraction(f"{decode} --max-running-requests 20000", "h200") < fraction(decode, "h200")


def test_an_encoder_takes_its_share_where_it_runs() -> None:
    assert fraction(VISION) < fraction(DENSE)
    assert fraction(f"{VISION} --disaggregation-mode decode") == fraction(
        f"{DENSE} --disaggregation-mode decode"
    )


def test_post_capture_sizing_reserves_little() -> None:
    env = {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"}
    assert fraction(DENSE, env=env) == round((81559 - 1536 - 128) / 81559, 3)
    assert fraction(f"{DENSE} --disable-cuda-graph", env=env) < 0.9
    assert fraction(MLA, env=env) < 0.9


@pytest.mark.parametrize(
    ("model_type", "stated", "size"),
    [
        ("qwen3_vl", {"depth": 27, "hidden_size": 1152}, (24, 1152)),
        ("gemma4", {"num_hidden_layers": 27, "hidden_size": 1152}, (27, 1152)),
        ("kimi_k3", {"vt_num_hidden_layers": 27, "vt_hidden_size": 1024}, (27, 1024)),
        ("kimi_k25", {"vt_hidden_size": 1}, (27, 1152)),
        ("minimax_m3_vl", {"num_hidden_layers": 32, "hidden_size": 1280}, (24, 1024)),
        ("llama4", None, (34, 768)),
        ("gemma4", None, None),
        ("qwen3", None, None),
        ("qwen3_vl", "broken", (24, 1024)),
    ],
)
def test_encoder_size_as_the_class_reports_it(
    model_type: str, stated: object, size: tuple[int, int] | None
) -> None:
    assert encoder_size(model_type, stated) == size


def test_an_unknown_gpu_leaves_the_fraction_open() -> None:
    report = judge(DENSE, "nobody's gpu")
    assert report.outcome == "unknown"
    assert any(reason.startswith("gpu") for reason in report.unknowns)


def test_a_model_that_was_not_found_is_unknown_not_fine() -> None:
    report = judge("--model-path not/here")
    assert report.outcome == "unknown"
    assert value(DENSE, "chunked_prefill_size") == report.plan.values["chunked_prefill_size"]


def test_values_of_a_wrong_type_are_reported_not_raised() -> None:
    report = judge(f"{DENSE} --max-total-tokens 1K")
    assert report.errors
    assert not any("could not be evaluated" in reason for reason in report.unknowns)


def test_an_absurd_vision_part_does_no_harm() -> None:
    config = {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "vision_config": {"hidden_size": "wide"},
        "text_config": {
            "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
            "num_hidden_layers": 2, "max_position_embeddings": 64, "vocab_size": 9,
        },
    }  # fmt: skip
    checkpoint = Checkpoint("odd", "odd", config)
    report = judge("--model-path odd", checkpoints={"odd": checkpoint})
    assert 0 < report.plan.values["mem_fraction_static"] < 1
