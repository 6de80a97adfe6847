"""Write down what differs by release: `options-VERSION.json`, `lacks-VERSION.json`.

    python scripts/engine_facts.py --version 0.5.23 --cache ~/.cache/kvtui-engine
    python scripts/engine_facts.py --engine "docker run --rm -i IMAGE python3"

asks that engine through kvtui's own probe for every option, and which rules' examples it accepts
(for the release that the rules describe: what it refuses at another moment than a probe sees).
With `--check` it writes nothing and exits 1 where a stored table is stale; `--options` leaves the
rules out.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from engine_facts_rules import lacking_of

from kvtui.errors import InputError
from kvtui.probe.engine.client import EngineError, ask_once
from kvtui.probe.engine.discover import EnginePython, find_engine

TABLES = Path(__file__).resolve().parents[1] / "src" / "kvtui" / "core" / "tables"


def engine_of(wanted: str) -> EnginePython:
    """The engine that is meant; raises EngineError."""
    found = find_engine(wanted)
    if found is None:
        raise EngineError("no SGLang was found", "name one with --engine")
    return found


def table_of(engine: EnginePython) -> dict[str, Any]:
    """The engine's answer to `schema`; raises EngineError where it is not fit for a table."""
    answer = ask_once(engine, [{"ask": "schema"}])[0]
    if not isinstance(answer.get("options"), list):
        raise EngineError(f"{engine.place}: {answer.get('error', 'no options in its answer')}")
    strange = {row["action"] for row in answer["options"] if "action" in row}
    if strange:
        raise EngineError(f"argparse actions unknown to the probe: {', '.join(sorted(strange))}")
    return answer


def tables_of(engine: EnginePython, *, options_only: bool) -> dict[str, str]:
    """File name and text of every table of one release."""
    table = table_of(engine)
    version = table["engine_version"]
    texts = {f"options-{version}.json": text_of(table)}
    if options_only:
        return texts
    lacks = {"engine_version": version, "rules": lacking_of(engine)}
    return {**texts, f"lacks-{version}.json": json.dumps(lacks, indent=1) + "\n"}


def text_of(table: dict[str, Any]) -> str:
    """The table as it is stored: one option a line, so that releases diff well."""
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in table["options"])
    version = json.dumps(table["engine_version"])
    return f'{{"engine_version": {version}, "options": [\n{rows}\n]}}\n'


def main() -> int:
    """Write or check the table; the exit code says whether the stored one was fresh."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=TABLES, help="where tables lie")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--options", action="store_true", help="the option table alone")
    parser.add_argument("--version", help="release to look for in the cache")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/kvtui-engine"))
    parser.add_argument("--engine", default="auto", help="a Python or a command that starts one")
    wanted = parser.parse_args()
    engine = wanted.engine
    if wanted.version:
        engine = str(wanted.cache.expanduser() / f"sglang-{wanted.version}")
    try:
        texts = tables_of(engine_of(engine), options_only=wanted.options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    stale = False
    for name, text in texts.items():
        path = wanted.folder / name
        fresh = path.exists() and path.read_text(encoding="utf-8") == text
        stale |= not fresh
        if not wanted.check:
            path.write_text(text, encoding="utf-8")
        print(f"{name}: {'fresh' if fresh else 'stale' if wanted.check else 'written'}")
    return 1 if stale and wanted.check else 0


if __name__ == "__main__":
    sys.exit(main())
