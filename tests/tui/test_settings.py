"""The config file, the kept draft and the recent presets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtui.core.draft import Draft
from kvtui.errors import InputError
from kvtui.tui.settings import Settings, read_settings


def test_a_missing_file_means_the_defaults(tmp_path: Path) -> None:
    settings = read_settings(tmp_path / "no.toml", tmp_path)
    assert settings.theme == ""
    assert settings.glyphs == "auto"


def test_a_file_is_read(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        'theme = "kvtui-light"\nglyphs = "ascii"\nmodels = ["/data"]\n[keys]\n"pool.run" = "P"\n'
    )
    settings = read_settings(config, tmp_path)
    assert settings.theme == "kvtui-light"
    assert settings.keymap == {"pool.run": "P"}
    assert settings.model_folders == ("/data",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("theme = 3", "theme: text"),
        ('glyphs = "runes"', "auto, unicode, ascii"),
        ("keys = 1", "keys"),
        ('models = "here"', "list of folders"),
        ("colour = 1", "unknown key colour"),
        ("= nonsense", "config.toml"),
    ],
)
def test_a_bad_file_is_named_with_what_was_expected(
    tmp_path: Path, text: str, expected: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    with pytest.raises(InputError, match=expected):
        read_settings(config, tmp_path)


def test_a_draft_is_kept_and_offered(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path)
    draft = Draft(options={"model_path": "a/b", "page_size": 16}, env={"X": "1"}, gpu="t4")
    settings.keep_draft(draft)
    kept = settings.kept_draft()
    assert kept is not None
    assert kept[0] == draft
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"options": 3}', '{"options": {}, "env": []}'])
def test_a_spoilt_kept_draft_is_no_offer(tmp_path: Path, text: str) -> None:
    (tmp_path / "last-draft.json").write_text(text)
    assert Settings(state=tmp_path).kept_draft() is None


def test_recent_presets_are_those_that_still_exist(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path / "state")
    for name in ("a", "b"):
        path = tmp_path / f"{name}.toml"
        path.write_text("")
        settings.remember(str(path))
    settings.remember(str(tmp_path / "a.toml"))
    assert [recent.name for recent in settings.recent()] == ["a", "b"]
    (tmp_path / "a.toml").unlink()
    assert [recent.name for recent in settings.recent()] == ["b"]
