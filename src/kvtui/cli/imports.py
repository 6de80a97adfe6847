"""`kvtui import FILE|-`: launches found in commands, scripts, manifests, configurations, logs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace

from kvtui.cli.check import exit_code
from kvtui.cli.common import FactSource, Parser, parse_env, read_input
from kvtui.core.argv import parse
from kvtui.core.command import argv_of
from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.findings import Change
from kvtui.core.imports import Found, find_launches
from kvtui.core.options import catalogue
from kvtui.core.preset import Preset
from kvtui.core.proof import proof_of
from kvtui.core.render import lines
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode


def run(words: list[str], _word: str) -> int:
    """Show each launch judged; save the chosen one as a preset."""
    parser = Parser(
        "import",
        "FILE | - [options]",
        "Find SGLang launches in a command, a script, a compose or Kubernetes file, a Dockerfile, "
        "a config file, a boot log. Nothing is executed.",
        ("kvtui import serve.sh", "kubectl get deploy x -o yaml | kvtui import - --save x"),
    )
    parser.add_argument("file")
    parser.add_argument("--gpu", help="judge on this GPU")
    parser.add_argument("--pick", type=int, metavar="N", help="the Nth launch of several")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a value for a blank such as MODEL_PATH")  # fmt: skip
    parser.add_argument("--save", metavar="NAME", help="save it as a preset")
    parser.add_argument("--force", action="store_true", help="replace a preset that is there")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    found = list(find_launches(read_input(args.file)))
    if not found:
        raise InputError(f"{args.file}: no SGLang launch was found in it")
    if args.pick is not None:
        if not 1 <= args.pick <= len(found):
            raise InputError(f"--pick {args.pick}: there are {len(found)} launches")
        found = [found[args.pick - 1]]
    values = parse_env(args.set)
    source = FactSource()
    reports = []
    for item in found:
        draft = fill(item, values)
        draft = replace(draft, gpu=args.gpu or draft.gpu)
        reports.append(evaluate(draft, source.facts(draft)))
    if args.json:
        print(json.dumps([_row(i, r) for i, r in zip(found, reports, strict=True)]))
    else:
        for number, (item, report) in enumerate(zip(found, reports, strict=True), 1):
            _print(number, item, report)
    if args.save:
        _save(args.save, reports, force=args.force)
    return max((exit_code(report, None) for report in reports), default=ExitCode.STARTS)


def fill(item: Found, values: Mapping[str, str]) -> Draft:
    """The draft with blanks filled by option (`model_path`) or by variable (`MODEL_PATH`)."""
    changes = []
    for blank in item.blanks:
        for name, value in values.items():
            if name != blank.option.removeprefix("env:") and name not in blank.text:
                continue
            option = catalogue().options.get(blank.option)
            if option is None:
                changes.append(Change(blank.option, value))
            else:
                parsed = parse([option.flag, *shlex.split(value)]).options
                changes.append(Change(blank.option, parsed.get(option.name, value)))
    return item.draft.with_changes(changes)


def _row(item: Found, report: Report) -> dict[str, object]:
    return {
        "place": item.title,
        "command": list(argv_of(report.draft)),
        "env": dict(report.draft.env),
        "blanks": [{"option": blank.option, "text": blank.text} for blank in item.blanks],
        "verdict": report.outcome.value,
    }


def _print(number: int, item: Found, report: Report) -> None:
    print(f"{number}  {item.title}")
    print("   " + " ".join(argv_of(report.draft)))
    for blank in item.blanks:
        print(f"   blank: {blank.text} for {blank.option} (--set {blank.option}=VALUE)")
    for line in lines(report):
        print(f"   {line}")


def _save(name: str, reports: list[Report], *, force: bool) -> None:
    from kvtui.cli.preset import now
    from kvtui.probe.presets import save_preset

    if len(reports) != 1:
        raise InputError(f"{len(reports)} launches were found", "choose one with --pick N")
    report = reports[0]
    preset = Preset(report.draft, proof=proof_of(report, now()))
    path = save_preset(preset, name, overwrite=force)
    print(f"kvtui: saved as {path}", file=sys.stderr)
