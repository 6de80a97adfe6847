"""Unified memory: which models, back ends and neighbours it takes."""

from __future__ import annotations

import pytest

from kvtui.core.findings import Outcome
from tests.support import judge

GDN = "--model-path Qwen/Qwen3.5-27B --enable-unified-memory"
SWA = "--model-path openai/gpt-oss-20b --enable-unified-memory"
KIMI = "--model-path moonshotai/Kimi-K3 --tp-size 8 --enable-unified-memory"
DECODE = "--disaggregation-mode decode"
OFFLOAD = f"{DECODE} --disaggregation-decode-enable-offload-kvcache --hicache-storage-backend"


@pytest.mark.parametrize("launch", [GDN, SWA, f"{SWA} {DECODE}"])
def test_hybrid_models_start_on_hopper(launch: str) -> None:
    report = judge(launch, "h200")
    assert report.outcome is Outcome.STARTS, [f"{f.rule} {f.message}" for f in report.errors]
    assert report.plan.values["enable_page_major_kv_layout"] is True


@pytest.mark.parametrize(
    ("launch", "rules"),
    [
        (f"{GDN} --attention-backend torch_native", {"KV711"}),
        (f"{GDN} --linear-attn-backend helion", {"KV712"}),
        (f"{GDN} --linear-attn-decode-backend cutedsl --linear-attn-prefill-backend flashkda",
         {"KV712"}),
        (f"{GDN} --enable-lmcache", {"KV714"}),
        (f"{GDN} {DECODE} --disaggregation-transfer-backend nixl", {"KV715"}),
        (f"{GDN} {DECODE} --pp-size 2", {"KV716"}),
        (f"{SWA} {OFFLOAD} mooncake", {"KV717", "KV718"}),
        (f"{GDN} {OFFLOAD} file", {"KV718"}),
        (f"{GDN} {DECODE} --disaggregation-decode-retraction-backup host_pool", {"KV719"}),
        (f"{GDN} --speculative-algorithm NGRAM", {"KV720"}),
        (f"{GDN} --tp-size 8 --dcp-size 2", {"KV730", "KV731"}),
    ],
)  # fmt: skip
def test_limits(launch: str, rules: set[str]) -> None:
    found = {f.rule for f in judge(launch, "h200").errors}
    assert {rule for rule in found if "KV710" <= rule <= "KV739"} == rules


def test_mla_hybrids_take_more_kernels() -> None:
    for kernels in ("cutedsl", "helion"):
        rules = {f.rule for f in judge(f"{KIMI} --linear-attn-backend {kernels}", "b200").errors}
        assert "KV712" not in rules
