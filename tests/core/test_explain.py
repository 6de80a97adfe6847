"""Errors and boot logs are recognised, and unknown errors are explained by what they mention."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.explain import doc_parts, explain, known_errors
from kvtui.core.explain_bootlog import STEPS, read_boot_log
from kvtui.core.explain_mentions import meaning_of, mentions_in
from kvtui.core.options import catalogue
from kvtui.core.pipeline import PIPELINE
from kvtui.core.resolution import Rule
from tests.core.installed import engine_home

LOG = """[2026-10-30 10:00:01] server_args=ServerArgs(model_path='/m/x', tp_size=2, page_size=64)
[2026-10-30 10:00:02 TP0] Load weight begin. avail mem=78.58 GB
[2026-10-30 10:01:02 TP0] Load weight end. elapsed=60.00 s, type=Qwen3ForCausalLM, avail mem=70.58 GB, mem usage=8.00 GB.
[2026-10-30 10:01:03 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 400000, K size: 27.47 GB, V size: 27.47 GB
[2026-10-30 10:01:03 TP0] Memory pool end. avail mem=12.50 GB
[2026-10-30 10:01:09 TP0] Capture decode CUDA graph end. elapsed=5.00 s, mem usage=1.20 GB, avail mem=11.30 GB.
[2026-10-30 10:01:10 TP0] max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=40960, available_gpu_mem=11.30 GB
"""  # noqa: E501


def first(text: str) -> tuple[str | None, str | None]:
    found = explain(text)
    assert found, text
    return found[0].option, found[0].rule


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("ValueError: Unsupported KV cache type for decode offload: SWAKVPool",
         "disaggregation_decode_enable_offload_kvcache"),
        ("RuntimeError: NoOpMHATokenToKVPool.set_kv_buffer was called. This pool is only valid",
         "prefill_only_disable_kv_cache"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
         "mem_fraction_static"),
        ("launch_server.py: error: unrecognized arguments: --nope", None),
        ("[2026] Not enough memory. Please try to increase --mem-fraction-static.",
         "mem_fraction_static"),
        ("OSError: [Errno 98] Address already in use", "port"),
        ("error: argument --page-size: invalid int value: 'abc'", "page_size"),
        ("AssertionError: page_size must be >= 1, got 0", "page_size"),
    ],
)  # fmt: skip
def test_known_errors(text: str, option: str | None) -> None:
    found = explain(text)
    assert found[0].is_recognised
    assert found[0].meaning
    assert found[0].change
    if option is not None:
        assert option in found[0].options


def test_a_whole_log_is_reduced_to_its_errors() -> None:
    noise = "\n".join(f"[10:00:{n % 60:02}] Prefill batch, #new-seq: {n}" for n in range(4000))
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    log = LOG + noise + "\n" + "\n".join(f"[10:02:00 TP{rank}] {error}" for rank in range(8))
    found = explain(log)
    assert len(found) == 1
    assert found[0].option == "mem_fraction_static"
    assert found[0].line.startswith("torch.OutOfMemoryError")


def test_an_unknown_error_is_explained_by_its_options() -> None:
    found = explain("ValueError: --hicache-ratio does not support --frobnicate in SWAKVPool yet")
    assert found[0].options == ("hicache_ratio",)
    assert found[0].classes == ("SWAKVPool",)
    assert not found[0].is_recognised
    assert "not supported" in found[0].meaning


@pytest.mark.parametrize(
    ("text", "meaning", "change"),
    [
        ("--page-size and --tp-size are mutually exclusive", "exclude", "leave out one"),
        ("--page-size must be divisible by 7", "divide", "divide"),
        ("--page-size must be > 3, got 1", "outside", "a value that"),
        ("--page-size requires the moon", "missing", "add what"),
        ("--page-size is only available at night", "only in the setting", "leave out"),
        ("too small: increase --page-size", "suffice", "direction"),
        ("--page-size hm", "about --page-size", "look at"),
    ],
)
def test_turns_of_phrase(text: str, meaning: str, change: str) -> None:
    said, advice = meaning_of(text, mentions_in(text))
    assert meaning in said
    assert change in advice


def test_mentions_are_options_variables_and_classes() -> None:
    found = mentions_in("kv_cache_dtype=x with --page-size, SGLANG_A_B and MHATokenToKVPool")
    assert found.options == ("kv_cache_dtype", "page_size")
    assert found.env == ("SGLANG_A_B",)
    assert found.classes == ("MHATokenToKVPool",)
    assert not mentions_in("nothing here")


def test_the_table_names_options_of_today() -> None:
    known = catalogue().options
    ids = {part.id for part in PIPELINE if isinstance(part, Rule)}
    for error in known_errors():
        assert error.meaning.endswith(".")
        assert error.change.endswith(".")
        assert all(len(fragment) >= 8 for fragment in error.fragments)
        assert all(name in known or name.startswith("env:") for name in error.options)
        assert error.rule is None or error.rule in ids


def test_nothing_wrong_nothing_said() -> None:
    assert explain("") == ()
    assert explain(LOG * 20) == ()


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_taken(text: str) -> None:
    assert isinstance(explain(text), tuple)
    read_boot_log(text)


def test_docstrings_come_apart() -> None:
    assert doc_parts("Title.\n\nWhy: a\n  b.\nFix: c.") == ("Title.", "a b.", "c.")


def test_boot_log_figures() -> None:
    log = read_boot_log(LOG)
    assert log is not None
    assert log.launch is not None
    assert log.launch.options == {"model_path": "/m/x", "tp_size": 2, "page_size": 64}
    assert log.model_class == "Qwen3ForCausalLM"
    assert (log.weights_begin_free_gib, log.weights_end_free_gib) == (78.58, 70.58)
    assert (log.weights_gib, log.tokens, log.k_gib, log.v_gib) == (8.0, 400000, 27.47, 27.47)
    assert (log.pool_end_free_gib, log.graph_gib) == (12.5, 1.2)
    assert (log.max_running_requests, log.context_len) == (2048, 40960)
    assert log.kv_dtype == "torch.bfloat16"
    assert log.died_after == "scheduler ready"


def test_boot_log_says_where_it_ended() -> None:
    lines = LOG.splitlines()
    begun = read_boot_log("\n".join(lines[:2]))
    assert begun is not None
    assert begun.died_after == "weights begin to load"
    up = read_boot_log(LOG + "The server is fired up and ready to roll!")
    assert up is not None
    assert up.died_after is None
    assert up.reached[-1] == STEPS[-1]
    assert read_boot_log("hello") is None


FILES = ("arg_groups", "mem_cache", "disaggregation/decode_kvcache_offload_manager.py",
         "model_executor/pool_configurator.py", "managers/cache_controller.py")  # fmt: skip


def messages(root: Path) -> Iterator[str]:
    """Messages of all errors raised or asserted in an engine's start-up code."""
    for name in FILES:
        where = root / name
        for path in sorted(where.glob("*.py")) if where.is_dir() else [where]:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                raised = node.exc if isinstance(node, ast.Raise) else None
                if isinstance(raised, ast.Call) and raised.args:
                    yield skeleton(raised.args[0])
                elif isinstance(node, ast.Assert) and node.msg is not None:
                    yield skeleton(node.msg)


def skeleton(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(skeleton(v) if isinstance(v, ast.Constant) else "64" for v in node.values)
    if isinstance(node, ast.BinOp):
        return skeleton(node.left) + skeleton(node.right)
    return "64"


@pytest.mark.engine
def test_start_up_errors_of_the_release_are_recognised() -> None:
    """At least 95 % of the messages that name an option are known, the others are explained."""
    root = next(engine_home().glob("lib/python*/site-packages/sglang/srt"))
    naming = [m for m in messages(root) if re.search(r"(?<![\w-])--[a-z]", m)]
    naming = [m for m in naming if mentions_in(m).options]
    assert len(naming) > 300
    unknown = [m for m in naming if not explain(f"ValueError: {m}")[0].is_recognised]
    assert len(unknown) <= 0.05 * len(naming), "\n".join(m[:120] for m in unknown)
    for message in unknown:
        assert explain(f"ValueError: {message}")[0].options
