"""Options that no rule looks at are known and named."""

from __future__ import annotations

from kvtui.core.options import catalogue
from kvtui.core.render import lines, to_json
from kvtui.core.scope import judged_options, unjudged
from tests.support import draft_of, judge


def test_what_decides_is_judged() -> None:
    judged = judged_options()
    decisive = {"kv_cache_dtype", "attention_backend", "page_size", "tp_size", "hicache_ratio"}
    assert decisive | {"mem_fraction_static", "disaggregation_mode"} <= judged
    assert len(judged) > 250


def test_what_does_not_is_not() -> None:
    judged = judged_options()
    assert {"enable_metrics", "watchdog_timeout", "stream_interval"}.isdisjoint(judged)
    assert len(set(catalogue().options) - judged) > 50


def test_they_are_named_in_every_answer() -> None:
    argv = "--model-path Qwen/Qwen3-8B --enable-metrics --page-size 64"
    assert unjudged(draft_of(argv)) == ("enable_metrics",)
    report = judge(argv, "h100")
    assert any("--enable-metrics" in line for line in lines(report))
    assert to_json(report)["not_judged"] == ["--enable-metrics"]
