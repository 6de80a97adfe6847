"""`kvtui rules | options | models | gpus`: the catalogues."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from kvtui.cli.common import Parser
from kvtui.core.gpus import gpus
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode


def run(words: list[str], word: str) -> int:
    """Dispatch by the word that was typed."""
    pages: dict[str, Callable[[list[str]], int]] = {
        "rules": _rules, "options": _options, "models": _models, "gpus": _gpus,
    }  # fmt: skip
    return pages[word](words)


def _rules(words: list[str]) -> int:
    parser = Parser(
        "rules", "[ID] [options]", "Every rule, or one rule's page.",
        ("kvtui rules", "kvtui rules KV301", "kvtui rules --markdown > docs/rules.md"),
    )  # fmt: skip
    parser.add_argument("id", nargs="?", help="a rule's id")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="all pages as one document")
    args = parser.parse_args(words)
    from kvtui.core import rulebook

    if args.markdown:
        print(rulebook.as_markdown(), end="")
        return ExitCode.STARTS
    if args.id is None:
        pages = [rulebook.page_of(rule) for rule in rulebook.rules()]
        if args.json:
            print(json.dumps([asdict(page) for page in pages]))
        else:
            _columns([(p.id, p.severity, p.stage, p.option or "", p.title) for p in pages])
        return ExitCode.STARTS
    rule = rulebook.find_rule(args.id)
    if rule is None:
        raise InputError(f"no rule {args.id}", "kvtui rules lists them")
    page = rulebook.page_of(rule)
    print(json.dumps(asdict(page)) if args.json else "\n".join(rulebook.page_lines(page)))
    return ExitCode.STARTS


def _options(words: list[str]) -> int:
    parser = Parser(
        "options", "[NAME] [options]", "Every option of the engine, or one option's page.",
        ("kvtui options", "kvtui options kv-cache-dtype", "kvtui options radix"),
    )  # fmt: skip
    parser.add_argument("name", nargs="?", help="a name, or text to search for")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="all pages as one document")
    args = parser.parse_args(words)
    from kvtui.core.option_pages import as_markdown, find_options, option_lines
    from kvtui.core.options import catalogue

    if args.markdown:
        print(as_markdown(), end="")
        return ExitCode.STARTS
    if args.name is None:
        found = [o for o in catalogue().options.values() if o.flags]
    else:
        found = list(find_options(args.name))
        if not found:
            raise InputError(f"no option like {args.name}", "kvtui options lists them")
    if args.json:
        print(json.dumps([
            {"name": o.name, "flags": list(o.flags), "group": o.group, "expected": o.expected,
             "default": o.default, "help": o.help}
            for o in found
        ]))  # fmt: skip
    elif args.name is not None and (
        len(found) == 1 or found[0].flag.strip("-") == args.name.strip("-")
    ):
        print("\n".join(option_lines(found[0])))
    else:
        _columns([(o.flag, o.group, o.help.split(". ")[0][:90]) for o in found])
    return ExitCode.STARTS


def _models(words: list[str]) -> int:
    parser = Parser(
        "models", "[TEXT] [options]", "The offline catalogue, and models in the hub cache.",
        ("kvtui models", "kvtui models qwen"),
    )  # fmt: skip
    parser.add_argument("text", nargs="?", default="", help="only names that contain this")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    from kvtui.core.model.catalogue import models
    from kvtui.probe.model import cached_models

    text = args.text.lower()
    local = [name for name in cached_models() if text in name.lower()]
    known = [model for model in models() if text in model.name.lower()]
    if args.json:
        rows = [{"name": m.name, "tags": list(m.tags), "local": m.name in local} for m in known]
        print(json.dumps(rows + [{"name": n, "tags": [], "local": True} for n in local]))
        return ExitCode.STARTS
    _columns([(m.name, ", ".join(m.tags), "in the hub cache" if m.name in local else "")
              for m in known])  # fmt: skip
    names = {m.name for m in known}
    _columns([(name, "in the hub cache") for name in local if name not in names])
    return ExitCode.STARTS


def _gpus(words: list[str]) -> int:
    parser = Parser("gpus", "[TEXT] [options]", "The GPU catalogue.", ("kvtui gpus rtx",))
    parser.add_argument("text", nargs="?", default="", help="only names that contain this")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    text = args.text.lower()
    found = [gpu for gpu in gpus() if text in gpu.key or text in gpu.name.lower()]
    if args.json:
        print(json.dumps([asdict(gpu) for gpu in found]))
        return ExitCode.STARTS
    _columns(
        [
            (
                gpu.key,
                gpu.name,
                f"SM{gpu.sm}" if gpu.vendor == "nvidia" else gpu.gcn_arch,
                f"{gpu.memory_mib / 1024:.1f} GiB",
            )
            for gpu in found
        ]
    )
    return ExitCode.STARTS


def _columns(rows: Sequence[tuple[str, ...]]) -> None:
    if not rows:
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{t:<{w}}" for t, w in zip(row, widths, strict=True)).rstrip())
