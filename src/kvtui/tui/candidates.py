"""Every value that an option may take, and what each would do to the launch at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kvtui.core.findings import Change, Finding, Outcome, Severity, Value
from kvtui.core.gpus import gpus
from kvtui.core.options import Option, catalogue
from kvtui.core.values import JSON_TYPES, READERS
from kvtui.errors import InputError
from kvtui.tui.session import GPU, GPU_COUNT, chosen
from kvtui.tui.words import value_text

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

SUGGESTED: Mapping[str, tuple[Value, ...]] = MappingProxyType({
    "page_size": (1, 16, 32, 64, 128, 256),
    "mem_fraction_static": (0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.95),
    "max_running_requests": (1, 8, 16, 32, 64, 128, 256, 512),
    "chunked_prefill_size": (-1, 2048, 4096, 8192, 16384),
    "context_length": (8192, 16384, 32768, 65536, 131072, 262144),
    "max_total_tokens": (16384, 65536, 131072, 262144, 524288, 1048576),
    "swa_full_tokens_ratio": (0.2, 0.4, 0.6, 0.8, 1.0),
    "mamba_full_memory_ratio": (0.5, 0.7, 0.9, 1.2),
    "hicache_ratio": (1.5, 2.0, 3.0, 4.0),
    "hicache_size": (16, 32, 64, 128, 256),
    "tp_size": (1, 2, 4, 8),
    "dp_size": (1, 2, 4, 8),
    "attn_dp_size": (1, 2, 4, 8),
    "pp_size": (1, 2, 4),
    "ep_size": (1, 2, 4, 8),
    "dcp_size": (1, 2, 4, 8),
    "nnodes": (1, 2, 4),
    "speculative_num_steps": (1, 2, 3, 5),
    "speculative_eagle_topk": (1, 2, 4, 8),
    "speculative_num_draft_tokens": (2, 4, 6, 8),
    "cuda_graph_max_bs_decode": (8, 32, 64, 128, 256),
    "max_mamba_cache_size": (16, 64, 128, 256),
    "cpu_offload_gb": (8, 16, 32, 64),
    "hisparse_config": ({"host_to_device_ratio": 2},),
})  # fmt: skip
"""Values worth a look where any number goes; others can be typed."""

ENGINE = "ENGINE"
"""Rule id of a finding that is the engine's own word."""

PICKED_ELSEWHERE = frozenset(("model_path", GPU))
"""Options that have a picker of their own."""


class Mark(StrEnum):
    """What a value does to the verdict."""

    OK = "ok"
    WARNS = "warns"
    FAILS = "fails"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One value of an option; `change` is the edit that chooses it."""

    label: str
    value: Value
    change: Change
    is_default: bool = False
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """What choosing a candidate would lead to."""

    mark: Mark
    reason: Finding | None
    """The first error or warning that this value brings, over what all values share."""
    clears: tuple[Finding, ...]
    """Errors of the present launch that this value takes away."""
    resolved: Value
    """The value that the engine ends up with."""
    report: Report


def kind_of(option: str) -> Option:
    """The catalogue's entry; hardware and unknown names get one that takes any text."""
    known = catalogue().options.get(option)
    if known is not None:
        return known
    if option == GPU_COUNT:
        return Option(option, (), "value", "", "GPUs of this kind on the machine.", "int")
    if option == GPU:
        return Option(option, (), "value", "", "The GPU that the launch is meant for.")
    return Option(option, (), "value", "", "")


def default_of(option: str) -> Value:
    """The value that an absent option stands for."""
    return catalogue().defaults.get(option)


def takes_text(option: str) -> bool:
    """True where a value can be typed: it is neither a switch nor bound to choices."""
    known = kind_of(option)
    return not known.choices and known.kind in ("value", "lora_paths", "deprecated_const")


def candidates(option: str, report: Report) -> tuple[Candidate, ...]:
    """The values to offer, the absent one first, the present one always among them."""
    now = chosen(report.draft, option)
    default = default_of(option)
    rows = [Candidate(_default_label(default), default, Change(option), True, now is None)]
    for value in _values(option, report):
        if value == default and type(value) is type(default):
            if now == default and now is not None:
                rows[0] = Candidate(rows[0].label, default, Change(option), True, True)
            continue
        rows.append(_candidate(option, value, now))
    if now is not None and not any(row.is_current for row in rows):
        rows.append(_candidate(option, now, now))
    return tuple(rows)


def _candidate(option: str, value: Value, now: object) -> Candidate:
    same = now == value and isinstance(now, bool) == isinstance(value, bool)
    return Candidate(value_text(value), value, Change(option, value), False, same)


def _default_label(default: Value) -> str:
    return "not set" if default is None or default == [] else value_text(default)


def _values(option: str, report: Report) -> Iterable[Value]:
    if option == GPU:
        return tuple(gpu.key for gpu in gpus())
    if option == GPU_COUNT:
        return (1, 2, 4, 8, 16)
    known = kind_of(option)
    if known.choices:
        return known.choices
    if known.kind in ("flag", "switch", "deprecated_flag"):
        return (True, False)
    return SUGGESTED.get(option, ())


def read_value(option: str, text: str) -> Value:
    """What typed text means for an option; raises InputError saying what was expected."""
    known = kind_of(option)
    text = text.strip()
    if not text:
        return None
    reader = READERS.get(known.type, str)
    try:
        if known.nargs in ("+", "*") and known.type not in JSON_TYPES:
            return [reader(word) for word in text.split()]
        return reader(text)
    except ValueError as error:
        raise InputError(f"{text}: {error}") from None


def judge_all(
    option: str, rows: Sequence[Candidate], try_out: Any, present: Report
) -> Iterator[Mapping[str, Judged]]:
    """Judge candidates one by one; a last mapping by label comes when all are known.

    Yields an empty mapping after each evaluation, so that the caller can let keys pass between.
    A value is blamed only for errors that not every value of the option shares.
    """
    reports: dict[str, Report] = {}
    for row in rows:
        reports[row.label] = present if row.is_current else try_out((row.change,))
        yield MappingProxyType({})
    yield MappingProxyType(compare(option, rows, reports, present))


def compare(
    option: str, rows: Sequence[Candidate], reports: Mapping[str, Report], present: Report
) -> dict[str, Judged]:
    """What each candidate's report says of that candidate alone."""
    keyed = {label: _keys(report.errors) for label, report in reports.items()}
    shared = frozenset.intersection(*map(frozenset, keyed.values())) if len(keyed) > 1 else None
    now = _keys(present.errors)
    judged: dict[str, Judged] = {}
    for row in rows:
        report = reports[row.label]
        errors = keyed[row.label]
        blamed = [
            finding
            for key, finding in errors.items()
            if (key not in shared if shared is not None else finding.option == option)
        ]
        warning = _own_warning(option, report)
        mark = Mark.OK
        if blamed:
            mark = Mark.FAILS
        elif report.outcome is Outcome.UNKNOWN and present.outcome is not Outcome.UNKNOWN:
            mark = Mark.UNKNOWN
        elif warning is not None:
            mark = Mark.WARNS
        judged[row.label] = Judged(
            mark,
            blamed[0] if blamed else warning,
            tuple(f for key, f in now.items() if key not in errors),
            report.plan.values.get(option),
            report,
        )
    return judged


def _keys(findings: Iterable[Finding]) -> dict[tuple[str, str | None], Finding]:
    found: dict[tuple[str, str | None], Finding] = {}
    for finding in findings:
        if finding.rule == ENGINE:
            continue  # the engine was asked about the present launch only
        found.setdefault((finding.rule, finding.option), finding)
    return found


def _own_warning(option: str, report: Report) -> Finding | None:
    return next(
        (f for f in report.findings if f.option == option and f.severity is Severity.WARNING), None
    )
