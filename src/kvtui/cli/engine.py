"""`kvtui engine`: ask an installed SGLang directly."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kvtui.cli.common import (
    FactSource,
    Parser,
    add_launch_arguments,
    read_launch,
    read_preset,
    read_text,
    split_words,
)
from kvtui.cli.pair import pair_of
from kvtui.core.draft import Draft
from kvtui.core.evaluate import evaluate
from kvtui.core.options import catalogue
from kvtui.core.pair import ROLES
from kvtui.core.schema_diff import Schema, SchemaChange, diff_schemas, touching
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode
from kvtui.probe.engine.client import EngineError, ask_once
from kvtui.probe.engine.discover import EnginePython, find_engine

USAGE = "hello | schema | resolve | pool | diff A B"
ENGINE_HELP = "a Python, an environment's folder, or a command that starts a Python"


def run(words: list[str], _word: str) -> int:
    """Dispatch to the question."""
    parser = Parser(
        "engine",
        USAGE,
        "Ask an SGLang in any Python, container or host; nothing is installed there.",
        (
            "kvtui engine hello --engine /opt/sglang/bin/python",
            'kvtui engine schema --engine "docker run --rm -i IMAGE python3" > mine.json',
            'kvtui engine resolve --engine "ssh gpu01 /opt/sglang/bin/python" --gpu b200 -- '
            "--model-path Qwen/Qwen3-8B",
            "kvtui engine diff 0.5.20 0.5.23 presets/",
        ),
    )
    if not words or words[0] in ("-h", "--help"):
        parser.print_help()
        return ExitCode.STARTS if words else ExitCode.UNUSABLE
    actions: dict[str, Callable[[list[str]], int]] = {
        "hello": _hello, "schema": _schema, "resolve": _resolve, "pool": _resolve, "diff": _diff,
    }  # fmt: skip
    if words[0] not in actions:
        raise InputError(f"engine {words[0]}: no such question", f"one of {USAGE}")
    action = actions[words[0]]
    try:
        return action(words if action is _resolve else words[1:])
    except EngineError as error:
        print(f"kvtui: {error}", file=sys.stderr)
        return ExitCode.PROBE_BROKE


def engine_or_fail(wanted: str) -> EnginePython:
    """The engine, or a clear line on how to name one."""
    found = find_engine(wanted)
    if found is None:
        raise EngineError("no SGLang was found here", "name one with --engine PYTHON")
    return found


def say(text: str) -> None:
    """Progress for people, on stderr."""
    print(f"kvtui: {text}", file=sys.stderr)


def _hello(words: list[str]) -> int:
    parser = Parser("engine hello", "[--engine E]", "Version, torch, GPUs, attention backends.")
    parser.add_argument("--engine", default="auto", help=ENGINE_HELP)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    engine = engine_or_fail(args.engine)
    answer = ask_once(engine, [{"ask": "hello"}], on_progress=say)[0]
    if args.json:
        print(json.dumps(answer))
        return ExitCode.STARTS
    print(f"SGLang {answer.get('version')} at {answer.get('place')}")
    print(f"torch  {answer.get('torch')}, CUDA {answer.get('cuda') or 'none'}")
    gpus = answer.get("gpus") or []
    for gpu in gpus:
        sm = "".join(map(str, gpu["capability"]))
        print(f"GPU    {gpu['name']}, {gpu['memory_mib']:,} MiB, SM{sm}")
    if not gpus:
        print("GPU    none; claimed ones can be asked about with --gpu")
    here = [name for name, there in (answer.get("backends") or {}).items() if there]
    print(f"attention backends whose package is there: {', '.join(here) or 'none'}")
    return ExitCode.STARTS


def _schema(words: list[str]) -> int:
    parser = Parser("engine schema", "[--engine E]", "Every option of that engine as JSON.")
    parser.add_argument("--engine", default="auto", help=ENGINE_HELP)
    args = parser.parse_args(words)
    print(json.dumps(schema_of_engine(args.engine), indent=0, ensure_ascii=False))
    return ExitCode.STARTS


def schema_of_engine(wanted: str) -> Schema:
    """Ask an engine for its options."""
    engine = engine_or_fail(wanted)
    answer = ask_once(engine, [{"ask": "schema"}], on_progress=say)[0]
    if not isinstance(answer.get("options"), list):
        raise EngineError(f"{engine.place}: {answer.get('error', 'no schema in its answer')}")
    return answer


def _resolve(words: list[str]) -> int:
    ask = words[0]
    ours, engine_words = split_words(words[1:])
    parser = Parser(
        f"engine {ask}", "(PRESET | -- SGLANG ARGS) [options]",
        "What that engine makes of a launch, for its own GPU or a claimed one.",
    )  # fmt: skip
    add_launch_arguments(parser)
    parser.add_argument("--engine", default="auto", help=ENGINE_HELP)
    parser.add_argument("--tokens", type=int, default=4096, help="slots of the pool to build")
    args = parser.parse_args(ours)
    from kvtui.probe.engine.facts import (
        POOL_LIMIT_S,
        claim_of,
        is_abridged,
        question_of,
        verdict_of,
    )

    draft = read_launch(args, engine_words)
    report = evaluate(draft, FactSource(download=args.download).facts(draft))
    question = {**question_of(report, ask), "tokens": args.tokens}
    engine = engine_or_fail(args.engine)
    answer = ask_once(
        engine, [question], claim=claim_of(report.facts),
        limit_s=POOL_LIMIT_S, on_progress=say,
    )[0]  # fmt: skip
    print(json.dumps(answer))
    accepted = verdict_of(answer, engine.place, abridged=is_abridged(report.facts))
    return ExitCode.STARTS if accepted else ExitCode.FAILS


def _diff(words: list[str]) -> int:
    parser = Parser(
        "engine diff", "A B [PRESET …]",
        "Options that came, went, changed choices or default; what that does to presets.",
        ("kvtui engine diff 0.5.20 0.5.23", "kvtui engine diff old.json ~/venv/bin/python team/"),
    )  # fmt: skip
    parser.add_argument("old", metavar="A", help="a stored release, a schema file, or an engine")
    parser.add_argument("new", metavar="B", help="likewise")
    parser.add_argument("presets", nargs="*", help="presets or folders of them")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    old, new = _schema_from(args.old), _schema_from(args.new)
    changes = diff_schemas(old, new)
    concerned = {
        name: touching(changes, draft, old, new)
        for path in _preset_files(args.presets)
        for name, draft in _launches(path)
    }
    if args.json:
        rows = [{"kind": c.kind, "option": c.flag, "text": c.text} for c in changes]
        touched = {name: [c.text for c in found] for name, found in concerned.items()}
        print(json.dumps({"from": old["engine_version"], "to": new["engine_version"],
                          "changes": rows, "presets": touched}))  # fmt: skip
        return ExitCode.STARTS
    print(f"SGLang {old['engine_version']} -> {new['engine_version']}: {len(changes)} changes")
    for change in changes:
        print(f"  {change.kind:<10}  {change.text}")
    for name, found in concerned.items():
        print(f"{name}: {_in_short(found)}")
        for change in found:
            if change.kind != "default":
                print(f"  {change.kind:<10}  {change.text}")
    return ExitCode.STARTS


def _in_short(found: tuple[SchemaChange, ...]) -> str:
    """What concerns a preset, in one line; changed defaults are listed above for all."""
    defaults = sum(change.kind == "default" for change in found)
    named = len(found) - defaults
    parts = [f"{named} of its options change"] if named else []
    parts += [f"{defaults} defaults change that it leaves alone"] if defaults else []
    return ", ".join(parts) or "nothing changes"


def _schema_from(name: str) -> Schema:
    """A stored release, a schema file, or a live engine."""
    try:
        stored = catalogue(name)
    except KeyError:
        pass
    else:
        return {
            "engine_version": stored.version,
            "options": [_row(o) for o in stored.options.values()],
        }
    if name.endswith(".json"):
        return _schema_file(name)
    return schema_of_engine(name)


def _row(option: Any) -> dict[str, Any]:
    return {
        "name": option.name,
        "flags": list(option.flags),
        "kind": option.kind,
        "help": option.help,
        "choices": list(option.choices) if option.choices is not None else None,
        "default": option.default,
        "new_flag": option.new_flag,
    }


def _schema_file(name: str) -> Schema:
    try:
        data = json.loads(read_text(name))
    except (ValueError, RecursionError):
        raise InputError(f"{name}: not JSON; a file from `kvtui engine schema` expected") from None
    rows = data.get("options") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str)
        and isinstance(row.get("flags"), list) for row in rows
    ):  # fmt: skip
        raise InputError(f'{name}: "options" with name and flags expected')
    return {"engine_version": str(data.get("engine_version", "?")), "options": rows}


def _preset_files(names: list[str]) -> list[Path]:
    found: list[Path] = []
    for name in names:
        path = Path(name)
        found += sorted(path.glob("**/*.toml")) if path.is_dir() else [path]
    return found


def _launches(path: Path) -> Iterator[tuple[str, Draft]]:
    """(name, launch) of a preset, or of both halves of a prefill and decode pair."""
    pair = pair_of(str(path))
    if pair is None:
        yield str(path), read_preset(str(path))
        return
    for role in ROLES:
        yield f"{path} ({role})", pair[1].half(role)


def add_engine_argument(parser: argparse.ArgumentParser) -> None:
    """The argument that names an engine for words which judge launches."""
    parser.add_argument(
        "--engine", metavar="auto|off|E", default=None, help=f"ask an SGLang too: {ENGINE_HELP}"
    )
