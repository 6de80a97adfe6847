"""`kvtui compare A B`: two presets or command files side by side."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from kvtui.cli.common import FactSource, Parser, read_preset
from kvtui.core.compare import compare
from kvtui.core.evaluate import evaluate
from kvtui.exit_codes import ExitCode


def run(words: list[str], _word: str) -> int:
    """Print what differs."""
    parser = Parser(
        "compare",
        "A B [options]",
        "Two presets side by side: options, verdicts, memory, tokens.",
        ("kvtui compare dense-bf16.toml dense-fp8.toml --gpu h200",),
    )
    parser.add_argument("left", metavar="A", help="a preset's name or file")
    parser.add_argument("right", metavar="B", help="a preset's name or file")
    parser.add_argument("--gpu", help="judge both on this GPU")
    parser.add_argument("--gpu-count", type=int, metavar="N", help="GPUs on the machine")
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    args = parser.parse_args(words)
    source = FactSource()
    reports = []
    for name in (args.left, args.right):
        draft = read_preset(name)
        draft = replace(
            draft, gpu=args.gpu or draft.gpu, gpu_count=args.gpu_count or draft.gpu_count
        )
        reports.append(evaluate(draft, source.facts(draft)))
    rows = compare(reports[0], reports[1])
    if args.json:
        print(json.dumps([asdict(row) for row in rows]))
        return ExitCode.STARTS
    widths = [max(len(t) for t in texts) for texts in ([r.name for r in rows] + [""],
              [r.left for r in rows] + [args.left])]  # fmt: skip
    print(f"  {'':<{widths[0]}}  {args.left:<{widths[1]}}  {args.right}")
    for row in rows:
        mark = "≠" if row.differs else " "
        print(f"{mark} {row.name:<{widths[0]}}  {row.left:<{widths[1]}}  {row.right}")
    return ExitCode.STARTS
