"""A draft as words and back."""

from __future__ import annotations

import shlex

from hypothesis import given, settings

from kvtui.core.argv import parse
from kvtui.core.command import argv_of, command_parts, command_text, option_words
from kvtui.core.draft import Draft
from kvtui.core.options import catalogue
from tests.core.strategies import drafts


@settings(max_examples=150, deadline=None)
@given(drafts())
def test_words_read_back_as_the_draft(draft: Draft) -> None:
    again = parse(argv_of(draft))
    assert again.options == draft.options
    assert again.unknown == ()


@settings(max_examples=60, deadline=None)
@given(drafts())
def test_text_reads_back_as_the_draft(draft: Draft) -> None:
    again = parse(shlex.split(command_text(draft).replace(" \\\n  ", " ")))
    assert again.options == draft.options
    assert again.env == draft.env


def test_order_is_canonical_and_spelling_the_main_one() -> None:
    a = parse(
        shlex.split("--page-size 64 --tensor-parallel-size 2 --model m --kv-cache-dtype auto")
    )
    b = parse(shlex.split("--kv-cache-dtype auto --model-path m --tp 2 --page-size 64"))
    expected = "sglang serve --model-path m --tp-size 2 --kv-cache-dtype auto --page-size 64"
    assert argv_of(a) == argv_of(b) == tuple(expected.split())


def test_unknown_words_are_not_lost() -> None:
    draft = parse(shlex.split("--model-path m --cuda-graph-bs-decode 1 2 --nope 5 stray"))
    words = argv_of(draft)
    assert words[-2:] == ("--nope", "5") or "--nope" in words
    assert parse(words).unknown_groups == draft.unknown_groups


def test_a_switch_off_is_written_with_no() -> None:
    option = catalogue().options["lora_strict_loading"]
    assert option_words(option, False) == ("--no-lora-strict-loading",)
    assert option_words(catalogue().options["disable_radix_cache"], False) == ()


def test_values_that_look_like_options_are_tied_to_theirs() -> None:
    draft = Draft({"model_path": "m", "served_model_name": "--tp"})
    assert "--served-model-name=--tp" in argv_of(draft)


def test_parts_keep_values_with_their_option() -> None:
    parts = command_parts(parse(shlex.split("--model-path m --cuda-graph-bs-decode 1 2")))
    assert parts[-1] == ("--cuda-graph-bs-decode", "1", "2")
