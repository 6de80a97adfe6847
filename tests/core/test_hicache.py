"""HiCache: what is rewritten, what is refused, and which host pools come to be."""

from __future__ import annotations

import pytest

from kvtui.core.evaluate import Report
from kvtui.core.findings import Stage
from kvtui.core.steps.hicache_config import file_complaint
from tests.support import judge

QWEN = "--model-path Qwen/Qwen3-8B"
HICACHE = f"{QWEN} --enable-hierarchical-cache"


def layout_of(report: Report) -> tuple[str, str]:
    """Resolved memory layout and copy back end."""
    values = report.plan.values
    return values["hicache_mem_layout"], values["hicache_io_backend"]


@pytest.mark.parametrize(
    ("asked", "store", "runs"),
    [
        (("page_first", "kernel"), None, ("page_first", "kernel")),
        (("page_first_direct", "kernel"), None, ("page_first_direct", "direct")),
        (("page_first", "direct"), None, ("page_first_direct", "direct")),
        (("layer_first", "kernel"), None, ("layer_first", "kernel")),
        (("layer_first", "kernel"), "file", ("layer_first", "kernel")),
        (("layer_first", "kernel"), "mooncake", ("page_first", "kernel")),
        (("layer_first", "direct"), "mooncake", ("page_first_direct", "direct")),
        (("layer_first", "kernel"), "npu_memcache", ("page_first", "kernel")),
        (("page_head", "direct"), "mooncake", ("page_head", "direct")),
    ],
)
def test_layout_and_copies_are_made_to_agree(
    asked: tuple[str, str], store: str | None, runs: tuple[str, str]
) -> None:
    launch = f"{HICACHE} --hicache-mem-layout {asked[0]} --hicache-io-backend {asked[1]}"
    if store:
        launch += f" --hicache-storage-backend {store}"
    assert layout_of(judge(launch)) == runs


def test_nothing_is_rewritten_where_no_host_pool_may_come() -> None:
    launch = f"{QWEN} --hicache-mem-layout page_first_direct"
    assert layout_of(judge(launch)) == ("page_first_direct", "kernel")
    decode = f"{launch} --disaggregation-mode decode"
    assert layout_of(judge(decode)) == ("page_first_direct", "direct")
    backup = f"{decode} --disaggregation-decode-retraction-backup cpu_tensor"
    assert layout_of(judge(backup)) == ("page_first_direct", "kernel")


def test_a_rewrite_of_a_choice_is_a_warning_with_both_values() -> None:
    report = judge(f"{HICACHE} --hicache-mem-layout page_first --hicache-io-backend direct")
    assert any("page_first_direct" in f.message and "page_first" in f.message
               for f in report.findings if f.option == "hicache_mem_layout")  # fmt: skip


@pytest.mark.parametrize(
    ("more", "ratio", "fraction"),
    [
        ("", 2.0, 0.8),
        ("--hicache-host-memory-mode buffer_only --hicache-storage-backend file", 1.2, 0.8),
        ("--hicache-ratio 3", 3.0, None),
        ("--hicache-size 30", 2.0, None),
        ("--disaggregation-mode decode --disaggregation-decode-enable-radix-cache", None, 0.8),
    ],
)
def test_ratio_and_share(more: str, ratio: float | None, fraction: float | None) -> None:
    values = judge(f"{HICACHE} {more}").plan.values
    assert values["hicache_ratio"] == ratio
    assert values["hicache_host_memory_fraction"] == fraction


def test_buffer_mode_writes_through() -> None:
    report = judge(
        f"{HICACHE} --hicache-host-memory-mode buffer_only --hicache-storage-backend file "
        "--hicache-write-policy write_back"
    )
    assert report.plan.values["hicache_write_policy"] == "write_through"
    assert report.errors == ()


@pytest.mark.parametrize(
    ("model", "layout", "io", "stage"),
    [
        ("Qwen/Qwen3-8B", "page_head", "kernel", None),
        ("Qwen/Qwen3-8B", "page_head", "direct", Stage.SERVE),
        ("Qwen/Qwen3-8B", "page_first_kv_split", "kernel", Stage.LOAD),
        ("Qwen/Qwen3-8B", "page_first", "kernel_ascend", Stage.SERVE),
        ("deepseek-ai/DeepSeek-V3", "page_head", "kernel", Stage.LOAD),
        ("deepseek-ai/DeepSeek-V3", "layer_first", "direct", None),
        ("Qwen/Qwen3.5-27B", "layer_first", "kernel", Stage.LOAD),
        ("Qwen/Qwen3.5-27B", "page_first_direct", "direct", None),
    ],
)
def test_host_pools_exist_and_are_copied_in_some_layouts(
    model: str, layout: str, io: str, stage: Stage | None
) -> None:
    report = judge(
        f"--model-path {model} --tp-size 8 --enable-hierarchical-cache "
        f"--hicache-mem-layout {layout} --hicache-io-backend {io}",
        "h200",
    )
    found = [f.stage for f in report.errors if f.rule in ("KV620", "KV621")]
    assert found == ([stage] if stage else []), [f.message for f in report.errors]


def test_a_decode_server_mirrors_retracted_requests_unless_told_otherwise() -> None:
    fp4 = f"{QWEN} --kv-cache-dtype fp4_mx_block16 --attention-backend triton"
    assert "KV622" not in {f.rule for f in judge(fp4).errors}
    decode = f"{fp4} --disaggregation-mode decode"
    assert "KV622" in {f.rule for f in judge(decode).errors}
    other = f"{decode} --disaggregation-decode-retraction-backup cpu_tensor"
    assert "KV622" not in {f.rule for f in judge(other).errors}


def test_deepseek_v4_wants_a_ratio() -> None:
    launch = "--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 8 --enable-hierarchical-cache"
    assert "KV624" in {f.rule for f in judge(launch, "h200").errors}
    assert "KV624" not in {f.rule for f in judge(f"{launch} --hicache-ratio 2", "h200").errors}
    assert "KV624" in {f.rule for f in judge(f"{launch} --hicache-size 30", "h200").errors}


@pytest.mark.parametrize(
    ("name", "bad"),
    [("@a.json", False), ("@a.TOML", False), ("@dir/a.yml", False), ("@a.ini", True), ("@", True)],
)
def test_configuration_files_by_name(name: str, bad: bool) -> None:
    assert (file_complaint(name) is not None) is bad


def test_a_negative_ratio_is_found_before_the_host_pool_is_built() -> None:
    report = judge(f"{HICACHE} --hicache-ratio -1")
    (finding,) = report.errors
    assert (finding.rule, finding.stage) == ("KV627", Stage.LOAD)
    assert judge(f"{HICACHE} --hicache-ratio -1 --hicache-size 30").errors == ()
