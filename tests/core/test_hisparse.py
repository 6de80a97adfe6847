"""HiSparse: models, neighbours and its configuration."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.core.findings import Stage
from kvtui.core.steps.hisparse_config import config_complaint
from tests.support import judge

GOOD = "--model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8 --enable-hisparse --disable-radix-cache"


@pytest.mark.parametrize("dtype", ["bfloat16", "fp8_e4m3", "auto"])
def test_a_dsa_model_starts(dtype: str) -> None:
    assert judge(f"{GOOD} --kv-cache-dtype {dtype}", "h200").errors == ()


def test_checks_run_together() -> None:
    report = judge("--model-path Qwen/Qwen3-8B --enable-hisparse --enable-mixed-chunk", "h200")
    assert {f.rule for f in report.errors} >= {"KV660", "KV661", "KV662"}
    assert all(f.stage is Stage.CHECK for f in report.errors if f.rule.startswith("KV66"))


@given(st.integers(1, 4096), st.integers(1, 8192), st.integers(-5, 2000))
def test_the_device_buffer_holds_the_top_tokens(top: int, buffer: int, block: int) -> None:
    text = json.dumps({"top_k": top, "device_buffer_size": buffer, "swap_in_block_size": block})
    assert (config_complaint(text) is None) == (buffer >= top and 1 <= block <= 1024)


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"top_k": "a"}', '{"swap_in_block_size": 1.5}',
             '{"swap_in_block_size": true}', '{"host_to_device_ratio": "2"}']
)  # fmt: skip
def test_odd_configurations_are_told(text: str) -> None:
    report = judge([*GOOD.split(), "--hisparse-config", text], "h200")
    (finding,) = (f for f in report.errors if f.rule == "KV667")
    assert finding.stage is Stage.POOL


def test_an_empty_object_means_the_defaults() -> None:
    assert config_complaint("{}") is None
