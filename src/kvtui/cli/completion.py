"""`kvtui completion SHELL`: a completion script made from the table of words and options."""

from __future__ import annotations

from kvtui.cli import WORDS
from kvtui.cli.common import Parser
from kvtui.core.gpus import gpus
from kvtui.core.options import catalogue
from kvtui.exit_codes import ExitCode


def run(words: list[str], _word: str) -> int:
    """Print the script; the user sources it."""
    parser = Parser(
        "completion",
        "bash | zsh | fish",
        "Shell completion: words, SGLang's options behind --, GPUs.",
        ('eval "$(kvtui completion bash)"', "kvtui completion fish | source"),
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    args = parser.parse_args(words)
    names = " ".join(word.name for word in WORDS)
    flags = " ".join(sorted(catalogue().by_flag))
    cards = " ".join(gpu.key for gpu in gpus())
    if args.shell == "fish":
        print(_fish(cards))
    else:
        head = "autoload -U +X bashcompinit && bashcompinit\n" if args.shell == "zsh" else ""
        print(head + BASH.format(names=names, flags=flags, gpus=cards), end="")
    return ExitCode.STARTS


BASH = """_kvtui() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" i
  if [ "$before" = --gpu ]; then COMPREPLY=($(compgen -W "{gpus} local" -- "$word")); return; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${{COMP_WORDS[i]}}" = -- ]; then
      COMPREPLY=($(compgen -W "{flags}" -- "$word")); return
    fi
  done
  if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W "{names}" -- "$word"))
  else COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -F _kvtui kvtui
"""


def _fish(cards: str) -> str:
    rows = [
        f"complete -c kvtui -n __fish_use_subcommand -f -a {word.name} -d '{word.summary}'"
        for word in WORDS
    ]
    rows.append(f"complete -c kvtui -l gpu -x -a '{cards} local'")
    rows += [
        f"complete -c kvtui -n 'contains -- -- (commandline -opc)' -l {flag.removeprefix('--')}"
        for flag in sorted(catalogue().by_flag)
        if flag.startswith("--")
    ]
    return "\n".join(rows)
