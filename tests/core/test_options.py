"""The option table and its one validation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvtui.core.options import NEWEST, catalogue, stored_versions
from kvtui.core.suggest import nearest, nearest_choice, nearest_flag, nearest_name
from kvtui.core.values import read_human_int
from tests.core.installed import engine_home

ROOT = Path(__file__).resolve().parents[2]


def test_table_is_whole() -> None:
    known = catalogue()
    assert known.version == NEWEST in stored_versions()
    assert len(known.options) > 500
    for option in known.options.values():
        assert option.kind == "internal" or option.help, option.name
        assert "\n" not in option.help
        if option.default not in (None, []) and option.kind != "internal":
            assert option.problem(option.default) is None, option.name


def test_unknown_release_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        catalogue("0.0.1")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("page_size", [1, 64], ["x", 1.5, True, [1]]),
        ("mem_fraction_static", [0.9, 1], ["0.9", None, True]),
        ("kv_cache_dtype", ["auto", "fp8_e4m3"], ["fp8", 8]),
        ("disable_radix_cache", [True, False], ["true", 1]),
        ("cuda_graph_bs_decode", [[1, 2]], [[], [1, "x"], 4, "1"]),
        ("lora_target_modules", [[], ["q_proj"]], ["q_proj", [1]]),
        ("context_length", [8192], ["8K", "1.5Ki"]),
        ("default_chat_template_kwargs", [{"a": 1}], ["{a", "text"]),
        ("cuda_graph_config", [{"decode": {"max_bs": 4}}], [{"foo": {}}, [], "{"]),
        ("lora_paths", [["a=b"], [{"lora_path": "p", "lora_name": "n"}]], [[{"x": 1}], "a"]),
        ("log_requests_level", [0, 3], [4, "2"]),
    ],
)
def test_problem_tells_good_from_bad(name: str, good: list[Any], bad: list[Any]) -> None:
    option = catalogue().options[name]
    assert [option.problem(value) for value in good] == [None] * len(good)
    for value in bad:
        assert option.problem(value), value
    assert option.expected


@pytest.mark.parametrize(
    ("text", "value"), [("1k", 1000), ("25.6k", 25600), ("1Ki", 1024), ("2Mi", 2 << 20), (" 7", 7)]
)
def test_sizes_with_suffix(text: str, value: int) -> None:
    assert read_human_int(text) == value


@pytest.mark.parametrize("text", ["1K", "1.5Ki", "k", "", "1kk"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"whole number|decimal"):
        read_human_int(text)


def test_nearest_spellings() -> None:
    assert nearest_flag("--mem-fracton-static") == "--mem-fraction-static"
    assert nearest_flag("--completely-else-zzz") is None
    assert nearest_name("swa_full_token_ratio") == "swa_full_tokens_ratio"
    assert nearest_choice(catalogue().options["hicache_mem_layout"], "page-first") == "page_first"
    assert nearest("PageSize", ["page_size"]) == "page_size"


@pytest.mark.engine
def test_table_is_fresh() -> None:
    """The stored table is what the installed engine of that release declares."""
    engine = engine_home()
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "engine_facts.py", "--check", "--options",
         "--engine", engine / "bin" / "python"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-500:]
