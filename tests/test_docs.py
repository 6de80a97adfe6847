"""Generated pages are fresh, and every command in the documents runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from kvtui.cli import main
from kvtui.core import option_pages, rulebook

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
GENERATED = {"rules.md", "options.md"}
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """(page, command) of every shell line that starts kvtui."""
    found = []
    for page in PAGES:
        if page.name in GENERATED:
            continue
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            found += [(page.name, line) for line in block.splitlines() if line.startswith("kvtui ")]
    return found


def test_there_are_commands() -> None:
    assert len(commands()) > 15


def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    case = {"id": "chat", "argv": ["--model-path", "Qwen/Qwen3-8B"], "gpu": "h200"}
    Path("launches.jsonl").write_text(json.dumps(case) + "\n")
    broken = {}
    for page, line in commands():
        words = shlex.split(line.split(" > ")[0])[1:]
        code = main(words)
        err = capsys.readouterr().err
        if code not in (0, 1) or "Traceback" in err:
            broken[f"{page}: {line}"] = (code, err)
    assert broken == {}


def test_rules_page_is_fresh() -> None:
    assert (ROOT / "docs/rules.md").read_text(encoding="utf-8") == rulebook.as_markdown(), (
        "run `make docs`"
    )


def test_options_page_is_fresh() -> None:
    assert (ROOT / "docs/options.md").read_text(encoding="utf-8") == option_pages.as_markdown(), (
        "run `make docs`"
    )


def test_links_between_documents_lead_somewhere() -> None:
    dead = []
    for page in PAGES:
        if page.name in GENERATED:
            continue
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http") and not (page.parent / target).exists():
                dead.append(f"{page.name}: {target}")
    assert dead == []
