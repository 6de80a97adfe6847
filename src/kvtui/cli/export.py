"""`kvtui export`: a judged launch as command, script, manifest, configuration or preset."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvtui import __version__
from kvtui.cli.check import exit_code
from kvtui.cli.common import (
    FactSource,
    Parser,
    add_launch_arguments,
    read_launch,
    split_words,
)
from kvtui.cli.layers import add_layer_arguments, ask_layers
from kvtui.core.evaluate import evaluate
from kvtui.core.export import EXPORTERS, ExportError, ExportJob, evidence_of
from kvtui.core.findings import Outcome
from kvtui.core.render import verdict_words
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode


def run(words: list[str], _word: str) -> int:
    """Write the export to standard output or a file; a launch that fails needs --force."""
    ours, engine_words = split_words(words)
    parser = Parser(
        "export",
        "(PRESET | -- SGLANG ARGS) --format F [options]",
        "Formats: " + ", ".join(f"{e.format} ({e.title})" for e in EXPORTERS.values()) + ".",
        (
            "kvtui export --gpu h100 --format bash -- --model-path Qwen/Qwen3-8B > serve.sh",
            "kvtui export chat --format k8s -o chat.yaml",
        ),
    )
    add_launch_arguments(parser)
    parser.add_argument("--format", choices=tuple(EXPORTERS), default="command")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there, - for standard output")
    parser.add_argument("--name", default="", help="name of the launch in the export")
    parser.add_argument("--preflight", action="store_true", help="a line that judges it again")
    parser.add_argument("--force", action="store_true",
                        help="write a launch that fails, replace a file that is there")  # fmt: skip
    parser.add_argument("--require", choices=("rules", "pool", "engine"))
    add_layer_arguments(parser)
    args = parser.parse_args(ours)
    return _export(args, engine_words)


def _export(args: argparse.Namespace, engine_words: list[str] | None) -> int:
    from kvtui.cli.pair import export_pair, pair_of
    from kvtui.cli.preset import now

    pair = pair_of(args.preset) if engine_words is None else None
    if pair is not None:
        return export_pair(args, *pair)
    draft = read_launch(args, engine_words)
    report = evaluate(draft, FactSource(download=args.download).facts(draft))
    report, broke = ask_layers(args, report)
    code = exit_code(report, args.require, broke)
    if report.outcome is Outcome.FAILS and not args.force:
        first = report.errors[0]
        print(f"kvtui: {verdict_words(report)}: {first.rule} {first.message}", file=sys.stderr)
        print("kvtui: nothing was written; --force writes it all the same", file=sys.stderr)
        return code
    gpu = report.facts.gpu
    job = ExportJob(
        draft=draft,
        evidence=evidence_of(report, __version__, now()),
        name=args.name or args.preset or "sglang",
        preflight=args.preflight,
        vendor=gpu.vendor if gpu else "nvidia",
    )
    exporter = EXPORTERS[args.format]
    try:
        text = exporter.write(job)
    except ExportError as error:
        raise InputError(str(error)) from None
    if args.output in (None, "-"):
        print(text, end="" if text.endswith("\n") else "\n")
        return code
    from kvtui.probe.presets import write_whole

    path = Path(args.output).expanduser()
    if path.exists() and not args.force:
        raise InputError(f"{path}: is there already", "say --force to replace it")
    write_whole(path, text, mode=0o755 if exporter.executable else 0o644)
    print(f"kvtui: {path}: {verdict_words(report)}", file=sys.stderr)
    return code if code is not ExitCode.NOT_CHECKED or args.require else ExitCode.STARTS
