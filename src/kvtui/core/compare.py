"""Two launches side by side: what differs, and what that does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvtui.core.evaluate import Report
from kvtui.core.render import effective, flag_of, verdict_words


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison."""

    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        """True where the two sides are not the same."""
        return self.left != self.right


def compare(left: Report, right: Report) -> tuple[Row, ...]:
    """Verdict, chosen options that differ, resolved values that differ, pool, capacity."""
    rows = [Row("verdict", verdict_words(left), verdict_words(right))]
    rows += _hardware(left, right)
    rows += _pairs(left.draft.options, right.draft.options, flags=True)
    rows += _pairs(left.draft.env, right.draft.env)
    chosen = {row.name for row in rows}
    rows += [r for r in _pairs(effective(left), effective(right), flags=True)
             if r.name not in chosen]  # fmt: skip
    rows += _pool(left, right)
    rows += _capacity(left, right)
    return tuple(rows)


def _pairs(left: Any, right: Any, *, flags: bool = False) -> Iterator[Row]:
    for name in dict.fromkeys([*left, *right]):
        row = Row((flag_of(name) or name) if flags else name, _text(left, name), _text(right, name))
        if row.differs:
            yield row


def _text(values: Any, name: str) -> str:
    if name not in values or values[name] is None:
        return "–"
    value = values[name]
    if value is True:
        return "on"
    return "off" if value is False else str(value)


def _hardware(left: Report, right: Report) -> Iterator[Row]:
    texts = [
        f"{r.facts.gpu_count}x {r.facts.gpu.name}" if r.facts.gpu else "no GPU known"
        for r in (left, right)
    ]
    if texts[0] != texts[1]:
        yield Row("hardware", texts[0], texts[1])


def _pool(left: Report, right: Report) -> Iterator[Row]:
    for name in ("class_name", "kv_dtype", "bytes_per_token", "page_size"):
        values = [getattr(r.pool, name) if r.pool else None for r in (left, right)]
        texts = ["–" if v is None else f"{v:,}" if isinstance(v, int) else str(v) for v in values]
        yield Row(f"pool {name.replace('_', ' ')}", texts[0], texts[1])


def _capacity(left: Report, right: Report) -> Iterator[Row]:
    sides = [r.capacity.figures() if r.capacity is not None else {} for r in (left, right)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        yield Row(name, sides[0].get(name, "–"), sides[1].get(name, "–"))
