"""What model code chooses and refuses on launches of catalogue models."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.core.evaluate import Report
from kvtui.core.facts import Checkpoint
from kvtui.core.findings import Outcome, Severity
from kvtui.core.model.catalogue import find
from kvtui.core.render import effective
from tests.support import judge

GPT_OSS = "openai/gpt-oss-20b"
V32 = "deepseek-ai/DeepSeek-V3.2 --tp-size 8"
V3 = "deepseek-ai/DeepSeek-V3 --tp-size 8"
NANO = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"


def launch(words: str, gpu: str = "h100", **more: Any) -> Report:
    """The report on a launch; the words begin with the model."""
    return judge(f"--model-path {words}", gpu, **more)


CHOSEN: list[tuple[str, str, dict[str, Any]]] = [
    (GPT_OSS, "b200", {"attention_backend": "trtllm_mha", "page_size": 64, "dtype": "bfloat16",
                       "moe_runner_backend": "flashinfer_mxfp4"}),
    (GPT_OSS, "h100", {"attention_backend": "fa3", "page_size": 1,
                       "moe_runner_backend": "triton_kernel"}),
    (V32, "h200", {"attention_backend": "dsa", "page_size": 64, "kv_cache_dtype": "bfloat16",
                   "dsa_prefill_backend": "flashmla_sparse", "dsa_decode_backend": "fa3"}),
    (V32, "b200", {"attention_backend": "dsa", "kv_cache_dtype": "fp8_e4m3",
                   "dsa_prefill_backend": "trtllm", "dsa_decode_backend": "trtllm",
                   "moe_runner_backend": "flashinfer_trtllm", "quantization": "fp8"}),
    (V3, "b200", {"attention_backend": "trtllm_mla", "page_size": 64,
                  "moe_runner_backend": "flashinfer_trtllm", "quantization": "fp8"}),
    (V3, "h200", {"attention_backend": "fa3", "page_size": 1, "moe_runner_backend": "auto"}),
    ("deepseek-ai/DeepSeek-V4-Flash --tp-size 4", "b200",
     {"attention_backend": "dsv4", "page_size": 256, "kv_cache_dtype": "fp8_e4m3",
      "max_running_requests": 256, "swa_full_tokens_ratio": 0.1}),
    ("google/gemma-3-27b-it", "h100", {"disable_hybrid_swa_memory": True}),
    ("google/gemma-2-9b-it", "h100", {"disable_hybrid_swa_memory": True}),
    ("google/embeddinggemma-300m", "h100", {"is_embedding": True, "disable_radix_cache": True}),
    ("openai/whisper-large-v3", "h100",
     {"attention_backend": "flashinfer", "disable_radix_cache": True}),
    ("Qwen/Qwen3.5-27B", "h200", {"mamba_radix_cache_strategy": "extra_buffer", "page_size": 1}),
    (NANO, "b200", {"attention_backend": "trtllm_mha", "page_size": 64,
                    "moe_runner_backend": "flashinfer_trtllm"}),
    (f"{NANO} --attention-backend triton", "b200", {"attention_backend": "triton"}),
    ("Qwen/Qwen3-8B", "h100", {"attention_backend": "fa3", "disable_hybrid_swa_memory": False}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "gpu", "expected"), CHOSEN, ids=[f"{w}@{g}" for w, g, _ in CHOSEN]
)
def test_chosen_values(words: str, gpu: str, expected: dict[str, Any]) -> None:
    report = launch(words, gpu)
    assert not report.unknowns
    values = {**report.plan.values, **effective(report)}
    assert {name: values.get(name) for name in expected} == expected


REFUSED = [
    ("Qwen/Qwen3-8B --quantization gptq", "h100", "KV105", "--quantization"),
    ("Qwen/Qwen3-8B --context-length 999999", "h100", "KV102", "--context-length"),
]


@pytest.mark.parametrize(("words", "gpu", "rule", "fix"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refused(words: str, gpu: str, rule: str, fix: str) -> None:
    report = launch(words, gpu)
    found = [f for f in report.errors if f.rule == rule]
    assert len(found) == 1
    changed = {change.option for fix in found[0].fixes for change in fix.changes}
    assert fix.lstrip("-").replace("-", "_") in changed


def test_longer_context_with_the_switch() -> None:
    report = launch(
        "Qwen/Qwen3-8B --context-length 65536",
        env={"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"},
    )
    assert not [f for f in report.findings if f.rule == "KV102" and f.severity is Severity.ERROR]


def variant(name: str, **changes: Any) -> dict[str, Checkpoint]:
    """A catalogue model with a changed config, as a checkpoint of its own."""
    base = find(name)
    assert base is not None
    config = {**base.config, **changes}
    return {"m": Checkpoint(name="m", key=f"m{sorted(changes.items())}", config=config)}


def test_architecture_nobody_knows() -> None:
    known = variant("Qwen/Qwen3-8B", architectures=["NoSuchForCausalLM"])
    report = launch("m", checkpoints=known)
    assert report.outcome is Outcome.UNKNOWN
    assert any("NoSuchForCausalLM" in reason for reason in report.unknowns)


def test_broken_config_is_an_unknown_not_an_error() -> None:
    known = variant("Qwen/Qwen3-8B", num_hidden_layers="many")
    report = launch("m", checkpoints=known)
    assert any("num_hidden_layers" in line for line in report.unknowns), report.unknowns


def test_unreadable_model_is_an_unknown() -> None:
    report = launch("no-one/no-such-model")
    assert report.unknowns
    assert not [f for f in report.errors if f.rule.startswith("KV1")]


def test_the_rest_stands_on_other_gpus() -> None:
    backends = {gpu: launch(V3, gpu).plan.backends for gpu in ("a100-80", "h100", "b200")}
    assert backends["a100-80"] != backends["h100"] != backends["b200"]
