"""Launches found in what people have: commands, scripts, manifests, configurations, logs.

Text in, drafts out: nothing is executed, and what could not be known is a named blank.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kvtui.core.imports.blanks import Blank, Found, without_marks
from kvtui.core.imports.files import (
    launches_in_dockerfile,
    launches_in_json,
    launches_in_python,
    launches_in_unit,
)
from kvtui.core.imports.keywords import CALL
from kvtui.core.imports.shell import launches_in_shell
from kvtui.core.imports.yaml_files import has_marks, launches_in_yaml
from kvtui.errors import InputError

__all__ = ["Blank", "Found", "find_launches", "kind_of"]

SIZE_LIMIT = 4 << 20
"""Characters of the largest source that is read."""

_YAML = re.compile(r"^(?:---|[\"']?[A-Za-z][\w.-]*[\"']?:(?:\s|$))", re.MULTILINE)
_DOCKERFILE = re.compile(r"^\s*FROM\s+\S+", re.MULTILINE | re.IGNORECASE)
_UNIT = re.compile(r"^\s*\[(?:Service|Unit)\]\s*$", re.MULTILINE)
_PRESET = re.compile(r"^\s*\[launch\]\s*(?:#.*)?$", re.MULTILINE)


def kind_of(text: str) -> str:
    """preset | json | unit | dockerfile | python | yaml | shell: what a source looks like."""
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("{"):
        return "json"
    if _UNIT.search(text) and "ExecStart" in text:
        return "unit"
    if start.startswith("#!") and "sh" in start.split("\n", 1)[0]:
        return "shell"
    if _PRESET.search(text) and not _YAML.search(text):
        return "preset"
    if _DOCKERFILE.search(text) and re.search(r"^\s*(?:CMD|ENTRYPOINT)\s", text, re.MULTILINE):
        return "dockerfile"
    if has_marks(text):
        return "yaml"
    if CALL.search(text):
        return "python"
    first = next((line for line in text.split("\n") if line.strip() and line[0] != "#"), "")
    return "yaml" if _YAML.match(first) else "shell"


def find_launches(text: str) -> tuple[Found, ...]:
    """Every launch in a source; raises InputError where it can't be read as what it looks like."""
    if len(text) > SIZE_LIMIT:
        raise InputError(f"the text is larger than {SIZE_LIMIT >> 20} MiB")
    text = without_marks(text.lstrip("\ufeff"))
    return tuple(_launches(kind_of(text), text))


def _launches(kind: str, text: str) -> Iterator[Found]:
    if kind == "preset":
        from kvtui.core.preset import load_preset

        yield Found(load_preset(text).draft, "preset")
    elif kind == "json":
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            yield from launches_in_json(data)
        else:
            raise InputError("no valid JSON object")
    else:
        readers = {
            "unit": launches_in_unit,
            "dockerfile": launches_in_dockerfile,
            "python": launches_in_python,
            "yaml": launches_in_yaml,
            "shell": launches_in_shell,
        }
        yield from readers[kind](text)
