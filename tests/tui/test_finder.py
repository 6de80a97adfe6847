"""Options are found by name, alias, help, and by the words of other servers."""

from __future__ import annotations

from kvtui.core.options import catalogue
from kvtui.tui.finder import find


def names(text: str) -> list[str]:
    return [hit.option.name for hit in find(text)]


def test_an_exact_name_comes_first_however_it_is_spelled() -> None:
    for text in ("page-size", "page_size", "--page-size", "page size"):
        assert names(text)[0] == "page_size"


def test_a_name_comes_before_a_help_text() -> None:
    found = names("radix")
    assert found.index("disable_radix_cache") < len(found) - 1
    assert all("radix" in name for name in found[:3])


def test_other_servers_names_are_known() -> None:
    hit = find("gpu-memory-utilization")[0]
    assert hit.option.name == "mem_fraction_static"
    assert "vLLM" in hit.through


def test_every_flag_finds_its_option() -> None:
    for option in catalogue().options.values():
        for flag in option.flags[:1]:
            assert names(flag)[0] == option.name


def test_nonsense_finds_nothing_and_nothing_finds_all() -> None:
    assert names("qqqqzz") == []
    assert len(names("")) == len([o for o in catalogue().options.values() if o.flags])
