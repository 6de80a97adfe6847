"""Command lines are read as the released engine reads them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtui.core.argv import classify, parse, split_program
from kvtui.core.draft import Draft, unknown_groups
from kvtui.core.findings import Change
from kvtui.core.options import catalogue

GOLDEN = Path(__file__).parent / "golden"
RECORDED = [
    json.loads(line)
    for line in (GOLDEN / "parse-0.5.23.jsonl").read_text(encoding="utf-8").splitlines()
]


def read_config(path: str) -> str:
    return (GOLDEN / "config" / path).read_text(encoding="utf-8")


def refused(draft: Draft) -> bool:
    known = catalogue().options
    illegal = any(known[name].problem(value) for name, value in draft.options.items())
    missing = draft.options.get("model_path") is None
    return illegal or missing or bool(draft.unknown) or bool(draft.misread)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: shlex.join(case["argv"])[:60])
def test_reads_what_the_engine_read(case: dict[str, Any]) -> None:
    """Recorded by scripts/record_parse.py from the released engine's own parser."""
    draft = parse(case["argv"], read_file=read_config)
    assert refused(draft) == bool(case.get("refused"))
    if not refused(draft):
        defaults = catalogue().defaults
        chosen = {k: v for k, v in draft.options.items() if v != defaults[k]}
        assert chosen == case["ok"] | ({} if chosen["model_path"] != "m" else {"model_path": "m"})


def test_recorded_cases_cover_both_outcomes() -> None:
    outcomes = [bool(case.get("refused")) for case in RECORDED]
    assert len(outcomes) > 300
    assert 100 < sum(outcomes) < len(outcomes) - 100


@pytest.mark.parametrize(
    ("line", "env", "rest"),
    [
        ("sglang serve m --tp 2", {}, ("m", "--tp", "2")),
        ("A=1 B=x=y sglang serve --tp 2", {"A": "1", "B": "x=y"}, ("--tp", "2")),
        ("env A=1 python3 -m sglang.launch_server --tp 2", {"A": "1"}, ("--tp", "2")),
        ("/usr/bin/python3.12 -u -m sglang.launch_server --tp 2", {}, ("--tp", "2")),
        ("--tp 2", {}, ("--tp", "2")),
    ],
)
def test_program_words_are_taken_off(line: str, env: dict[str, str], rest: tuple[str, ...]) -> None:
    assert split_program(shlex.split(line)) == (env, rest)


def test_first_word_names_the_model() -> None:
    assert parse(["Qwen/Qwen3-8B", "--tp", "2"]).options == {
        "model_path": "Qwen/Qwen3-8B",
        "tp_size": 2,
    }


def test_model_type_belongs_to_the_entry_point() -> None:
    assert parse(["--model-type", "llm", "--model-path", "m"]).unknown == ()
    assert parse(["--model-type=diffusion", "--model-path", "m"]).unknown == (
        "--model-type=diffusion",
    )


def test_other_spellings_are_remembered() -> None:
    draft = parse(shlex.split("--model m --mem-frac 0.8 --tp-size 2"))
    assert draft.spelled == {"model_path": "--model", "mem_fraction_static": "--mem-frac"}


def test_illegal_values_stay_as_text() -> None:
    draft = parse(shlex.split("--model-path m --page-size x --cuda-graph-bs-decode 1 y"))
    assert draft.options["page_size"] == "x"
    assert draft.options["cuda_graph_bs_decode"] == [1, "y"]


def test_refused_first_value_is_kept_though_a_later_one_replaces_it() -> None:
    draft = parse(shlex.split("--model-path m --page-size x --page-size 16"))
    assert draft.options["page_size"] == 16
    assert draft.unknown == ("--page-size=x",)


def test_unknown_words_keep_their_values() -> None:
    draft = parse(shlex.split("--model-path m --nope 1 2 --tp 2 stray --odd=3"))
    assert draft.unknown_groups == (("stray",), ("--nope", "1", "2"), ("--odd=3",))


def test_a_change_takes_an_unknown_word_out() -> None:
    draft = parse(shlex.split("--model-path m --nope 1 2 --odd=3"))
    assert draft.with_changes([Change("unknown:--nope")]).unknown == ("--odd=3",)
    assert draft.with_changes([Change("unknown:--odd=3")]).unknown == ("--nope", "1", "2")


def test_config_is_only_named_where_it_can_not_be_read() -> None:
    draft = parse(shlex.split("--model-path m --config f.yaml"))
    assert draft.options["config"] == "f.yaml"
    assert not draft.misread


@pytest.mark.parametrize("name", ["underscore", "switch", "list", "deprecated", "lora"])
def test_unusable_config_files_are_named(name: str) -> None:
    draft = parse(["--model-path", "m", "--config", f"{name}.yaml"], read_file=read_config)
    assert draft.misread or draft.unknown


def test_broken_yaml_is_one_line() -> None:
    draft = parse(["--model-path", "m", "--config", "f.yaml"], read_file=lambda _: "a: [")
    assert draft.misread == {"config": "f.yaml: no valid YAML in line 1"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(sorted(catalogue().by_flag)),
            st.text(max_size=8),
            st.text(max_size=5).map("--".__add__),
        ),
        max_size=8,
    )
)
def test_never_raises(words: list[str]) -> None:
    draft = parse(words)
    assert all(word is not None for word in draft.unknown)
    assert unknown_groups(draft.unknown) == draft.unknown_groups


def test_abbreviations_resolve_as_argparse_does() -> None:
    assert classify("--mem-fraction").flag == "--mem-fraction-static"
    assert len(classify("--cuda-graph-max-bs").candidates) == 2
    assert classify("-5").is_value
    assert classify("-x y").is_value
    assert not classify("-x").is_value
