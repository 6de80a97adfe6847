"""`kvtui explain`: an SGLang error or boot log, what it means and what to change."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from kvtui.cli.common import FactSource, Parser, read_input
from kvtui.core.boot_compare import boot_rows, guess_gpu
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.explain import Explanation, explain
from kvtui.core.explain_bootlog import BootLog, read_boot_log
from kvtui.core.findings import Severity
from kvtui.core.render import finding_lines, flag_of, verdict_words
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
    parser.add_argument("--gpu", help="the GPU of a boot log (else told from its memory)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    text = _text(args.text)
    found = tuple(item for item in explain(text) if item.is_recognised or item.options
                  or item.classes)  # fmt: skip
    log = read_boot_log(text) if "\n" in text.strip() else None
    if args.json:
        data = {"found": [_row(item) for item in found], "boot": _boot_row(log, args.gpu)}
        print(json.dumps(data, default=str))
    else:
        print("\n".join([*_boot_lines(log, args.gpu), *_lines(found)]))
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


def _boot_lines(log: BootLog | None, gpu: str | None) -> Iterator[str]:
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
    yield from _predicted(log, gpu)


def _sum(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left + right


def _predicted(log: BootLog, gpu: str | None) -> Iterator[str]:
    """What the rules say of the log's launch, and its figures beside the printed ones."""
    report = _report(log, gpu)
    if report is None:
        return
    known = report.facts.gpu
    where = f" on {known.name}" + ("" if gpu else ", told from its memory") if known else ""
    yield f"  rules     {verdict_words(report)}{where}"
    for finding in report.findings:
        if finding.severity is not Severity.NOTE:
            yield from (f"  {line}" for line in finding_lines(finding))
    rows = list(boot_rows(log, report))
    if rows:
        yield f"  {'':<20} {'printed':>12} {'predicted':>12}"
    for row in rows:
        form = ",.2f" if row.unit else ",.0f"
        yield (
            f"  {row.name:<20} {row.printed:>12{form}} {row.predicted:>12{form}} "
            f"{row.unit:<3} {row.error:+.1%}"
        )


def _report(log: BootLog, gpu: str | None) -> Report | None:
    """The log's launch, judged for the GPU that was named or that its memory tells."""
    if log.launch is None or log.launch.model_path is None:
        return None
    guessed = None if gpu else guess_gpu(log)
    draft = replace(log.launch, gpu=gpu or (guessed.key if guessed else log.launch.gpu))
    return evaluate(draft, FactSource().facts(draft))


def _boot_row(log: BootLog | None, gpu: str | None) -> dict[str, object] | None:
    if log is None:
        return None
    report = _report(log, gpu)
    compared = [asdict(row) for row in boot_rows(log, report)] if report else []
    row = {k: v for k, v in asdict(log).items() if v is not None and k != "launch"}
    return {**row, "died_after": log.died_after, "compared": compared,
            "launch": dict(log.launch.options) if log.launch else None}  # fmt: skip
