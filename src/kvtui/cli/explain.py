"""`kvtui explain`: an SGLang error or boot log, what it means and what to change."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from kvtui.cli.common import Parser, read_input
from kvtui.core.explain import Explanation, explain
from kvtui.core.explain_bootlog import BootLog, read_boot_log
from kvtui.core.render import flag_of
from kvtui.errors import InputError
from kvtui.exit_codes import ExitCode


def run(words: list[str], _word: str) -> int:
    """Explain text, a file or standard input; exit 1 where nothing was recognised."""
    parser = Parser(
        "explain",
        "[TEXT | FILE | -]",
        "What an error of SGLang means, which option it is about, and what to change.",
        (
            'kvtui explain "Unsupported KV cache type for decode offload"',
            "kvtui explain boot.log",
            "journalctl -u sglang | kvtui explain -",
        ),
    )
    parser.add_argument("text", nargs="*", help="the error itself, a log file, or - for stdin")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    text = _text(args.text)
    found = tuple(item for item in explain(text) if item.is_recognised or item.options
                  or item.classes)  # fmt: skip
    log = read_boot_log(text) if "\n" in text.strip() else None
    if args.json:
        data = {"found": [_row(item) for item in found], "boot": _boot_row(log)}
        print(json.dumps(data, default=str))
    else:
        print("\n".join([*_boot_lines(log), *_lines(found)]))
    if not found and (log is None or log.died_after is not None):
        if not args.json:
            print("kvtui: nothing in there was recognised", file=sys.stderr)
        return ExitCode.FAILS
    return ExitCode.STARTS


def _text(parts: list[str]) -> str:
    if parts in ([], ["-"]):
        if not parts and sys.stdin.isatty():
            raise InputError("nothing to explain", "give the error, a log file, or - for stdin")
        return read_input("-")
    if len(parts) == 1 and len(parts[0]) < 4096 and "\n" not in parts[0]:
        path = Path(parts[0]).expanduser()
        try:
            if path.is_file():
                return _log_text(path)
        except OSError:
            pass
    return " ".join(parts)


def _log_text(path: Path) -> str:
    """The end of a log, where it died; bytes that are no text are replaced."""
    limit = 32 << 20
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - limit))
            return file.read(limit).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or 'not readable').lower()}") from None


def _lines(found: tuple[Explanation, ...]) -> Iterator[str]:
    for item in found:
        yield f"✗ {item.meaning}"
        if item.line:
            yield f"  line {item.line_number}: {item.line}"
        if item.why:
            yield f"  why: {item.why}"
        if item.options:
            yield f"  option: {', '.join(flag_of(o) or o for o in item.options[:4])}"
        if item.change:
            yield f"  change: {item.change}"
        if item.rule:
            yield f"  rule: {item.rule} (kvtui rules {item.rule})"


def _row(item: Explanation) -> dict[str, object]:
    return {**asdict(item), "options": [flag_of(option) for option in item.options]}


def _boot_lines(log: BootLog | None) -> Iterator[str]:
    if log is None:
        return
    head = f"SGLang {log.version}" if log.version else "boot log"
    state = f"died after: {log.died_after}" if log.died_after else "came up"
    yield f"{head}: {state}" if log.reached else head
    if log.launch is not None:
        yield f"  model     {log.launch.model_path}"
    figures = (
        ("weights", log.weights_gib, " GiB"),
        ("free", log.weights_end_free_gib, " GiB after the weights"),
        ("K + V", _sum(log.k_gib, log.v_gib) or log.kv_gib, " GiB"),
        ("tokens", log.max_total_num_tokens or log.tokens, ""),
        ("requests", log.max_running_requests, ""),
        ("context", log.context_len, ""),
    )
    for name, value, unit in figures:
        if value is not None:
            text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
            yield f"  {name:<9} {text}{unit}"
    yield from _predicted(log)


def _sum(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left + right


def _predicted(log: BootLog) -> Iterator[str]:
    """What the rules would have said of the log's launch, beside what it printed."""
    if log.launch is None or log.launch.model_path is None:
        return
    from kvtui.cli.common import FactSource
    from kvtui.core.evaluate import evaluate
    from kvtui.core.render import verdict_words

    report = evaluate(log.launch, FactSource().facts(log.launch))
    yield f"  rules     {verdict_words(report)}"


def _boot_row(log: BootLog | None) -> dict[str, object] | None:
    if log is None:
        return None
    row = {k: v for k, v in asdict(log).items() if v is not None and k != "launch"}
    return {**row, "died_after": log.died_after,
            "launch": dict(log.launch.options) if log.launch else None}  # fmt: skip
