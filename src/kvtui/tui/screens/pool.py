"""What the pool check did, step by step, with what it moved and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content

from kvtui.core.facts import PoolFact
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.layers import pool_place
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.widgets.lines import Line
from kvtui.tui.words import Tone, gib_text, plural

MIB = 1 << 20
NOT_RUN = (
    "not run yet: p builds the planned pool with torch, writes keys and values, reads them back "
    "bit for bit, and frees everything"
)


class PoolSheet(Sheet[None]):
    """The last result, and the step at hand while one runs."""

    title_text = "Pool check"

    BINDINGS = [
        Binding("p", "app.pool", "run or cancel", id="pool.run"),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("up,k", "scroll(-1)", "up", show=False),
    ]
    DEFAULT_CSS = "PoolSheet VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }"

    def compose_body(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll():
            yield Line(id="pool-text")

    def on_mount(self) -> None:
        """Follow what runs and what came back."""
        self.watch(self.app, "activity", self._show, init=False)
        self.watch(self.app, "revision", self._show, init=False)
        self._show()
        self.query_one(VerticalScroll).focus()

    def _show(self) -> None:
        kv, g = self.kv, self.kv.glyphs
        parts: list[Content] = []
        step = kv.activity.pool_step
        if kv.activity.pool_running:
            text = f"{step.number}/{step.total}: {step.text}" if step else "starting"
            parts.append(Content.styled(f"{g.stale} {text}", f"bold {Tone.KEY}"))
        fact = kv.session.world.pool
        if fact is not None:
            if kv.report.pool_fact is None:
                parts.append(Content.styled("this result is of other settings", Tone.WARN))
            parts += pool_page(fact, g)
        elif not kv.activity.pool_running:
            parts.append(Content(NOT_RUN))
        self.query_one("#pool-text", Line).content = Content("\n\n").join(parts)


def pool_page(fact: PoolFact, g: Glyphs) -> Iterator[Content]:
    """A pool check's result in paragraphs."""
    result = fact.report
    sign, tone = (g.ok, Tone.GOOD) if fact.ok else (g.bad, Tone.BAD)
    name = result.get("pool_class") or "pool"
    word = "built, written, read back, freed" if fact.ok else "not built"
    yield Content.assemble(
        (f"{sign} {name} {word}", f"bold {tone}"), "\n", (pool_place(result), "")
    )
    if result.get("error"):
        yield Content.styled(str(result["error"]), Tone.BAD)
    steps = [_step(step, g) for step in result.get("steps") or () if isinstance(step, Mapping)]
    if steps:
        yield Content("\n").join(steps)
    built = result.get("built")
    if isinstance(built, Mapping):
        yield _sizes(built, result.get("planned") or {})
    notes = [str(note) for note in result.get("notes") or ()]
    if notes:
        yield Content.styled("\n".join(notes), Tone.QUIET)
    yield Content.styled("Not shown by this: that kernels compile, that graph capture fits, and "
                         "that the weights are sound.", Tone.QUIET)  # fmt: skip


def _step(step: Mapping[str, Any], g: Glyphs) -> Content:
    figures = step.get("figures") or {}
    seconds = float(step.get("seconds") or 0)
    said = list(_figures(figures))
    head = Content.assemble(
        (f"{g.ok} ", Tone.GOOD), str(step.get("title") or step.get("step")),
        (f"  {seconds:.1f} s", Tone.QUIET),
    )  # fmt: skip
    return Content("\n").join([head, *(Content.styled(f"    {line}", Tone.QUIET) for line in said)])


def _figures(figures: Mapping[str, Any]) -> Iterator[str]:
    if figures.get("tokens") and figures.get("allocated_bytes"):
        size = gib_text(figures["allocated_bytes"])
        yield (
            f"{figures['tokens']:,} tokens, {size} allocated, as predicted to the byte"
            if (figures.get("predicted_bytes") == figures["allocated_bytes"])
            else f"{figures['tokens']:,} tokens, {size} allocated"
        )
    if figures.get("bytes_compared"):
        yield (
            f"{plural(int(figures.get('requests') or 0), 'request')}: "
            f"{figures['bytes_written'] / MIB:,.0f} MiB written, "
            f"{figures['bytes_compared'] / MIB:,.0f} MiB compared, all equal"
        )
    for check in figures.get("checks") or ():
        yield str(check)
    for refused in figures.get("refused") or ():
        yield f"refused, as it should be: {refused}"
    if figures.get("left_over_bytes") == 0:
        yield "nothing stays allocated"


def _sizes(built: Mapping[str, Any], planned: Mapping[str, Any]) -> Content:
    lines = []
    if planned.get("tokens") and planned["tokens"] != built.get("tokens"):
        lines.append(f"built at {built.get('tokens', 0):,} of {planned['tokens']:,} planned tokens")
    for pool in built.get("sub_pools") or ():
        lines.append(f"{pool.get('role')}: {pool.get('class')}, {plural(pool['slots'], 'slot')}")
        lines += [
            f"    {b['name']}  {b['dtype']} {b['shape']} x {b['count']}"
            for b in pool.get("buffers") or ()
        ]
    return Content("\n".join(lines))
