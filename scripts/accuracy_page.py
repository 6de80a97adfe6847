"""The tables of `scripts/accuracy.py`, for the terminal and as docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accuracy import Line, Outcome

PRINTED_MISS = 0.003
OWN_MISS = 0.03
WEIGHTS_MISS = 0.015

INTRODUCTION = """\
# How close the capacity figures come

Public boot logs, reduced to figures, against what kvtui predicts for the same launch. The page is
made by `scripts/accuracy.py --logs FILE --write docs/accuracy.md`.

*From printed free memory*: the log's own figures before and after loading go in, so only the
engine's arithmetic is tested, by the rule of the release that wrote the log. *From configuration,
flags and GPU*: weights and free memory are estimated as well, which is what a launch that was
never tried gets. Boots whose count an option sets, or whose memory fraction is not known, are left
out of the token columns. Errors are predicted over printed, less one.
"""

Reason = tuple[Callable[["Outcome"], bool], str]


def _model(one: Outcome) -> str:
    return str(one.boot.row["model"]).lower()


def _budget_gib(one: Outcome) -> float:
    boot = one.boot
    if boot.begin is None or boot.end is None or boot.fraction is None:
        return float("inf")
    return boot.end - boot.begin * (1 - boot.fraction)


PRINTED_REASONS: tuple[Reason, ...] = (
    (lambda one: "gemma-4" in _model(one) and not one.boot.is_unified,
     "0.02 to 0.08 GiB go between the line after loading and the measurement, the same at every"
     " ratio and fraction of this model"),
    (lambda one: _budget_gib(one) < 2, "with under 2 GiB of budget the two printed decimals alone"
     " are some tenths of a percent"),
    (lambda one: bool(one.boot.extra.get("mamba")), "recurrent models move by up to one state"
     " slot"),
    (lambda one: one.boot.is_unified, "free unified memory moves by 0.1 to 0.3 GiB with the page"
     " cache between two lines"),
    (lambda one: "hybrid" in str(one.boot.extra.get("family")), "recurrent models move by up to one"
     " state slot"),
)  # fmt: skip

OWN_REASONS: tuple[Reason, ...] = (
    (lambda one: "eagle" in " ".join(map(str, one.boot.row["argv"])).lower()
     and "27b" in _model(one),
     "this boot keeps states in half precision, which its flags do not say"),
    (lambda one: "card" in one.boot.gpu_name,
     "the log names a class of cards only, whose totals differ by a GiB"),
    (lambda one: one.origin == "derived",
     "the checkpoint's format is a guess: no config.json at hand"),
    (lambda one: True, "a tenth of a GiB of free memory more or less is a few percent of a small"
     " budget"),
)  # fmt: skip

WEIGHTS_REASONS: tuple[Reason, ...] = (
    (lambda one: one.boot.is_unified, "unified memory counts cached pages of the checkpoint"),
    (lambda one: "awq" in _model(one) and "devstral" in _model(one),
     "weights stay beside their repacked copy until graphs are captured"),
    (lambda one: one.origin == "derived", "the checkpoint's format is a guess"),
    (lambda one: "mi3" in one.boot.gpu_name.lower(),
     "ROCm keeps exchange buffers that loading allocates"),
    (lambda one: (one.boot.weights or 0) < 2, "under 2 GiB the libraries that loading pulls in"
     " count"),
)  # fmt: skip


def _reason(one: Outcome, reasons: Sequence[Reason]) -> str:
    return next((text for holds, text in reasons if holds(one)), "not explained")


def percent(value: float | None, digits: int = 2) -> str:
    """A ratio in percent, a dash for none."""
    return "–" if value is None else f"{value * 100:+.{digits}f} %"


def _size(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.2f} %"


def _goal(line: Line) -> str:
    if line.target is None:
        return ""
    median, p95 = line.target
    text = f"median {median * 100:g} %" + (f", p95 {p95 * 100:g} %" if p95 else "")
    return text + (" – met" if line.met else " – missed" if line.met is False else "")


def _summary_rows(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    yield ("what", "boots", "median", "p95", "worst", "goal")
    for line in lines:
        yield (line.name, str(line.count), _size(line.median), _size(line.p95),
               _size(line.worst), _goal(line))  # fmt: skip


def _boot_rows(found: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    yield ("boot", "model", "GPU", "engine", "tokens", "from printed", "own", "weights")
    for one in found:
        boot = one.boot
        yield (
            boot.name.removeprefix("public boot log "), str(boot.row["model"]),
            f"{boot.row.get('num_gpus') or '?'} × {boot.gpu_name or '?'}",
            ".".join(map(str, boot.version)),
            f"{boot.tokens:,}" if boot.tokens else "–", percent(one.printed_error),
            percent(one.own_error), percent(one.weights_error),
        )  # fmt: skip


def misses(found: Sequence[Outcome]) -> Iterator[tuple[str, str, str, str]]:
    """(boots, what, error, why) of everything outside its goal or not exact, likes together."""
    same: dict[tuple[str, str, str], list[str]] = {}
    for name, *rest in _misses(found):
        what, error, why = rest
        same.setdefault((what, error, why), []).append(name)
    for (what, error, why), names in same.items():
        yield ", ".join(names), what, error, why


def _misses(found: Sequence[Outcome]) -> Iterator[tuple[str, str, str, str]]:
    for one in found:
        name = one.boot.name.removeprefix("public boot log ")
        for what, error, limit, reasons in (
            ("tokens from printed", one.printed_error, PRINTED_MISS, PRINTED_REASONS),
            ("tokens, own", one.own_error, OWN_MISS, OWN_REASONS),
            ("weights", one.weights_error, WEIGHTS_MISS, WEIGHTS_REASONS),
        ):
            if error is not None and abs(error) > limit:
                yield name, what, percent(error), _reason(one, reasons)
        for pool, printed, predicted in one.prices:
            if abs(printed - predicted) >= 1:
                yield (name, f"bytes per {pool}", f"{printed:g} printed, {predicted:g}",
                       _price_reason(one))  # fmt: skip
        if one.requests is not None and one.requests != one.boot.requests:
            yield (name, "running requests", f"{one.boot.requests} printed, {one.requests}",
                   "not explained")  # fmt: skip
        if one.dies is False:
            yield name, "death", "not foreseen", "not explained"


def _price_reason(one: Outcome) -> str:
    if "transformers" in _model(one):
        return "the Transformers model implementation keeps every layer in one plain pool"
    if one.boot.is_patched:
        return "a patched engine with layouts of its own; the budget rule is tested with its price"
    return "another layout in that release, or a model that is not quite the catalogue's"


def _markdown(rows: Iterator[tuple[str, ...]]) -> str:
    head = next(rows)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def page(
    found: Sequence[Outcome], lines: Sequence[Line], counts: dict[str, tuple[int, int]]
) -> str:
    """The page docs/accuracy.md."""
    exact = "\n".join(f"- {name}: {a} of {b} exact" for name, (a, b) in counts.items())
    left = _left_out(found)
    missed = [("boot", "what", "error", "why"), *misses(found)]
    parts = (
        INTRODUCTION, "## Summary\n", _markdown(_summary_rows(lines)), "", exact, "",
        "## Misses, explained\n", _markdown(iter(missed)), "",
        "## Every boot\n", _markdown(_boot_rows(found)), "",
        "## Left out of the token columns\n", left, "",
    )  # fmt: skip
    return "\n".join(parts)


def _left_out(found: Sequence[Outcome]) -> str:
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.left_out and one.own is None:
            name = one.boot.name.removeprefix("public boot log ")
            reasons.setdefault(one.left_out, []).append(name)
    return "\n".join(f"- {why}: {', '.join(names)}" for why, names in sorted(reasons.items()))


def table(
    found: Sequence[Outcome], lines: Sequence[Line], counts: dict[str, tuple[int, int]]
) -> str:
    """The summary and the misses for a terminal."""
    rows = [*_summary_rows(lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    text = ["  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row)) for row in rows]
    text += ["", *(f"{name}: {a} of {b} exact" for name, (a, b) in counts.items()), ""]
    text += [f"{boot}  {what}: {error}  ({why})" for boot, what, error, why in misses(found)]
    return "\n".join(text)
