"""Serving options: old spellings, listeners, media, and defaults around them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kvtui.core.evaluate import Report
from kvtui.core.findings import Severity
from tests.support import errors_of, judge


def launch(argv: str, gpu: str = "h200", env: Mapping[str, str] | None = None) -> Report:
    return judge(f"--model-path Qwen/Qwen3-8B {argv}", gpu, env=env)


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        ("", "load_balance_method", "round_robin"),
        ("--disaggregation-mode prefill", "load_balance_method", "follow_bootstrap_room"),
        ("", "grammar_backend", "xgrammar"),
        ("", "tokenizer_path", "Qwen/Qwen3-8B"),
        ("--device cuda:1", "device", "cuda"),
        ("--quantization unquant", "quantization", None),
        ("--enable-return-hidden-states", "return_hidden_states_mode", "full"),
        ("--return-hidden-states-mode last", "enable_return_hidden_states", True),
        ("--tool-call-parser qwen25", "tool_call_parser", "qwen"),
        ("--disable-fast-image-processor", "image_processor_backend", "pil"),
        ("--enable-flashinfer-allreduce-fusion", "flashinfer_allreduce_fusion_backend", "auto"),
        ("--grpc-mode", "grpc_port", 40000),
        ("--skip-tokenizer-init --detokenizer-worker-num 3", "detokenizer_worker_num", 1),
        ("", "mm_feature_transport", "cpu"),
        ("--msprobe-dump-config x", "skip_server_warmup", True),
        ("", "prefill_decode_interval", 0),
    ],
)
def test_values(argv: str, name: str, value: object) -> None:
    assert launch(argv).plan.values[name] == value


def test_old_attention_names_bring_what_they_meant() -> None:
    report = judge(
        "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8 --attention-backend tokenspeed_mla",
        "b200",
    )
    assert report.plan.backends == ("trtllm_mla", "cutedsl_mla")
    assert report.plan.values["kv_cache_dtype"] == "fp8_e4m3"


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        ("--allowed-media-domains https://example.org", "KV1031"),
        ("--media-url-max-file-size-mb -1", "KV1031"),
        ("--mm-preprocess-cache-size-mb -1", "KV1032"),
        ("--mm-process-config '[1]'", "KV1032"),
        ("--mm-process-config '{\"image\": 1}'", "KV1032"),
        ("--ssl-keyfile key.pem", "KV1033"),
        ("--ssl-ca-certs ca.pem", "KV1033"),
        ("--enable-http-worker-reuseport", "KV1034"),
        ("--asr-max-buffer-seconds 0", "KV1035"),
        ("--enable-tokenizer-batch-encode --enable-dynamic-batch-tokenizer", "KV1037"),
        ("--limit-mm-data-per-request '{\"text\": 1}'", "KV1039"),
        ("--preferred-sampling-params '{\"watermark\": 1}'", "KV1039"),
        ("--disable-fast-image-processor --image-processor-backend torchvision", "KV1045"),
        ("--grpc-port 70000", "KV1046"),
        ("--grpc-mode --port 60000", "KV1046"),
        ("--sidecar program", "KV1047"),
        ("--grpc-port 50051 --api-key secret", "KV1048"),
        ("--mm-feature-transport cuda_vmm --pp-size 2", "KV1050"),
        ("--enable-deepseek-v4-fp4-indexer", "KV1051"),
        ("--enable-nvidia-megakernel", "KV1099"),
    ],
)
def test_refused(argv: str, rule: str) -> None:
    assert rule in errors_of(launch(argv))


def test_files_of_the_server_are_a_note_only() -> None:
    report = launch("--ssl-keyfile key.pem --ssl-certfile cert.pem")
    notes = [f for f in report.findings if f.rule == "KV1033"]
    assert [f.severity for f in notes] == [Severity.NOTE]


def test_a_package_that_may_be_missing_leaves_the_verdict_open() -> None:
    assert "granian" in " ".join(launch("--enable-http2").unknowns)


def test_ports_of_two_listeners_differ() -> None:
    assert "KV1077" in errors_of(launch("", env={"SGLANG_GRPC_PORT": "30000"}))
