"""`kvtui check`: judge one launch, or many."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from kvtui.cli.common import (
    FactSource,
    Parser,
    add_launch_arguments,
    parse_words,
    read_input,
    read_launch,
    split_words,
)
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.findings import Outcome
from kvtui.core.render import lines, to_json
from kvtui.core.resolution import Sizing
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode

BATCH_KEYS = {"id", "argv", "gpu", "gpu_count", "tokens", "mamba_slots", "max_running_requests",
              "env"}  # fmt: skip


def run(words: list[str], _word: str) -> int:
    """Judge; the exit code is the verdict."""
    ours, engine_words = split_words(words)
    parser = Parser(
        "check",
        "(PRESET | -- SGLANG ARGS | --batch FILE) [options]",
        "Will this launch start? Rules always; the real pool and the engine where asked for.",
        (
            "kvtui check --gpu h200 -- --model-path Qwen/Qwen3-8B --kv-cache-dtype fp8_e4m3",
            "kvtui check team.toml --pool --require pool",
            "kvtui check --batch launches.jsonl --json",
        ),
    )
    add_launch_arguments(parser)
    parser.add_argument("--batch", metavar="FILE", help="one JSON object a line; - for stdin")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--require", choices=("rules", "pool", "engine"),
        help="exit with 3 unless the launch was checked that far",
    )  # fmt: skip
    parser.add_argument(
        "--report", metavar="FILE", help="write there where rules and engine differ"
    )
    from kvtui.cli.layers import add_layer_arguments

    add_layer_arguments(parser)
    args = parser.parse_args(ours)
    if args.batch is not None:
        if args.preset is not None or engine_words is not None:
            raise InputError("--batch takes no preset and no arguments of its own")
        return _batch(args)
    return _single(args, engine_words)


def _single(args: argparse.Namespace, engine_words: list[str] | None) -> int:
    from kvtui.cli.layers import ask_layers
    from kvtui.cli.pair import check_pair, pair_of

    pair = pair_of(args.preset) if engine_words is None else None
    if pair is not None:
        return check_pair(args, pair[1])
    draft = read_launch(args, engine_words)
    report = evaluate(draft, FactSource(download=args.download).facts(draft))
    report, broke = ask_layers(args, report)
    if args.report:
        _save_difference(report, args.report)
    if args.json:
        print(json.dumps(to_json(report)))
    else:
        print("\n".join(lines(report)))
    return exit_code(report, args.require, broke)


def _save_difference(report: Report, name: str) -> None:
    """Write a report that can be sent to us, where rules and engine differ."""
    from datetime import UTC, datetime
    from pathlib import Path

    from kvtui.core.difference import difference_of
    from kvtui.probe.presets import write_whole

    if not report.disagrees:
        told = report.engine_fact is not None and report.rules_outcome is not Outcome.UNKNOWN
        known = "agree" if told else "can't be compared"
        print(f"kvtui: rules and engine {known}, so {name} was not written", file=sys.stderr)
        return
    time = datetime.now(UTC).isoformat(timespec="seconds")
    data = difference_of(report, time)
    write_whole(Path(name), json.dumps(data, indent=2, default=str) + "\n")
    print(f"kvtui: rules and engine differ; {name} holds what is needed", file=sys.stderr)


def exit_code(report: Report, require: str | None, broke: bool = False) -> ExitCode:
    """The exit status that belongs to a report."""
    if report.outcome is Outcome.FAILS:
        return ExitCode.FAILS
    if broke:
        return ExitCode.PROBE_BROKE
    if report.outcome is Outcome.UNKNOWN:
        return ExitCode.NOT_CHECKED
    if require == "pool" and not (report.pool_fact and report.pool_fact.ok):
        return ExitCode.NOT_CHECKED
    if require == "engine" and not (report.engine_fact and report.engine_fact.accepted):
        return ExitCode.NOT_CHECKED
    return ExitCode.STARTS


def _batch(args: argparse.Namespace) -> int:
    source = FactSource(download=args.download)
    worst = ExitCode.STARTS
    for number, line in enumerate(read_input(args.batch).splitlines(), 1):
        if not line.strip():
            continue
        try:
            answer, code = _batch_line(line, args, source)
        except InputError as error:
            print(f"kvtui: line {number}: {error}", file=sys.stderr)
            answer = {"id": None, "verdict": "unknown", "error": str(error)}
            code = ExitCode.UNUSABLE
        worst = max(worst, code)
        if args.json:
            print(json.dumps(answer))
        else:
            first = next(iter(answer.get("findings", ())), None)
            why = f"  {first['rule']} {first['message']}" if first else ""
            print(f"{answer['id']}  {answer['verdict']}{why}")
    return worst


def _batch_line(
    line: str, args: argparse.Namespace, source: FactSource
) -> tuple[dict[str, Any], ExitCode]:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError("not JSON") from None
    if not isinstance(case, dict):
        raise InputError("a JSON object was expected")
    argv = case.get("argv")
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise InputError('"argv": a list of strings was expected')
    unknown = sorted(set(case) - BATCH_KEYS)
    if unknown:
        raise InputError(f"unknown key {unknown[0]!r}", f"known: {', '.join(sorted(BATCH_KEYS))}")
    numbers = {key: case.get(key) for key in ("tokens", "mamba_slots", "max_running_requests")}
    for key, value in {**numbers, "gpu_count": case.get("gpu_count")}.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f'"{key}": a positive whole number was expected')
    gpu = case.get("gpu", args.gpu)
    if gpu is not None and not isinstance(gpu, str):
        raise InputError('"gpu": a name was expected')
    env = case.get("env") or {}
    if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()):
        raise InputError('"env": an object of strings was expected')
    draft = replace(
        parse_words(argv), gpu=gpu, gpu_count=case.get("gpu_count", args.gpu_count), env=env
    )
    report = evaluate(draft, source.facts(draft), Sizing(**numbers))
    return {"id": case.get("id"), **to_json(report)}, exit_code(report, args.require)
