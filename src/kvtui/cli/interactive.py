"""`kvtui [PRESET | -- SGLANG ARGS]`: open the interactive set-up."""

from __future__ import annotations

import sys

from kvtui.cli.common import Parser, add_launch_arguments, read_launch, split_words
from kvtui.core.draft import Draft
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode


def run(words: list[str], first: str) -> int:
    """Open the screen, filled from a preset or SGLang's own arguments where given."""
    ours, engine_words = split_words(words)
    parser = Parser("", "[PRESET | -- SGLANG ARGS]", "Interactive set-up.")
    add_launch_arguments(parser)
    args = parser.parse_args(ours)
    if args.preset is None and engine_words is None:
        draft = Draft(gpu=args.gpu, gpu_count=args.gpu_count)
    else:
        draft = read_launch(args, engine_words)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(
            "the interactive set-up needs a terminal", "kvtui check answers without one"
        )
    from kvtui.tui.start import open_screen

    broke = open_screen(draft, download=args.download)
    if broke is not None:
        print(f"kvtui: {broke}", file=sys.stderr)
        return ExitCode.PROBE_BROKE
    return ExitCode.STARTS
