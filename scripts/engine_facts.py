"""Write down every option of an installed SGLang release: `options-VERSION.json`.

    python scripts/engine_facts.py --version 0.5.23 --cache ~/.cache/kvtui-engine

finds the engine in the cache and runs this file again in that engine's own Python, where it
imports nothing of kvtui. With `--check` it writes nothing and exits 1 where the table is stale.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[1] / "src" / "kvtui" / "core" / "tables"

KINDS = {
    "_StoreAction": "value",
    "_StoreTrueAction": "flag",
    "BooleanOptionalAction": "switch",
    "DeprecatedStoreTrueAction": "deprecated_flag",
    "DeprecatedStoreConstAction": "deprecated_const",
    "LoRAPathAction": "lora_paths",
}
"""Our word for each argparse action; one that is missing here stops the generator."""


def plain(value: Any) -> Any:
    """The value where JSON can hold it, else its text."""
    try:
        json.dumps(value)
    except TypeError:
        return sorted(value) if isinstance(value, set | frozenset) else str(value)
    return value


def clean(text: str | None) -> str:
    """Help in one line."""
    return " ".join((text or "").replace("%%", "%").split())


def row_of(action: argparse.Action, groups: dict[str, str]) -> dict[str, Any]:
    """One option as the table holds it; fields at their usual value are left out."""
    kind = KINDS[type(action).__name__]
    row: dict[str, Any] = {
        "name": action.dest,
        "flags": list(action.option_strings),
        "kind": kind,
        "group": groups.get(action.dest, ""),
        "help": clean(action.help),
    }
    if kind in ("value", "lora_paths"):
        row["type"] = getattr(action.type, "__name__", None) or "str"
    if action.nargs not in (None, 0):
        row["nargs"] = action.nargs
    if action.choices is not None:
        ordered = sorted(action.choices) if isinstance(action.choices, set) else action.choices
        row["choices"] = [plain(choice) for choice in ordered]
    const = getattr(action, "const_value", None) if kind == "deprecated_const" else action.const
    if const is not None and kind in ("value", "deprecated_const"):
        row["const"] = plain(const)
    if action.default is not None and action.default is not argparse.SUPPRESS:
        row["default"] = plain(action.default)
    if action.required:
        row["required"] = True
    if getattr(action, "new_flag", None):
        row["new_flag"] = action.new_flag  # type: ignore[attr-defined]
    return row


def internal_row(field: Any, default: Any, groups: dict[str, str]) -> dict[str, Any]:
    """A field that the command line can't set, but that the engine's hooks read."""
    return {
        "name": field.name,
        "flags": [],
        "kind": "internal",
        "group": groups.get(field.name, ""),
        "help": "",
        "default": default,
    }


def engine_options() -> dict[str, Any]:
    """The whole table of the SGLang that this Python has."""
    import sglang
    from sglang.srt import server_args
    from sglang.srt.arg_groups import arg_utils

    record = server_args.ServerArgs
    parser = argparse.ArgumentParser()
    record.add_cli_args(parser)
    groups = arg_utils.namespace_of(record)
    rows = [row_of(action, groups) for action in parser._actions if action.dest != "help"]
    seen = {row["name"] for row in rows}
    for field in arg_utils.record_fields(record):
        if field.name not in seen:
            default = arg_utils._field_default(field)
            known = None if default is arg_utils._MISSING else plain(default)
            rows.append(internal_row(field, known, groups))
    return {"engine_version": sglang.__version__, "options": rows}


def text_of(table: dict[str, Any]) -> str:
    """The table as it is stored: one option a line, so that releases diff well."""
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in table["options"])
    version = json.dumps(table["engine_version"])
    return f'{{"engine_version": {version}, "options": [\n{rows}\n]}}\n'


def in_engine(version: str, cache: Path, rest: list[str]) -> int:
    """Run this file in the Python of an engine in the cache."""
    home = cache / f"sglang-{version}"
    python = home / "bin" / "python"
    if not python.exists():
        print(f"{python}: no SGLang {version} is installed there", file=sys.stderr)
        return 2
    env = {**os.environ, "LD_LIBRARY_PATH": str(home / "stub")}
    return subprocess.run([python, __file__, *rest], env=env, check=False).returncode


def main() -> int:
    """Write or check the table; the exit code says whether the stored one was fresh."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=TABLES, help="where tables lie")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--version", help="release to look for in the cache")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/kvtui-engine").expanduser())
    wanted = parser.parse_args()
    if wanted.version:
        rest = [str(wanted.folder), *(["--check"] if wanted.check else [])]
        return in_engine(wanted.version, wanted.cache, rest)
    table = engine_options()
    path = wanted.folder / f"options-{table['engine_version']}.json"
    text = text_of(table)
    if wanted.check:
        fresh = path.exists() and path.read_text(encoding="utf-8") == text
        print(f"{path.name}: {'fresh' if fresh else 'stale'}")
        return 0 if fresh else 1
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {len(table['options'])} options")
    return 0


if __name__ == "__main__":
    sys.exit(main())
