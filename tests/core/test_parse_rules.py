"""What the rules of stage parse say about a command line."""

from __future__ import annotations

import shlex

import pytest

from kvtui.core.argv import parse
from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from kvtui.core.findings import Finding
from kvtui.core.options import catalogue
from kvtui.core.resolution import Resolution
from kvtui.core.steps.parse import PARSE
from kvtui.core.steps.parse_rewrites import SILENT_REWRITES
from kvtui.core.translate import changes_for, translations


def judge(draft: Draft) -> Resolution:
    r = Resolution(draft, Facts(), {**catalogue().defaults, **draft.options})
    for part in PARSE:
        part.run(r)
    return r


def findings(line: str) -> list[Finding]:
    return judge(parse(["--model-path", "m", *shlex.split(line)])).findings


@pytest.mark.parametrize(
    ("line", "rule", "option", "fix"),
    [
        ("--mem-fracton-static 0.8", "KV001", "mem_fracton_static", {"mem_fraction_static": 0.8}),
        ("--mem_fraction_static 0.8", "KV001", "mem_fraction_static", {"mem_fraction_static": 0.8}),
        ("--speculative-draft x", "KV002", "speculative_draft",
         {"speculative_draft_model_path": "x"}),
        ("--max-model-len 8192", "KV003", "max_model_len", {"context_length": 8192}),
        ("--gpu-memory-utilization=0.9", "KV003", None, {"mem_fraction_static": 0.9}),
        ("--enable-prefix-caching", "KV003", None, {}),
        ("-tp 8", "KV003", None, {"tp_size": 8}),
        ("--kv_cache_free_gpu_memory_fraction 0.8", "KV003", None, {"mem_fraction_static": 0.8}),
        ("--nsa-prefill fa3", "KV004", "nsa_prefill", {"dsa_prefill_backend": "fa3"}),
        ("--nsa-decode-backend fa3", "KV004", None, {"dsa_decode_backend": "fa3"}),
        ("--cuda-graph-max-bs 32", "KV004", None, {"cuda_graph_max_bs_decode": 32}),
        ("--mamba-scheduler-strategy extra_buffer", "KV004", None,
         {"mamba_radix_cache_strategy": "extra_buffer"}),
        ("--enable-ep-moe --tp 4", "KV004", None, {"ep_size": 4}),
        ("--torchao-config int8dq", "KV004", "torchao_config", {}),
        ("--disaggregation-decode-enable-hicache", "KV004", None,
         {"enable_hierarchical_cache": True}),
        ("--page-size abc", "KV005", "page_size", {"page_size": None}),
        ("--max-total-tokens 1K", "KV005", "max_total_tokens", {"max_total_tokens": 1000}),
        ("--kv-cache-dtype fp8", "KV006", "kv_cache_dtype", {"kv_cache_dtype": "fp8_e4m3"}),
        ("--kv-cache-dtype fp4_e2m1", "KV006", "kv_cache_dtype", {"kv_cache_dtype": "nvfp4"}),
        ("--attention-backend cutlass_mla", "KV006", "attention_backend",
         {"attention_backend": "cutedsl_mla"}),
        ("--hicache-mem-layout page-first", "KV006", "hicache_mem_layout",
         {"hicache_mem_layout": "page_first"}),
        ("--disable-radix-cache=true", "KV007", "disable_radix_cache",
         {"disable_radix_cache": True}),
        ("--page-size", "KV007", "page_size", {}),
        ("--mm-process-config {a", "KV009", "mm_process_config", {"mm_process_config": None}),
        ("--config serve.json", "KV010", "config", {"config": None}),
        ("--page-size 8 9", "KV011", None, {}),
        ("--config=serve.yaml", "KV012", "config", {"config": "serve.yaml"}),
        ("--log-level verbose", "KV013", "log_level", {"log_level": "info"}),
        ("--disable-cuda-graph", "KV014", "disable_cuda_graph",
         {"cuda_graph_backend_decode": "disabled"}),
        ("--help", "KV015", None, {}),
    ],
)  # fmt: skip
def test_word_is_judged(line: str, rule: str, option: str | None, fix: dict[str, object]) -> None:
    found = findings(line)
    assert [f.rule for f in found] == [rule]
    if option is not None:
        assert found[0].option == option
    assert found[0].fixes
    changes = {c.option: c.value for c in found[0].fixes[0].changes}
    assert fix.items() <= changes.items()


def test_no_model_is_named() -> None:
    assert [f.rule for f in judge(parse(["--tp", "2"])).findings] == ["KV008"]


def test_everything_wrong_is_reported_at_once() -> None:
    found = findings("--nope 1 --page-size x --kv-cache-dtype fp8 --max-model-len 8 stray --tp")
    assert {f.rule for f in found} == {"KV001", "KV003", "KV005", "KV006", "KV007"}


def test_illegal_values_do_not_reach_later_steps() -> None:
    r = judge(parse(shlex.split("--model-path m --page-size x")))
    assert r.page_size is None
    assert r.raw.page_size is None
    assert r.chose("page_size")


def test_a_file_that_was_not_read_leaves_a_doubt() -> None:
    r = judge(parse(shlex.split("--model-path m --config f.yaml")))
    assert r.findings == []
    assert r.unknowns == ["the options in f.yaml were not read"]


@pytest.mark.parametrize("word", translations().options)
def test_translations_are_rules_of_today(word: str) -> None:
    """Each entry names options that exist, and its fix leaves nothing of the old word behind."""
    known = catalogue()
    old = translations().options[word]
    assert word not in known.by_flag
    assert all(name in known.options or name.startswith("env:") for name in old.to)
    draft = parse(["--model-path", "m", word])
    if draft.unknown:
        changed = draft.with_changes(changes_for(old, draft.unknown_groups[0], draft))
        assert changed.unknown == ()


def test_translated_values_are_choices_of_today() -> None:
    known = catalogue().options
    for (name, word), old in translations().values.items():
        choices = known[name].choices
        assert choices is None or word not in choices, (name, word)
        assert choices is None or set(old.to) <= set(choices), (name, word)


def test_silent_rewrite_names_both_values() -> None:
    draft = parse(shlex.split("--model-path m --page-size 1 --attention-backend fa3"))
    r = Resolution(draft, Facts(), {**catalogue().defaults, **draft.options})
    r.declare("flashmla reads pages of 64", page_size=64)
    r.default("unset", chunked_prefill_size=8192)
    for part in SILENT_REWRITES:
        part.run(r)
    assert [f.option for f in r.findings] == ["page_size"]
    message = r.findings[0].message
    assert "--page-size 1 was asked, the engine runs 64" in message
    assert "because flashmla reads pages of 64" in message
