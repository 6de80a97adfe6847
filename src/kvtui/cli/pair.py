"""Prefill/decode pairs on the command line: judged together, exported together."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kvtui import __version__
from kvtui.cli.common import FactSource, read_text
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.export.job import Evidence, ExportError, evidence_of
from kvtui.core.export.pair import PAIR_EXPORTERS
from kvtui.core.findings import Finding, Outcome
from kvtui.core.pair import ROLES, Pair, is_pair, load_pair, pair_findings, pair_outcome
from kvtui.core.preset import is_preset_name
from kvtui.core.render import finding_json, finding_lines, lines, to_json
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode

CODES = {
    Outcome.STARTS: ExitCode.STARTS,
    Outcome.FAILS: ExitCode.FAILS,
    Outcome.UNKNOWN: ExitCode.NOT_CHECKED,
}


def pair_of(name: str | None) -> tuple[str, Pair] | None:
    """The pair that a preset's name or file holds, or None where it holds a single launch."""
    path = _path(name) if name else None
    if path is None or not path.is_file():
        return None
    text = read_text(str(path))
    return (path.stem, load_pair(text, str(path))) if is_pair(text) else None


def _path(name: str) -> Path | None:
    from kvtui.probe.presets import preset_folders

    if name.endswith(".toml") or "/" in name:
        return Path(name).expanduser()
    if not is_preset_name(name):
        return None
    places = (f / part / f"{name}.toml" for f in preset_folders() for part in (".", "pairs"))
    return next((place for place in places if place.is_file()), None)


Judged = tuple[dict[str, Report], tuple[Finding, ...], Outcome]


def judge_pair(pair: Pair, source: FactSource) -> Judged:
    """(report of each half, findings about both together, the verdict over all)."""
    reports = {r: evaluate(pair.half(r), source.facts(pair.half(r))) for r in ROLES}
    found = pair_findings(reports["prefill"], reports["decode"])
    return reports, found, pair_outcome(reports["prefill"], reports["decode"], found)


def check_pair(args: argparse.Namespace, pair: Pair) -> int:
    """Judge both halves, and what they must agree on."""
    reports, found, outcome = judge_pair(pair, FactSource(download=args.download))
    if args.json:
        halves = {role: to_json(report) for role, report in reports.items()}
        rows = [finding_json(finding) for finding in found]
        print(json.dumps({"schema": 1, "verdict": outcome.value, "findings": rows, **halves}))
        return CODES[outcome]
    for role, report in reports.items():
        print(f"{role}:")
        print("\n".join(lines(report)))
        print()
    print(f"together: {outcome.value}")
    for finding in found:
        print("\n".join(finding_lines(finding)))
    return CODES[outcome]


def export_pair(args: argparse.Namespace, name: str, pair: Pair) -> int:
    """Write both halves and the router; a pair that fails needs --force."""
    if args.format not in PAIR_EXPORTERS:
        raise InputError(
            f"--format {args.format} holds one launch",
            f"a pair goes as {', '.join(PAIR_EXPORTERS)}",
        )
    reports, found, outcome = judge_pair(pair, FactSource(download=args.download))
    if outcome is Outcome.FAILS and not args.force:
        errors = [*reports["prefill"].errors, *reports["decode"].errors, *found]
        print(f"kvtui: {errors[0].rule} {errors[0].message}", file=sys.stderr)
        print("kvtui: nothing was written; --force writes it all the same", file=sys.stderr)
        return CODES[outcome]
    try:
        text = PAIR_EXPORTERS[args.format](pair, args.name or name, _evidence(reports, found))
    except ExportError as error:
        raise InputError(str(error)) from None
    if args.output in (None, "-"):
        print(text, end="")
        return CODES[outcome]
    from kvtui.probe.presets import write_whole

    path = Path(args.output).expanduser()
    if path.exists() and not args.force:
        raise InputError(f"{path}: is there already", "say --force to replace it")
    write_whole(path, text, mode=0o755 if args.format == "bash" else 0o644)
    return CODES[outcome]


def _evidence(reports: dict[str, Report], found: tuple[Finding, ...]) -> Evidence:
    from kvtui.cli.preset import now

    halves = {role: evidence_of(report, __version__, now()) for role, report in reports.items()}
    checked = [f"{role}: {line}" for role, e in halves.items() for line in e.checked]
    checked.append(f"the pair agrees, {len(found)} findings" if not found else found[0].message)
    not_checked = tuple(dict.fromkeys(line for e in halves.values() for line in e.not_checked))
    return Evidence(__version__, halves["prefill"].time, tuple(checked), not_checked)
