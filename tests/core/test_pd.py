"""Prefill and decode servers: what their role sets and excludes."""

from __future__ import annotations

import pytest

from kvtui.core.steps.pd_encoder import ib_complaint
from tests.support import judge

DECODE = "--model-path Qwen/Qwen3-8B --disaggregation-mode decode"
PREFILL = "--model-path Qwen/Qwen3-8B --disaggregation-mode prefill"


def test_a_decode_server_keeps_no_prefixes_unless_told_to() -> None:
    assert judge(DECODE).plan.values["disable_radix_cache"] is True
    kept = judge(f"{DECODE} --disaggregation-decode-enable-radix-cache --disable-radix-cache")
    assert kept.plan.values["disable_radix_cache"] is False
    assert kept.errors == ()


@pytest.mark.parametrize(
    ("more", "slots"),
    [("", 0), ("--max-running-requests 20", 40), ("--max-running-requests 32", 64),
     ("--max-running-requests 33", 0),
     ("--max-running-requests 64 --tp-size 2 --attn-dp-size 2", 64),
     ("--disaggregation-decode-extra-slots 7 --max-running-requests 20", 7)],
)  # fmt: skip
def test_extra_slots(more: str, slots: int) -> None:
    assert judge(f"{DECODE} {more}").plan.values["disaggregation_decode_extra_slots"] == slots


def test_mooncake_over_tcp() -> None:
    report = judge(f"{DECODE} --disaggregation-transfer-backend mooncake_tcp "
                   "--disaggregation-ib-device mlx5_0")  # fmt: skip
    assert report.plan.values["disaggregation_transfer_backend"] == "mooncake"
    assert report.plan.values["disaggregation_ib_device"] is None
    assert report.errors == ()


def test_receiving_into_host_memory_retracts_there() -> None:
    report = judge(f"{DECODE} --disaggregation-decode-host-receive-threshold 0.5")
    assert report.plan.values["disaggregation_decode_retraction_backup"] == "host_pool"
    assert report.plan.values["hicache_mem_layout"] == "layer_first"
    assert {f.rule for f in report.errors} == {"KV553"}


def test_prefill_complete_tells_all_that_it_excludes() -> None:
    report = judge(
        f"{PREFILL} --disaggregation-decode-allocation-policy prefill_complete "
        "--disaggregation-transfer-backend nixl --tp-size 2 --enable-pd-role-switch"
    )
    (finding,) = (f for f in report.errors if f.rule == "KV500")
    for word in ("mooncake", "tensor-parallel", "role switching"):
        assert word in finding.message


def test_prefill_complete_starts_prompts_early() -> None:
    report = judge(f"{PREFILL} --disaggregation-decode-allocation-policy prefill_complete")
    assert report.errors == ()
    assert report.plan.values["optimistic_prefill_attempts"] == 1


def test_role_switch_names_every_obstacle() -> None:
    report = judge(f"{PREFILL} --enable-pd-role-switch --tp-size 2 --pp-size 2 --dcp-size 2")
    (finding,) = (f for f in report.errors if f.rule == "KV511")
    assert "pipeline" in finding.message
    assert "context" in finding.message


def test_both_sides_are_told_what_must_match() -> None:
    (note,) = (f for f in judge(f"{DECODE} --page-size 64").findings if f.rule == "KV558")
    assert "page size 64" in note.message


@pytest.mark.parametrize(
    ("text", "bad"),
    [("mlx5_0", False), ("mlx5_0, mlx5_1", False), ('{"0": "mlx5_0", "1": "mlx5_1"}', False),
     ("devices.json", False), ("", True), (" , ", True), ("{bad", True), ("{}", True),
     ('{"a": "mlx5_0"}', True), ('{"0": 1}', True), ('{"0": ","}', True)],
)  # fmt: skip
def test_infiniband_devices(text: str, bad: bool) -> None:
    assert (ib_complaint(text) is not None) is bad
