"""The command line: a table of words, each in a module of its own that loads when it is asked for.

stdout is the answer, stderr the talk, the exit status the verdict.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module

from kvtui import __version__
from kvtui.exit_codes import ExitCode


@dataclass(frozen=True, slots=True)
class Word:
    """A subcommand: its usage line, what it does, and the module that runs it."""

    name: str
    usage: str
    summary: str
    module: str


WORDS = (
    Word("check", "(PRESET | -- SGLANG ARGS)", "judge a launch; --batch for many", "check"),
    Word("export", "(PRESET | -- SGLANG ARGS) --format F", "write it as script, compose, k8s …",
         "export"),
    Word("matrix", "-- SGLANG ARGS", "attention backend x KV dtype, each cell judged", "matrix"),
    Word("fit", "… --requests N --context L", "changes that reach a capacity, ranked", "fit"),
    Word("compare", "A B", "two launches side by side", "compare"),
    Word("explain", "[TEXT | FILE | -]", "an SGLang error or boot log, and what to change",
         "explain"),
    Word("import", "FILE|-", "a command, script, compose or k8s file -> presets", "imports"),
    Word("preset", "list | show | save | diff | verify | share | import", "presets", "preset"),
    Word("engine", "hello | schema | resolve | diff A B", "ask an installed SGLang", "engine"),
    Word("rules", "[ID]", "every rule, or one rule's page", "catalogues"),
    Word("options", "[NAME]", "every option of the engine, or one option's page", "catalogues"),
    Word("models", "[TEXT]", "the offline model catalogue and local models", "catalogues"),
    Word("gpus", "[TEXT]", "the GPU catalogue", "catalogues"),
    Word("doctor", "", "what was found on this machine, what is missing", "doctor"),
    Word("completion", "bash | zsh | fish", "shell completion", "completion"),
)  # fmt: skip
BY_NAME = {word.name: word for word in WORDS}


def usage() -> str:
    """The text of `kvtui --help`."""
    width = max(len(word.name) for word in WORDS)
    rows = "\n".join(f"  {word.name:<{width}}  {word.summary}" for word in WORDS)
    return f"""kvtui {__version__}: will this SGLang launch start, with which KV pool?

usage: kvtui [PRESET | -- SGLANG ARGS]     interactive set-up
       kvtui WORD …                        see kvtui WORD --help

{rows}

examples:
  kvtui
  kvtui check --gpu h200 -- --model-path Qwen/Qwen3-8B --kv-cache-dtype fp8_e5m2
  kvtui matrix --gpu b200 -- --model-path openai/gpt-oss-20b
  kvtui explain "Unsupported KV cache type for decode offload"

exit status: 0 starts, 1 fails, 2 unusable input, 3 not checked as asked, 4 a probe broke
"""


def main(argv: list[str] | None = None) -> int:
    """Run one word; without one, open the interactive set-up."""
    words = sys.argv[1:] if argv is None else argv
    try:
        return _dispatch(words)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): not our failure. Keep the interpreter's exit quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.STARTS


def _dispatch(words: list[str]) -> int:
    first = words[0] if words else ""
    if first in ("-h", "--help", "help"):
        print(usage(), end="")
        return ExitCode.STARTS
    if first in ("-V", "--version"):
        print(f"kvtui {__version__}")
        return ExitCode.STARTS
    word = BY_NAME.get(first)
    module = import_module(f"kvtui.cli.{word.module if word else 'interactive'}")
    from kvtui.errors import InputError

    try:
        return int(module.run(words[1:] if word else words, first))
    except InputError as error:
        print(f"kvtui: {error}", file=sys.stderr)
        return ExitCode.UNUSABLE
