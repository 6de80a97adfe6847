"""Attention backend x KV dtype (x page size) for one draft: every cell judged by the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.facts import Facts
from kvtui.core.findings import Change, Outcome
from kvtui.core.options import catalogue
from kvtui.core.render import MARK

AUTO = "auto"
"""Row and column of the engine's own choice."""
ROW, COLUMN, LAYER = "attention_backend", "kv_cache_dtype", "page_size"
SPLIT = ("prefill_attention_backend", "decode_attention_backend")
SAME_DTYPE = {"bf16": "bfloat16"}
"""Spellings of one dtype; only the second has a column."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination and what becomes of it."""

    backend: str
    dtype: str
    page_size: int | None
    outcome: Outcome
    rule: str | None
    """The rule that decides, where it does not start."""
    why: str
    runs: tuple[str | None, str | None]
    """(prefill, decode) backend that the engine ends up with."""
    runs_dtype: str | None
    runs_page: int | None
    tokens: int | None
    bytes_per_token: int | None
    changes: tuple[Change, ...]
    """Edits that turn the draft into this cell."""

    @property
    def rewritten(self) -> bool:
        """True where another backend runs than the row's."""
        return self.backend != AUTO and any(name != self.backend for name in self.runs)


@dataclass(frozen=True, slots=True)
class Matrix:
    """All cells of one page size; rows that never start are named apart."""

    page_size: int | None
    backends: tuple[str, ...]
    dtypes: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    never: tuple[tuple[str, str], ...]
    """(backend, reason) of rows in which no cell starts."""


def build_matrix(
    draft: Draft, facts: Facts, *, page_size: int | None = None, all_rows: bool = False
) -> Matrix:
    """Judge every backend with every KV dtype; split backend choices of the draft are taken out."""
    backends, dtypes = axes()
    cells = {
        (backend, dtype): judge_cell(draft, facts, backend, dtype, page_size)
        for backend in backends
        for dtype in dtypes
    }
    never: list[tuple[str, str]] = []
    kept: list[str] = []
    for backend in backends:
        row = [cells[backend, dtype] for dtype in dtypes]
        if all_rows or backend == AUTO or any(c.outcome is not Outcome.FAILS for c in row):
            kept.append(backend)
        else:
            never.append((backend, row[0].why))
    return Matrix(page_size, tuple(kept), dtypes, cells, tuple(never))


def axes() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(backends, dtypes) that the engine knows, its own choice first."""
    options = catalogue().options
    backends = [str(choice) for choice in options[ROW].choices or ()]
    dtypes = [str(c) for c in options[COLUMN].choices or () if c not in SAME_DTYPE]
    return (AUTO, *(b for b in backends if b != AUTO)), (AUTO, *(d for d in dtypes if d != AUTO))


def judge_cell(
    draft: Draft,
    facts: Facts,
    backend: str,
    dtype: str,
    page_size: int | None,
    judge: Callable[[Draft, Facts], Report] = evaluate,
) -> Cell:
    """One cell of the matrix."""
    changes = cell_changes(draft, backend, dtype, page_size)
    report = judge(draft.with_changes(changes), facts)
    return cell_of(report, backend, dtype, page_size, changes)


def cell_changes(
    draft: Draft, backend: str, dtype: str, page_size: int | None
) -> tuple[Change, ...]:
    """Edits that turn a draft into one cell of the matrix."""
    changes = [Change(name) for name in SPLIT if name in draft.options]
    changes.append(Change(ROW, None if backend == AUTO else backend))
    changes.append(Change(COLUMN, None if dtype == AUTO else dtype))
    if page_size is not None:
        changes.append(Change(LAYER, page_size))
    return tuple(changes)


def cell_of(
    report: Report, backend: str, dtype: str, page_size: int | None, changes: tuple[Change, ...]
) -> Cell:
    """A report reduced to one cell."""
    error = report.errors[0] if report.errors else None
    capacity: Any = report.capacity
    tokens = getattr(capacity, "max_total_num_tokens", None)
    return Cell(
        backend=backend,
        dtype=dtype,
        page_size=page_size,
        outcome=report.outcome,
        rule=error.rule if error else None,
        why=error.message if error else "; ".join(report.unknowns),
        runs=report.plan.backends,
        runs_dtype=report.pool.kv_dtype if report.pool else report.plan.values[COLUMN],
        runs_page=report.plan.values[LAYER],
        tokens=getattr(tokens, "value", tokens),
        bytes_per_token=report.pool.bytes_per_token if report.pool else None,
        changes=changes,
    )


def cell_text(cell: Cell) -> str:
    """A cell in a few characters: verdict, then tokens in thousands or the deciding rule."""
    mark = MARK[cell.outcome]
    if cell.outcome is Outcome.STARTS:
        tokens = f"{round(cell.tokens / 1000):,}k" if cell.tokens else "starts"
        return f"{mark} {tokens}{'*' if cell.rewritten else ''}"
    return f"{mark} {cell.rule or 'unknown'}"


def reasons(matrix: Matrix) -> Iterator[str]:
    """One line for each deciding rule of the shown cells, then the rows left out."""
    seen: set[str] = set()
    for backend in matrix.backends:
        for dtype in matrix.dtypes:
            cell = matrix.cells[backend, dtype]
            if cell.rule and cell.rule not in seen:
                seen.add(cell.rule)
                yield f"{cell.rule}  {cell.why}"
    if any(cell.rewritten and cell.outcome is Outcome.STARTS for cell in matrix.cells.values()):
        yield "*  the engine runs another backend than the row's"
    if matrix.never:
        yield f"never start here: {', '.join(name for name, _ in matrix.never)}"


def table(matrix: Matrix) -> list[list[str]]:
    """Header and rows as text."""
    rows = [["", *matrix.dtypes]]
    rows += [
        [backend, *(cell_text(matrix.cells[backend, dtype]) for dtype in matrix.dtypes)]
        for backend in matrix.backends
    ]
    return rows


def as_text(matrix: Matrix) -> str:
    """The matrix in aligned columns with its reasons."""
    rows = table(matrix)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    head = f"page size {matrix.page_size or 'auto'}, tokens in thousands"
    body = ["  ".join(f"{t:<{w}}" for t, w in zip(row, widths, strict=True)).rstrip()
            for row in rows]  # fmt: skip
    return "\n".join([head, *body, *(f"  {line}" for line in reasons(matrix))])


def as_markdown(matrix: Matrix) -> str:
    """The matrix as a Markdown table with its reasons as a list."""
    head, *rows = table(matrix)
    lines = [_row(["backend", *head[1:]]), _row(["---"] * len(head)), *map(_row, rows)]
    return "\n".join([*lines, "", *(f"- {line}" for line in reasons(matrix))])


def _row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def as_json(matrix: Matrix) -> list[dict[str, Any]]:
    """Every cell, rows that never start included."""
    return [
        {
            "attention_backend": cell.backend,
            "kv_cache_dtype": cell.dtype,
            "page_size": cell.page_size,
            "verdict": cell.outcome.value,
            "rule": cell.rule,
            "why": cell.why,
            "effective": {
                "prefill_attention_backend": cell.runs[0],
                "decode_attention_backend": cell.runs[1],
                "kv_dtype": cell.runs_dtype,
                "page_size": cell.runs_page,
            },
            "max_total_num_tokens": cell.tokens,
            "bytes_per_token": cell.bytes_per_token,
        }
        for cell in matrix.cells.values()
    ]
