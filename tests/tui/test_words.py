"""Numbers and values as short text; signs that survive ASCII."""

from __future__ import annotations

import pytest

from kvtui.core.findings import Change
from kvtui.tui.glyphs import ASCII, UNICODE, choose_glyphs, plain
from kvtui.tui.words import (
    age_text,
    cell_text,
    change_text,
    count_text,
    flag_of,
    gib_text,
    value_text,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0.0 GiB"), (3 * GIB, "3.0 GiB"), (141 * GIB, "141 GiB"), (1900 * GIB, "1.9 TiB")],
)
def test_bytes(size: int, text: str) -> None:
    assert gib_text(size) == text


@pytest.mark.parametrize(
    ("size", "text"), [(656, "656 B"), (147456, "144 KiB"), (41472, "40.5 KiB"), (9000, "9,000 B")]
)
def test_bytes_per_token(size: int, text: str) -> None:
    assert cell_text(size) == text


@pytest.mark.parametrize(
    ("number", "text"), [(7, "7"), (9999, "9,999"), (74258, "74k"), (1485172, "1.5M")]
)
def test_counts(number: int, text: str) -> None:
    assert count_text(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "just now"), (12, "12 s ago"), (600, "10 min ago"), (90000, "25 h ago")],
)
def test_ages(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


def test_values_read_as_they_are_typed() -> None:
    assert value_text(True) == "on"
    assert value_text(0.835) == "0.835"
    assert value_text([1, 2]) == "1 2"
    assert value_text({"a": 1}) == '{"a": 1}'


def test_changes_read_as_the_command_line() -> None:
    assert change_text(Change("kv_cache_dtype", "fp8_e4m3")) == "--kv-cache-dtype fp8_e4m3"
    assert change_text(Change("enable_hisparse", True)) == "--enable-hisparse"
    assert change_text(Change("kv_cache_dtype")) == "drop --kv-cache-dtype"
    assert change_text(Change("env:SGLANG_X", "1")) == "SGLANG_X=1"
    assert flag_of("hicache_ratio") == "--hicache-ratio"


def test_plain_text_keeps_its_width() -> None:
    text = "✓ ✗ … › ● ─ ╭ █ ≈ 模"
    assert plain(text).isascii()
    assert len(plain(text)) == len(text)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, "unicode"),
        ({"LANG": "en_US.UTF-8"}, "unicode"),
        ({"LANG": "C"}, "ascii"),
        ({"LC_ALL": "de_DE.ISO-8859-1", "LANG": "en_US.UTF-8"}, "ascii"),
        ({"TERM": "dumb"}, "ascii"),
    ],
)
def test_signs_follow_the_terminal(env: dict[str, str], name: str) -> None:
    assert choose_glyphs("auto", env).name == name
    assert choose_glyphs("ascii", env) is ASCII
    assert choose_glyphs("unicode", env) is UNICODE
