"""`kvtui preset`: list, show, save, diff, verify, share and import presets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from kvtui.cli.check import exit_code
from kvtui.cli.common import (
    FactSource,
    Parser,
    add_launch_arguments,
    read_input,
    read_launch,
    split_words,
)
from kvtui.cli.layers import add_layer_arguments, ask_layers
from kvtui.cli.pair import CODES, judge_pair
from kvtui.core import share
from kvtui.core.command import argv_of
from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.findings import Outcome
from kvtui.core.pair import Pair
from kvtui.core.preset import Meta, Preset, dump_preset, load_preset
from kvtui.core.proof import proof_of
from kvtui.core.render import lines, verdict_words
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode
from kvtui.probe.presets import StoredPreset, find_stored, list_presets, read_stored, save_preset

USAGE = "list | show | save | diff | verify | share | import | schema"


def run(words: list[str], _word: str) -> int:
    """Dispatch to the action."""
    parser = Parser(
        "preset", USAGE, "Launches as TOML, with the proof of what was checked.",
        (
            "kvtui preset list moe",
            "kvtui preset save mine --gpu h200 -- --model-path Qwen/Qwen3-8B",
            "kvtui preset verify presets/ --json",
            "kvtui preset share mine | ssh other kvtui preset import - --save mine",
        ),
    )  # fmt: skip
    if not words or words[0] in ("-h", "--help"):
        parser.print_help()
        return ExitCode.STARTS if words else ExitCode.UNUSABLE
    actions: dict[str, Callable[[list[str]], int]] = {
        "list": _list, "show": _show, "save": _save, "diff": _diff, "verify": _verify,
        "share": _share, "import": _import, "schema": _schema,
    }  # fmt: skip
    if words[0] not in actions:
        raise InputError(f"preset {words[0]}: no such action", f"one of {USAGE}")
    return actions[words[0]](words[1:])


def _list(words: list[str]) -> int:
    parser = Parser("preset list", "[TEXT] [options]", "Presets by model, GPU, goal or tag.")
    parser.add_argument("text", nargs="*", help="all of these words must occur")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    wanted = [text.lower() for text in args.text]
    found = [stored for stored in list_presets() if all(w in _haystack(stored) for w in wanted)]
    if args.json:
        print(json.dumps([_row(stored) for stored in found]))
        return ExitCode.STARTS
    width = max((len(stored.name) for stored in found), default=0)
    for stored in found:
        meta = stored.meta
        text = f"{meta.title} · {meta.goal}" if meta else f"can't be read: {stored.error}"
        print(f"{stored.name:<{width}}  {text.strip(' ·')}")
    return ExitCode.STARTS


def _haystack(stored: StoredPreset) -> str:
    meta, draft = stored.meta, _draft(stored)
    if meta is None or draft is None:
        return stored.name.lower()
    parts = [stored.name, meta.title, meta.goal, *meta.tags, draft.gpu or ""]
    return " ".join([*parts, draft.model_path or ""]).lower()


def _draft(stored: StoredPreset) -> Draft | None:
    """The launch, or the decode half of a pair."""
    if stored.pair is not None:
        return stored.pair.decode
    return stored.preset.draft if stored.preset is not None else None


def _row(stored: StoredPreset) -> dict[str, object]:
    base: dict[str, object] = {"name": stored.name, "path": str(stored.path)}
    meta, draft, preset = stored.meta, _draft(stored), stored.preset
    if meta is None or draft is None:
        return {**base, "error": stored.error}
    return {
        **base,
        "title": meta.title,
        "goal": meta.goal,
        "tags": list(meta.tags),
        "pair": stored.pair is not None,
        "model": draft.model_path,
        "gpu": draft.gpu,
        "gpu_count": draft.gpu_count,
        "proof": preset.proof.verdict if preset and preset.proof else None,
        "stale": bool(preset and preset.is_stale),
    }


def _show(words: list[str]) -> int:
    parser = Parser("preset show", "NAME", "A preset's text, command, cautions and proof.")
    parser.add_argument("name")
    args = parser.parse_args(words)
    stored = find_stored(args.name)
    preset = _preset(stored)
    print(f"# {stored.path}")
    print(dump_preset(preset).rstrip())
    print("\n# command\n" + " ".join(argv_of(preset.draft)))
    _tell_cautions(preset)
    return ExitCode.STARTS


def _preset(stored: StoredPreset) -> Preset:
    assert stored.preset is not None
    return stored.preset


def _tell_cautions(preset: Preset) -> None:
    for caution in preset.cautions:
        print(f"kvtui: look at this first: {caution}", file=sys.stderr)
    if preset.is_stale:
        print("kvtui: the proof is stale: the launch was edited after it", file=sys.stderr)


def _save(words: list[str]) -> int:
    ours, engine_words = split_words(words)
    parser = Parser(
        "preset save", "NAME (PRESET | -- SGLANG ARGS) [options]",
        "Judge a launch and save it as TOML with its proof.",
    )  # fmt: skip
    parser.add_argument("name", help="a name, or a path that ends in .toml")
    add_launch_arguments(parser)
    parser.add_argument("--title", default="")
    parser.add_argument("--goal", default="")
    parser.add_argument("--notes", default="")
    parser.add_argument("--tag", action="append", default=[])
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("--require", choices=("rules", "pool", "engine"), help=argparse.SUPPRESS)
    add_layer_arguments(parser)
    args = parser.parse_args(ours)
    draft = read_launch(args, engine_words)
    report = evaluate(draft, FactSource(download=args.download).facts(draft))
    report, _ = ask_layers(args, report)
    meta = Meta(args.title, args.goal, args.notes, tuple(args.tag))
    preset = Preset(draft, meta, proof_of(report, now()))
    path = save_preset(preset, args.name, overwrite=args.force)
    print(f"kvtui: {path}: {verdict_words(report)}", file=sys.stderr)
    return ExitCode.STARTS


def now() -> str:
    """The present time as proofs carry it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _diff(words: list[str]) -> int:
    parser = Parser("preset diff", "A B", "Two presets: what is chosen differently.")
    parser.add_argument("left")
    parser.add_argument("right")
    args = parser.parse_args(words)
    sides = [dump_preset(replace(_preset(find_stored(n)), proof=None)).splitlines()
             for n in (args.left, args.right)]  # fmt: skip
    import difflib

    left, right = sides
    text = list(difflib.unified_diff(left, right, args.left, args.right, lineterm="", n=0))
    print("\n".join(text) if text else "no difference")
    return ExitCode.FAILS if text else ExitCode.STARTS


def _verify(words: list[str]) -> int:
    parser = Parser(
        "preset verify", "[PRESET | FOLDER …] [options]",
        "Judge presets again; the worst verdict is the exit status. For CI.",
        ("kvtui preset verify presets/", "kvtui preset verify team/ --engine auto --json"),
    )  # fmt: skip
    parser.add_argument("names", nargs="*", help="presets or folders; all known ones by default")
    parser.add_argument("--gpu", help="judge on this GPU instead of the preset's")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write the new proof into the files")
    parser.add_argument("--require", choices=("rules", "pool", "engine"))
    add_layer_arguments(parser)
    args = parser.parse_args(words)
    source = FactSource()
    worst = ExitCode.STARTS
    for stored in _stored(args.names):
        code, row = _verify_one(stored, args, source)
        worst = max(worst, code)
        print(
            json.dumps(row) if args.json else f"{row['verdict']:<8}  {stored.name}  {row['text']}"
        )
    return worst


def _verify_one(
    stored: StoredPreset, args: argparse.Namespace, source: FactSource
) -> tuple[ExitCode, dict[str, object]]:
    base: dict[str, object] = {"name": stored.name, "path": str(stored.path)}
    if stored.pair is not None:
        return _verify_pair(stored.pair, base, source)
    if stored.preset is None:
        return ExitCode.UNUSABLE, {**base, "verdict": "unusable", "text": stored.error}
    preset = stored.preset
    draft = replace(preset.draft, gpu=args.gpu or preset.draft.gpu)
    report = evaluate(draft, source.facts(draft))
    report, broke = ask_layers(args, report)
    if args.write and not stored.shipped and report.outcome is not Outcome.FAILS:
        save_preset(
            replace(preset, proof=proof_of(report, now())), str(stored.path), overwrite=True
        )
    text = verdict_words(report) + (" · proof is stale" if preset.is_stale else "")
    if report.errors:
        text += f": {report.errors[0].rule} {report.errors[0].message}"
    return exit_code(report, args.require, broke), {
        **base, "verdict": report.outcome.value, "text": text, "stale": preset.is_stale,
    }  # fmt: skip


def _verify_pair(
    pair: Pair, base: dict[str, object], source: FactSource
) -> tuple[ExitCode, dict[str, object]]:
    reports, found, outcome = judge_pair(pair, source)
    words = [f"{role} {verdict_words(report)}" for role, report in reports.items()]
    words += [f"{finding.rule} {finding.message}" for finding in found]
    return CODES[outcome], {**base, "verdict": outcome.value, "text": "; ".join(words)}


def _stored(names: list[str]) -> list[StoredPreset]:
    if not names:
        return list(list_presets())
    found: list[StoredPreset] = []
    for name in names:
        path = Path(name).expanduser()
        if path.is_dir():
            found += [read_stored(file) for file in sorted(path.glob("**/*.toml"))]
        else:
            found.append(find_stored(name) if not path.is_file() else read_stored(path))
    if not found:
        raise InputError("no presets there", "name a .toml file or a folder of them")
    return found


def _share(words: list[str]) -> int:
    parser = Parser("preset share", "NAME", "One line of text that holds the preset.")
    parser.add_argument("name")
    args = parser.parse_args(words)
    code = share.encode(_preset(find_stored(args.name)))
    print(code)
    print(f"kvtui: {len(code):,} characters; secrets are left out", file=sys.stderr)
    return ExitCode.STARTS


def _import(words: list[str]) -> int:
    parser = Parser(
        "preset import", "CODE | FILE | - [options]",
        "Show what somebody else's preset would launch, judged here; save it if asked.",
    )  # fmt: skip
    parser.add_argument("what", help="a share code, a preset file, or - for standard input")
    parser.add_argument("--save", metavar="NAME", help="save it under this name")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("--gpu", help="judge on this GPU")
    args = parser.parse_args(words)
    text = args.what if share.is_code(args.what) else read_input(args.what)
    preset = share.decode(text) if share.is_code(text) else load_preset(text, args.what)
    draft = replace(preset.draft, gpu=args.gpu or preset.draft.gpu)
    report = evaluate(draft, FactSource().facts(draft))
    print("\n".join(argv_of(draft)))
    print()
    print("\n".join(lines(report)))
    for line in _other_machine(preset, report):
        print(f"  · {line}")
    _tell_cautions(preset)
    if args.save:
        path = save_preset(preset, args.save, overwrite=args.force)
        print(f"kvtui: saved as {path}", file=sys.stderr)
    return exit_code(report, None)


def _other_machine(preset: Preset, report: Report) -> list[str]:
    """What differs between the proof's world and this one."""
    proof = preset.proof
    if proof is None:
        return ["it carries no proof"]
    found = []
    here = report.facts.gpu.name if report.facts.gpu else "no GPU"
    if proof.gpu and proof.gpu != here:
        found.append(f"proved on {proof.gpu}, judged here for {here}")
    if proof.engine_version and proof.engine_version != report.engine_version:
        found.append(
            f"accepted by SGLang {proof.engine_version}, rules are {report.engine_version}"
        )
    return found


def _schema(words: list[str]) -> int:
    Parser("preset schema", "", "The JSON Schema of presets, for editors.").parse_args(words)
    from kvtui.core.preset_schema import preset_schema

    print(json.dumps(preset_schema(), indent=1))
    return ExitCode.STARTS
