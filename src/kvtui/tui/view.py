"""Parts of a report as styled text. Pure: a report and a width in, content out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from kvtui.core.findings import Finding, Outcome, Severity
from kvtui.tui.capacity import picture
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.layers import Activity, Layer, Standing, VerdictText, layers, verdict_text
from kvtui.tui.words import (
    OUTCOME_TONE,
    SEVERITY_TONE,
    Tone,
    cell_text,
    count_text,
    flag_of,
    gpu_text,
    plural,
)

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

STANDING_TONE = {
    Standing.PASSED: Tone.GOOD,
    Standing.FAILED: Tone.BAD,
    Standing.UNKNOWN: Tone.ASK,
    Standing.NOT_RUN: Tone.QUIET,
    Standing.STALE: Tone.QUIET,
    Standing.RUNNING: Tone.KEY,
}


def standing_glyph(standing: Standing, g: Glyphs) -> str:
    """The sign of a layer's standing."""
    return {
        Standing.PASSED: g.ok,
        Standing.FAILED: g.bad,
        Standing.UNKNOWN: g.unknown,
        Standing.NOT_RUN: g.none,
        Standing.STALE: g.stale,
        Standing.RUNNING: g.stale,
    }[standing]


def outcome_glyph(report: Report, g: Glyphs) -> str:
    """The sign of the verdict, warnings and disagreement included."""
    if report.disagrees:
        return g.differ
    if report.outcome is Outcome.STARTS and report.warnings:
        return g.warn
    return {Outcome.STARTS: g.ok, Outcome.FAILS: g.bad, Outcome.UNKNOWN: g.unknown}[report.outcome]


def outcome_tone(report: Report) -> Tone:
    """The colour of the verdict."""
    if report.outcome is Outcome.STARTS and report.warnings:
        return Tone.WARN
    return OUTCOME_TONE[report.outcome]


def verdict_block(report: Report, activity: Activity, g: Glyphs) -> Content:
    """The verdict with where it would stop, in two lines."""
    text: VerdictText = verdict_text(report, activity)
    tone = outcome_tone(report)
    return Content.assemble(
        (f"{outcome_glyph(report, g)} {text.word}", f"bold {tone}"), "\n", (text.detail, Tone.QUIET)
    )


def layer_lines(report: Report, activity: Activity, now: float, g: Glyphs, width: int) -> Content:
    """The three layers, one a line: sign, what it says, how old."""
    return Content("\n").join(
        _layer_line(layer, g, width) for layer in layers(report, activity, now)
    )


def _layer_line(layer: Layer, g: Glyphs, width: int) -> Content:
    sign = standing_glyph(layer.standing, g)
    tone = STANDING_TONE[layer.standing]
    head = Content.assemble((f"{layer.name:<7}", Tone.PLAIN), (f"{sign} ", tone))
    room = width - head.cell_length - (len(layer.age) + 1 if layer.age else 0)
    text = Content.styled(layer.text, tone if layer.standing is not Standing.PASSED else Tone.PLAIN)
    if text.cell_length > room > 4:
        text = text.truncate(room, ellipsis=True)
    gap = max(1, width - head.cell_length - text.cell_length - len(layer.age))
    return Content.assemble(head, text, " " * gap, (layer.age, Tone.QUIET))


def layer_signs(report: Report, activity: Activity, now: float, g: Glyphs) -> Content:
    """The three layers in one short run, for the narrow verdict line."""
    parts: list[Content] = []
    for layer in layers(report, activity, now):
        sign = standing_glyph(layer.standing, g)
        word = {Standing.STALE: " stale", Standing.RUNNING: " runs"}.get(layer.standing, "")
        parts.append(
            Content.assemble(
                (layer.name, Tone.QUIET), " ", (sign + word, STANDING_TONE[layer.standing])
            )
        )
    return Content("  ").join(parts)


def verdict_line(report: Report, activity: Activity, now: float, g: Glyphs, width: int) -> Content:
    """Verdict, size and layers in one line; the layers give way last."""
    text = verdict_text(report, activity)
    head = Content.styled(f"{outcome_glyph(report, g)} {text.word}", f"bold {outcome_tone(report)}")
    signs = layer_signs(report, activity, now, g)
    size = size_line(report, g)
    if activity.pool_running and activity.pool_step is not None:
        step = activity.pool_step
        size = Content.styled(f"pool {step.number}/{step.total}: {step.text}", Tone.KEY)
    elif report.outcome is not Outcome.STARTS or not size.plain:
        size = Content.styled(text.detail, Tone.QUIET)
    room = width - head.cell_length - signs.cell_length - 4
    size = size.truncate(room, ellipsis=True) if room > 6 else Content("")
    gap = max(1, width - head.cell_length - size.cell_length - signs.cell_length - 2)
    return Content.assemble(head, "  ", size, " " * gap, signs)


def size_line(report: Report, g: Glyphs) -> Content:
    """Tokens and requests that the launch would hold."""
    shown = picture(report)
    if shown is None or not shown.tokens:
        return Content("")
    parts = [f"{shown.tokens:,} tokens"]
    if shown.requests:
        parts.append(plural(shown.requests, "request"))
    return Content.styled(f" {g.dot} ".join(parts), Tone.PLAIN)


def pool_line(report: Report, g: Glyphs) -> Content:
    """Pool class, stored type and bytes per token."""
    pool = report.pool
    if pool is None:
        return Content.styled("pool not worked out", Tone.QUIET)
    parts = (pool.class_name, pool.kv_dtype, f"{cell_text(pool.bytes_per_token)}/token",
             f"page {pool.page_size}")  # fmt: skip
    return Content.assemble((parts[0], "bold"), (f" {g.dot} ".join(("", *parts[1:])), Tone.QUIET))


def pool_details(report: Report, g: Glyphs, width: int) -> Content:
    """Every sub-pool with its buffers, for screens with room to spare."""
    pool = report.pool
    if pool is None or not pool.sub_pools:
        return Content("")
    lines: list[Content] = []
    for sub in pool.sub_pools:
        head = f" {g.dot} {plural(sub.layers, 'layer')} {g.dot} page {sub.page_size}"
        lines.append(
            Content.assemble((f"{sub.role}: {sub.class_name}", "bold"), (head, Tone.QUIET))
        )
        for buffer in sub.buffers:
            shape = ", ".join(map(str, buffer.shape))
            text = f"  {buffer.name}  {buffer.dtype} [{shape}]"
            lines.append(
                Content.assemble(text, (f" {g.times} {buffer.count}", Tone.QUIET)).truncate(
                    width, ellipsis=True
                )
            )
    lines.append(
        Content.styled(f"slots as for {pool.tokens:,} tokens, padding included", Tone.QUIET)
    )
    return Content("\n").join(lines)


def flow(items: Sequence[Content], width: int, gap: int = 2) -> list[Content]:
    """Items side by side, broken into lines of at most `width`."""
    lines: list[Content] = []
    line = Content("")
    for item in items:
        if line.cell_length and line.cell_length + gap + item.cell_length > width:
            lines.append(line)
            line = Content("")
        line = Content.assemble(line, " " * gap, item) if line.cell_length else item
    if line.cell_length:
        lines.append(line)
    return lines


def finding_head(finding: Finding, g: Glyphs) -> tuple[Content, Content]:
    """Sign with rule id, and the option it is about."""
    tone = SEVERITY_TONE[finding.severity]
    sign = g.severity(finding.severity)
    option = flag_of(finding.option) if finding.option else finding.stage.value
    return (
        Content.styled(f"{sign} {finding.rule}", f"bold {tone}"),
        Content.styled(option, Tone.QUIET),
    )


def finding_body(finding: Finding, first: bool) -> Content:
    """Message and the first fix under a finding's head."""
    parts: list[Content | str | tuple[str, str]] = [finding.message]
    if finding.fixes:
        key = "f  " if first else "fix "
        parts += ["\n", (key, f"bold {Tone.KEY}"), (finding.fixes[0].title, Tone.KEY)]
        if len(finding.fixes) > 1:
            parts.append((f"  (+{len(finding.fixes) - 1} more)", Tone.QUIET))
    return Content.assemble(*parts)


def sorted_findings(report: Report) -> tuple[Finding, ...]:
    """What to do first comes first: errors in the engine's order, those with a fix ahead."""
    order = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}
    return tuple(sorted(report.findings, key=lambda f: (order[f.severity], not f.fixes)))


def model_name(report: Report) -> str:
    """The model as people call it: the checkpoint's name where it was read."""
    path = report.draft.model_path
    if path is None:
        return "no model chosen"
    found = report.facts.checkpoints.get(path)
    return found.name if found is not None else path


def hardware_text(report: Report, g: Glyphs) -> str:
    """The GPUs that the launch is judged for."""
    gpu = report.facts.gpu
    if gpu is None:
        return "no GPU"
    return gpu_text(gpu, report.facts.gpu_count, g.times)


def candidate_size(report: Report) -> tuple[str, str]:
    """Bytes per token, and tokens that fit, each short; empty where not known."""
    pool, shown = report.pool, picture(report)
    cell = cell_text(pool.bytes_per_token) if pool and pool.bytes_per_token else ""
    return cell, count_text(shown.tokens) if shown and shown.tokens else ""
