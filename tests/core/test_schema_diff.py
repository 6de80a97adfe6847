"""What changed between two releases, and what that does to a launch."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.core.options import catalogue, stored_versions
from kvtui.core.schema_diff import Schema, diff_schemas, touching
from tests.support import draft_of


def schema(*rows: dict[str, Any]) -> Schema:
    """A schema as an engine answers it."""
    usual = {"kind": "value", "help": "", "choices": None, "default": None}
    named = [
        {**usual, "name": row["flags"][0].lstrip("-").replace("-", "_"), **row} for row in rows
    ]
    return {"engine_version": "x", "options": named}


OLD = schema(
    {"flags": ["--gone"]},
    {"flags": ["--kv-cache-dtype"], "choices": ["auto", "fp4_e2m1"], "default": "auto"},
    {"flags": ["--page-size"], "default": 1},
    {"flags": ["--tp-size", "--tp", "--shards"]},
    {"flags": ["--free"], "choices": None},
    {"flags": ["--disable-cuda-graph"], "kind": "flag"},
)
NEW = schema(
    {"flags": ["--kv-cache-dtype"], "choices": ["auto", "nvfp4"], "default": "auto"},
    {"flags": ["--page-size"], "default": None},
    {"flags": ["--tp-size", "--tp"]},
    {"flags": ["--free"], "choices": ["a", "b"]},
    {"flags": ["--disable-cuda-graph"], "kind": "deprecated_flag", "new_flag": "--graphs-off"},
    {"flags": ["--fresh"]},
)


def test_every_kind_of_change() -> None:
    texts = {(c.kind, c.option): c.text for c in diff_schemas(OLD, NEW)}
    assert texts == {
        ("went", "gone"): "--gone is gone",
        ("came", "fresh"): "--fresh is new",
        ("choices", "kv_cache_dtype"): "--kv-cache-dtype now without fp4_e2m1, with nvfp4",
        ("choices", "free"): "--free takes only a, b now",
        ("default", "page_size"): "--page-size defaults to None, was 1",
        ("spelling", "tp_size"): "the spelling --shards is gone, use --tp-size",
        ("deprecated", "disable_cuda_graph"): "--disable-cuda-graph is deprecated, "
        "use --graphs-off",
    }


def test_nothing_changes_in_itself() -> None:
    assert diff_schemas(OLD, OLD) == ()
    back = {(c.kind, c.option) for c in diff_schemas(NEW, OLD)}
    assert ("choices", "free") in back
    assert ("went", "fresh") in back


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--model-path m --page-size 1", []),
        ("--model-path m", ["--page-size defaults to None, was 1"]),
        (
            "--model-path m --page-size 1 --kv-cache-dtype fp4_e2m1",
            ["--kv-cache-dtype fp4_e2m1: no longer a choice"],
        ),
        ("--model-path m --page-size 1 --gone 3", ["--gone is gone"]),
        ("--model-path m --page-size 1 --tp-size 2", []),
        (
            "--model-path m --page-size 1 --disable-cuda-graph",
            ["--disable-cuda-graph is deprecated, use --graphs-off"],
        ),
    ],
)
def test_what_concerns_a_launch(argv: str, expected: list[str]) -> None:
    found = touching(diff_schemas(OLD, NEW), draft_of(argv), OLD, NEW)
    assert [change.text for change in found] == expected


def test_stored_releases() -> None:
    assert stored_versions() == ("0.5.18", "0.5.20", "0.5.22", "0.5.23")
    for version in stored_versions():
        known = catalogue(version)
        assert known.version == version
        assert known.options["model_path"].required
        assert known.options["kv_cache_dtype"].choices
    assert "dsa_prefill_cp_mode" in catalogue("0.5.18").options
    assert "dsa_prefill_cp_mode" not in catalogue("0.5.20").options
