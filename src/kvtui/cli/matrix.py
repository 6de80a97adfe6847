"""`kvtui matrix`: attention backend x KV dtype, every cell judged."""

from __future__ import annotations

import json

from kvtui.cli.common import (
    FactSource,
    Parser,
    add_launch_arguments,
    read_launch,
    split_words,
)
from kvtui.core.matrix import as_json, as_markdown, as_text, build_matrix
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode


def run(words: list[str], _word: str) -> int:
    """Print the matrix; the exit code says only that it was made."""
    ours, engine_words = split_words(words)
    parser = Parser(
        "matrix",
        "(PRESET | -- SGLANG ARGS) [options]",
        "Attention backend x KV dtype: what starts, what runs instead, how many tokens.",
        (
            "kvtui matrix --gpu b200 -- --model-path openai/gpt-oss-20b",
            "kvtui matrix --gpu h200 --page-sizes 1,64 --markdown -- --model-path Qwen/Qwen3-8B",
        ),
    )
    add_launch_arguments(parser)
    parser.add_argument("--page-sizes", default="auto", metavar="LIST",
                        help="comma-separated page sizes, 'auto' for the launch's own")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="also rows that never start")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all cells as JSON")
    form.add_argument("--markdown", action="store_true", help="a Markdown table")
    args = parser.parse_args(ours)
    draft = read_launch(args, engine_words)
    facts = FactSource(download=args.download).facts(draft)
    matrices = [
        build_matrix(draft, facts, page_size=page, all_rows=args.all)
        for page in _pages(args.page_sizes)
    ]
    if args.json:
        print(json.dumps([cell for matrix in matrices for cell in as_json(matrix)]))
    else:
        render = as_markdown if args.markdown else as_text
        print("\n\n".join(render(matrix) for matrix in matrices))
    return ExitCode.STARTS


def _pages(text: str) -> list[int | None]:
    pages: list[int | None] = []
    for part in text.split(","):
        if part.strip() == "auto":
            pages.append(None)
        elif part.strip().isdigit() and int(part) > 0:
            pages.append(int(part))
        else:
            raise InputError(f"--page-sizes {text}: numbers or 'auto', comma-separated, expected")
    return pages
