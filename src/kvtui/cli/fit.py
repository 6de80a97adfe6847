"""`kvtui fit`: changes that reach a capacity, each already judged."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kvtui.cli.common import (
    FactSource,
    Parser,
    add_launch_arguments,
    read_launch,
    split_words,
)
from kvtui.core.command import argv_of
from kvtui.core.facts import Checkpoint
from kvtui.core.fit import Fit, Goal, fit
from kvtui.core.render import flag_of
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode

SUFFIXES = ("-FP8", "-AWQ", "-NVFP4", "-FP4", "-GPTQ-Int4", "-GPTQ-Int8")
"""Endings that tell a quantized variant of a model's name."""


def run(words: list[str], _word: str) -> int:
    """Print the ways to the goal; 0 where it is reached, 1 where nothing reaches it."""
    ours, engine_words = split_words(words)
    parser = Parser(
        "fit",
        "(PRESET | -- SGLANG ARGS) --requests N --context L [options]",
        "Ranked changes that let N requests of L tokens run at once.",
        (
            "kvtui fit --gpu h100 --requests 64 --context 32768 -- --model-path Qwen/Qwen3-8B",
            "kvtui fit mine --requests 200 --context 8192 --max-tp 4",
        ),
    )
    add_launch_arguments(parser)
    parser.add_argument("--requests", type=int, required=True, metavar="N")
    parser.add_argument("--context", type=int, required=True, metavar="L", help="tokens each")
    parser.add_argument("--max-tp", type=int, metavar="N", help="GPUs to use at most")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(ours)
    for name in ("requests", "context", "max_tp"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: a number above zero expected")
    draft = read_launch(args, engine_words)
    facts = FactSource(download=args.download).facts(draft)
    if facts.gpu is None or not facts.checkpoints:
        reason = next(iter(facts.missing.values()), "the model is not known")
        raise InputError(f"no capacity can be worked out: {reason}")
    goal = Goal(args.requests, args.context)
    found = fit(draft, facts, goal, max_tp=args.max_tp, variants=variants(draft.model_path))
    print(json.dumps(_json(found)) if args.json else _text(found))
    return ExitCode.STARTS if found.reached else ExitCode.FAILS


def variants(model: str | None) -> Mapping[str, Checkpoint]:
    """Quantized variants of a model in the catalogue, by name."""
    from kvtui.core.model.catalogue import find, models

    if model is None:
        return {}
    base = model.lower()
    names = [m.name for m in models() if m.name.lower() in {base + s.lower() for s in SUFFIXES}]
    return {name: checkpoint for name in names if (checkpoint := find(name)) is not None}


def _text(found: Fit) -> str:
    goal = f"{found.goal.requests} requests of {found.goal.context:,} tokens"
    if found.now >= found.goal.requests:
        return f"✓ {goal}: {found.now} fit as it is"
    lines = [f"{goal}: {found.now} fit as it is"]
    if not found.options:
        return "\n".join([*lines, "✗ nothing that was tried helps"])
    if not found.reached:
        lines.append("✗ nothing that was tried reaches that; the best tries:")
    for number, option in enumerate(found.options, 1):
        titles = " ".join(move.title for move in option.moves)
        prices = ", ".join(move.price for move in option.moves)
        mark = "✓" if option.reaches else "–"
        lines.append(f"{mark} {number:>2}  {titles}")
        lines.append(
            f"       {option.requests} requests, {option.tokens:,} tokens; price: {prices}"
        )
    return "\n".join(lines)


def _json(found: Fit) -> dict[str, object]:
    return {
        "goal": {"requests": found.goal.requests, "context": found.goal.context},
        "now": found.now,
        "reached": found.reached,
        "options": [
            {
                "changes": [{"option": flag_of(c.option), "value": c.value} for c in o.changes],
                "price": [move.price for move in o.moves],
                "requests": o.requests,
                "max_total_num_tokens": o.tokens,
                "reaches": o.reaches,
                "command": list(argv_of(o.report.draft)),
            }
            for o in found.options
        ],
    }
