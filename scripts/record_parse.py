"""Record what an installed engine's parser does with command lines.

Runs in that engine's own Python; reads one JSON list of words a line, writes one object a line:

    ENGINE_PYTHON scripts/record_parse.py < words.jsonl > tests/core/golden/parse-VERSION.jsonl

`ok` holds the values that differ from the defaults, `refused` is true where parsing stops.
`--config` files are looked for in the working directory.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from typing import Any, NoReturn


class Refused(Exception):
    """The parser would print its error and exit."""


class Parser(argparse.ArgumentParser):
    """argparse that raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise with argparse's message."""
        raise Refused(message)


def main() -> None:
    """Read, parse, write."""
    from sglang.srt import server_args
    from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

    parser = Parser()
    server_args.ServerArgs.add_cli_args(parser)
    merger = ConfigArgumentMerger(parser)
    defaults = vars(parser.parse_args(["--model-path", "m"]))

    def answer(words: list[str]) -> dict[str, Any]:
        try:
            if "--config" in words:
                words = merger.merge_config_with_args(words)
            with contextlib.redirect_stdout(io.StringIO()):
                values = vars(parser.parse_args(words))
        except (Refused, SystemExit, ValueError, AssertionError, KeyError):
            return {"refused": True}
        return {"ok": {name: v for name, v in values.items() if v != defaults[name]}}

    for line in sys.stdin:
        words = json.loads(line)
        print(json.dumps({"argv": words, **answer(list(words))}, ensure_ascii=False))


if __name__ == "__main__":
    main()
