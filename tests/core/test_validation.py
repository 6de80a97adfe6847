"""The engine's last look at resolved arguments: widths, pages, adapters, metrics, watermarks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.core.evaluate import Report
from kvtui.core.findings import Stage
from kvtui.core.steps.validation_metrics import _bucket_problem
from tests.support import errors_of, judge

ADAPTERS = "--enable-lora --max-lora-rank 16 --lora-target-modules all"


def launch(
    argv: str, model: str = "Qwen/Qwen3-8B", gpu: str = "h200", env: Mapping[str, str] | None = None
) -> Report:
    return judge(f"--model-path {model} {argv}", gpu, env=env)


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        ("--prefill-decode-interval -1", "KV1060"),
        ("--enable-response-store --disaggregation-mode prefill", "KV1061"),
        ("--sampling-mask-max-tokens 0", "KV1062"),
        ("--enable-return-aux-hidden-states", "KV1063"),
        ("--return-aux-hidden-state-layer-ids 1", "KV1063"),
        ("--tp-size 3 --nnodes 2 --dist-init-addr a:1", "KV1065"),
        ("--nnodes 0", "KV1065"),
        ("--base-gpu-id -1", "KV1066"),
        ("--tp-size 8 --moe-dense-tp-size 2", "KV1066"),
        ("--disable-cuda-graph-padding --enable-torch-compile", "KV1067"),
        ("--pp-size 2 --speculative-algorithm EAGLE", "KV1068"),
        ("--pp-size 2 --min-free-slots-delay 2", "KV1068"),
        ("--dp-size 2 --nnodes 2 --tp-size 2 --dist-init-addr a:1", "KV1069"),
        ("--served-model-name a:b", "KV1070"),
        ("--chunked-prefill-size 1000 --page-size 64", "KV1072"),
        ("--page-size 0", "KV1072"),
        ("--enable-pdmux", "KV1073"),
        ("--enable-priority-scheduling --schedule-policy lpm", "KV1074"),
        ("--retraction-policy priority", "KV1074"),
        ("--model-impl mindspore", "KV1075"),
        ("--sampling-backend intel_xpu", "KV1075"),
        ("--enable-two-batch-overlap", "KV1076"),
        ("--gc-threshold 1 2 3 4", "KV1077"),
        ("--prompt-tokens-buckets tse 1 1 3", "KV1080"),
        ("--export-metrics-to-file", "KV1081"),
        ("--load-publish-endpoint auto", "KV1082"),
        ("--watermark-config '{\"color\": 1}'", "KV1085"),
        ("--watermark-config '{}'", "KV1086"),
        ("--enable-watermark --enable-custom-logit-processor", "KV1086"),
        ("--max-loras-per-batch 0", "KV1090"),
        (f"{ADAPTERS} --lora-backend triton_v2 --tp-size 2 --attn-dp-size 2", "KV1091"),
        (f"{ADAPTERS} --max-loaded-loras 2", "KV1092"),
        (f"{ADAPTERS} --enable-lora-overlap-loading", "KV1092"),
        ("--enable-lora", "KV1093"),
        ("--enable-lora --lora-target-modules all q_proj --max-lora-rank 8", "KV1093"),
        (f"{ADAPTERS} --speculative-algorithm EAGLE --speculative-adaptive", "KV1094"),
        ("--moe-runner-backend lora_triton", "KV1095"),
    ],
)
def test_refused(argv: str, rule: str) -> None:
    found = [f for f in launch(argv).errors if f.rule == rule]
    assert found
    assert not any(f.stage is Stage.LOAD for f in found)


@pytest.mark.parametrize(
    "argv",
    [
        "--lora-paths a=b",
        ADAPTERS,
        f"{ADAPTERS} --speculative-algorithm EAGLE",
        "--pp-size 2 --speculative-algorithm EAGLE --disaggregation-mode prefill",
        "--enable-pdmux --chunked-prefill-size -1 --disable-overlap-schedule",
        "--enable-priority-scheduling",
        "--tp-size 8 --moe-dense-tp-size 8",
        "--prompt-tokens-buckets custom 1 2 4",
        "--chunked-prefill-size -1 --page-size 64",
        "--enable-return-aux-hidden-states --speculative-algorithm EAGLE3",
        "--gc-threshold 100 10",
    ],
)
def test_accepted(argv: str) -> None:
    early = {f.rule for f in launch(argv).errors if not f.stage.is_late}
    assert not early


def test_adapters_on_the_command_line_switch_lora_on() -> None:
    assert launch("--lora-paths a=b").plan.values["enable_lora"] is True


def test_aux_states_take_the_algorithm_as_a_convention() -> None:
    values = launch("--enable-return-aux-hidden-states --speculative-algorithm EAGLE3").plan.values
    assert values["speculative_algorithm"] is None
    assert values["aux_hidden_state_capture"] == "eagle3"


def test_the_chunk_is_judged_after_attention_dp_divides_it() -> None:
    argv = "--tp-size 4 --attn-dp-size 4 --page-size 64 --chunked-prefill-size"
    assert "KV1072" in errors_of(launch(f"{argv} 4100"))
    assert "KV1072" not in errors_of(launch(f"{argv} 4096"))


def test_the_old_sampling_mask_variable_is_refused() -> None:
    env = {"SGLANG_DISAGGREGATION_SAMPLING_MASK_MAX_TOKENS": "5"}
    found = next(f for f in launch("", env=env).errors if f.rule == "KV1062")
    assert found.fixes[0].changes[0].value is None


def test_load_ports_after_the_event_ports() -> None:
    events = """--kv-events-config '{"publisher": "zmq", "endpoint": "tcp://*:5557"}'"""
    assert "KV1082" not in errors_of(launch(f"--load-publish-endpoint auto {events}"))
    assert "KV1082" in errors_of(launch(f"--load-publish-endpoint tcp://*:5557 {events}"))
    assert "KV1082" in errors_of(launch(f"--load-publish-endpoint tcp://10.0.0.1:6000 {events}"))


@pytest.mark.parametrize(
    ("config", "good"),
    [
        ('{"key": "abc"}', True),
        ('{"key": "xyz"}', False),
        ('{"key_b": "abc"}', False),
        ('{"key": "1", "mixing_probability": 0.4}', False),
        ('{"key": "1", "key_b": "2", "mixing_probability": 0.4}', True),
        ('{"context_window": 65}', False),
        ('{"default_enabled": true}', False),
        ('{"max_probability": "1"}', False),
    ],
)
def test_watermark_values(config: str, good: bool) -> None:
    found = errors_of(launch(f"--enable-watermark --watermark-config '{config}'"))
    assert bool(found & {"KV1085", "KV1086"}) is not good


@given(st.lists(st.sampled_from(["tse", "default", "custom", "1", "2", "0", "-1", "x", "1.5"]),
                min_size=1, max_size=5))  # fmt: skip
def test_bucket_rules_answer_any_words(words: list[str]) -> None:
    problem = _bucket_problem(words)
    assert problem is None or isinstance(problem, str)
    if words == ["default"]:
        assert problem is None
