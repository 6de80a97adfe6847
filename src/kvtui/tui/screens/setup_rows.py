"""The set-up list as rows: steps with their state, and the open step's options."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from kvtui.core.findings import Finding, Severity, Value
from kvtui.tui.candidates import default_of
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.session import GPU, GPU_COUNT, chosen
from kvtui.tui.steps import STEPS, SetupStep, listed_options, not_used, set_by_user, step_of
from kvtui.tui.view import hardware_text, model_name
from kvtui.tui.widgets.row import Row
from kvtui.tui.words import (
    SEVERITY_TONE,
    Tone,
    cell_text,
    name_of,
    plural,
    value_text,
)

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

STEP = "step:"
MORE = "more:"
DO = "do:"
"""Prefixes of row keys that are no options."""

ACTIONS = (
    ("app.pool", "p", "build the pool for real"),
    ("app.engine", "g", "ask an installed SGLang"),
    ("app.export", "e", "export the launch"),
    ("app.save", "s", "save it as a preset"),
)
"""Ways out of the review: action, key, what it does."""


def columns(width: int, *, sign: int = 2) -> Sequence[int]:
    """Sign, name, value, and where the value comes from when there is room."""
    room = width - sign
    if room < 60:
        name = max(16, room - 13)
        return (sign, name, room - name, 0)
    note = 15
    name = min(48, room - note - 14)
    return (sign, name, room - name - note, note)


def heading_columns(width: int, *, sign: int = 2, title: int = 15) -> Sequence[int]:
    """Sign, title and summary of a step."""
    return (sign, min(title, width - sign), max(0, width - title - sign))


def rows_of(
    report: Report, opened: str, only: str, g: Glyphs, visited: Collection[str] = ()
) -> list[Row]:
    """All rows; `only` is "" or `changed` or `problems` and lists options of every step then."""
    found: list[Row] = []
    for number, step in enumerate(STEPS, start=1):
        if only:
            names = filtered(step, report, only)
            if not names:
                continue
        else:
            names = listed_options(step, report, visited) if step.key == opened else ()
        found.append(_step_row(number, step, report, opened == step.key or bool(only), g))
        found.extend(option_row(name, report, g) for name in names)
        if step.key == opened and not only:
            found += _action_rows(g) if step.key == "review" else [_more_row(step, g)]
    return found


def filtered(step: SetupStep, report: Report, only: str) -> tuple[str, ...]:
    """Options of a step that were changed, or that a finding is about."""
    if only == "changed":
        names: Iterable[str] = set_by_user(report)
    else:
        names = [f.option for f in report.findings if f.option and f.severity is not Severity.NOTE]
    return tuple(dict.fromkeys(name for name in names if step_of(name) == step.key))


def _worst(findings: Iterable[Finding]) -> Severity | None:
    order = (Severity.ERROR, Severity.WARNING)
    present = {finding.severity for finding in findings}
    return next((severity for severity in order if severity in present), None)


def _step_row(number: int, step: SetupStep, report: Report, opened: bool, g: Glyphs) -> Row:
    worst = _worst(f for f in report.findings if step_of(f.option) == step.key)
    if worst is not None:
        sign, tone = g.severity(worst), SEVERITY_TONE[worst]
    elif _is_open_question(step, report):
        sign, tone = g.unknown, Tone.ASK
    else:
        sign, tone = g.ok, Tone.GOOD
    arrow = g.opened if opened else g.closed
    return Row(
        STEP + step.key,
        (
            Content.styled(sign, tone),
            Content.assemble((f"{arrow} ", Tone.QUIET), (f"{number} {step.title}", "bold")),
            Content(summary(step, report, g)),
        ),
        layout=partial(heading_columns, sign=g.sign_width + 1),
    )


def _is_open_question(step: SetupStep, report: Report) -> bool:
    if step.key == "model":
        path = report.draft.model_path
        return path is None or path not in report.facts.checkpoints
    if step.key == "hardware":
        return report.facts.gpu is None
    return step.key == "review" and bool(report.unknowns)


def summary(step: SetupStep, report: Report, g: Glyphs) -> str:
    """A step in a few words."""
    values = report.plan.values
    if step.key == "model":
        return model_name(report)
    if step.key == "hardware":
        return hardware_text(report, g)
    if step.key == "attention":
        prefill, decode = report.plan.backends
        pair = prefill if prefill == decode else f"{prefill} + {decode}"
        return pair or "engine's choice"
    if step.key == "kv":
        dtype = value_text(values.get("kv_cache_dtype"))
        pool = report.pool
        return dtype + (f" · {cell_text(pool.bytes_per_token)}/token" if pool else "")
    if step.key == "offload":
        return _offload_summary(report, g)
    return plural(len(report.draft.options), "option") + " set"


def _offload_summary(report: Report, g: Glyphs) -> str:
    values = report.plan.values
    parts = []
    mode = values.get("disaggregation_mode")
    if mode and mode != "null":
        parts.append(f"PD {mode}")
    if values.get("enable_hierarchical_cache"):
        parts.append("HiCache")
    if values.get("disaggregation_decode_enable_offload_kvcache"):
        parts.append("decode offload")
    if values.get("enable_hisparse"):
        parts.append("HiSparse")
    storage = values.get("hicache_storage_backend")
    return " · ".join(parts) + (f" {g.arrow} {storage}" if storage else "") or "none"


def option_row(name: str, report: Report, g: Glyphs) -> Row:
    """One option: what a finding says of it, its value, and where that comes from."""
    worst = _worst(f for f in report.findings if f.option == name)
    sign = Content("")
    if worst is not None:
        sign = Content.styled(g.severity(worst), SEVERITY_TONE[worst])
    picked = chosen(report.draft, name) if not name.startswith("env:") else _env(name, report)
    unused = not_used(name, report)
    note, note_tone = _origin(name, report, picked is not None, unused)
    name_tone = Tone.QUIET if unused and picked is None else Tone.PLAIN
    return Row(
        name,
        (
            sign,
            Content.styled("  " + name_of(name), name_tone),
            _value(name, report, picked, bool(unused), g),
            Content.styled(note, note_tone),
        ),
    )


def _env(name: str, report: Report) -> str | None:
    return report.draft.env.get(name.removeprefix("env:"))


def resolved_value(name: str, report: Report) -> Value:
    """What the engine ends up with, hardware included."""
    if name == GPU:
        return report.facts.gpu.name if report.facts.gpu else None
    if name == GPU_COUNT:
        return report.facts.gpu_count
    return report.plan.values.get(name)


def _value(name: str, report: Report, picked: Value, unused: bool, g: Glyphs) -> Content:
    resolved = resolved_value(name, report)
    if picked is None:
        if unused:
            return Content.styled(g.none, Tone.QUIET)
        return Content.styled(_shown(name, resolved), Tone.QUIET)
    text = Content.styled(_shown(name, picked), "bold")
    if name not in (GPU, GPU_COUNT) and resolved != picked and not name.startswith("env:"):
        text = Content.assemble(text, (f" {g.arrow} {value_text(resolved)}", Tone.WARN))
    return text


def _shown(name: str, value: Value) -> str:
    if value is None and default_of(name) is None:
        return "not set"
    return value_text(value)


def _origin(name: str, report: Report, picked: bool, unused: str | None) -> tuple[str, Tone]:
    if unused and not picked:
        return "not used here", Tone.QUIET
    if unused:
        return "set, not used", Tone.WARN
    if picked:
        return "chosen", Tone.KEY
    if name in (GPU, GPU_COUNT):
        return "this machine" if report.facts.gpu and report.facts.gpu.local else "", Tone.QUIET
    origin = report.plan.origins.get(name)
    if origin is not None and origin.kind == "forced":
        return "set by engine", Tone.QUIET
    differs = report.plan.values.get(name) != default_of(name)
    return "engine default" if differs else "", Tone.QUIET


def _action_rows(g: Glyphs) -> list[Row]:
    return [
        Row(
            DO + action,
            (Content.styled(key, f"bold {Tone.KEY}"), Content.styled(f"  {text}", Tone.KEY)),
            layout=partial(heading_columns, sign=g.sign_width + 1, title=40),
        )
        for action, key, text in ACTIONS
    ]


def _more_row(step: SetupStep, g: Glyphs) -> Row:
    return Row(
        MORE + step.key,
        (Content(""), Content.styled(f"  {g.stale} more options", Tone.QUIET), Content(""),
         Content("")),
    )  # fmt: skip
