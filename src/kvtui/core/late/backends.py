"""The table of what attention back ends need at run time, and which of them a launch uses."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kvtui.core.derived import uses_mla
from kvtui.core.findings import Change, Fix, drop, set_to
from kvtui.core.resolution import Resolution
from kvtui.core.steps.attention_default import BACKEND_OPTIONS

PREFILL, DECODE, DRAFT = "prefill", "decode", "draft"

DRAFT_OPTION = "speculative_draft_attention_backend"

REFUSED_EARLIER = frozenset({"KV221", "KV224", "KV226"})
"""Rules of argument resolution that say the same of a backend and GPU before any kernel runs."""


@dataclass(frozen=True, slots=True)
class BackendNeeds:
    """One row of the table."""

    name: str
    source: str
    vendor: str | None = None
    majors: tuple[int, ...] = ()
    """Compute capability majors with kernels; empty for no limit."""
    mla_majors: tuple[int, ...] = ()
    decode_only: bool = False
    family: str | None = None
    model: str | None = None
    package: str | None = None

    def majors_for(self, mla: bool) -> tuple[int, ...]:
        """Majors that have the kernels of that attention family."""
        return self.mla_majors if mla and self.mla_majors else self.majors


@dataclass(frozen=True, slots=True)
class LinearKernels:
    """Kernels of one kind of recurrent state: majors by kernel, by phase."""

    decode: Mapping[str, tuple[int, ...]]
    prefill: Mapping[str, tuple[int, ...]]
    verify: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BackendTable:
    """The three parts of `tables/backends.toml`."""

    backends: Mapping[str, BackendNeeds]
    dsa: Mapping[str, tuple[int, ...]]
    linear: Mapping[str, LinearKernels]


@cache
def backend_table() -> BackendTable:
    """The table, read once."""
    text = (resources.files("kvtui.core.tables") / "backends.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    lists = ("majors", "mla_majors")
    rows: list[BackendNeeds] = []
    for row in data["backend"]:
        words: dict[str, Any] = {k: tuple(v) if k in lists else v for k, v in row.items()}
        rows.append(BackendNeeds(**words))
    return BackendTable(
        {row.name: row for row in rows},
        {row["name"]: tuple(row["majors"]) for row in data["dsa"]},
        {
            row["kind"]: LinearKernels(
                *(
                    {name: tuple(majors) for name, majors in row.get(phase, {}).items()}
                    for phase in ("decode", "prefill", "verify")
                )
            )
            for row in data["linear"]
        },
    )


def used_backends(r: Resolution) -> Iterator[tuple[str, str]]:
    """(phase, backend) of every attention backend that the server builds."""
    for phase, backend in zip((PREFILL, DECODE), r.backends, strict=True):
        if backend is not None:
            yield phase, backend
    draft = getattr(r, DRAFT_OPTION)
    if r.speculative_algorithm is not None and draft is not None:
        yield DRAFT, draft


def running_vendor(r: Resolution) -> str:
    """Whose kernels the server runs: the GPU's vendor, or cpu where that device is chosen."""
    return "cpu" if r.device == "cpu" else r.platform.gpu.vendor


def refused_earlier(r: Resolution) -> bool:
    """True where argument resolution stops over a backend that the GPU lacks."""
    return any(finding.rule in REFUSED_EARLIER for finding in r.findings)


def lacking(r: Resolution) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """(phase, backend, majors it is built for) for each NVIDIA backend that the GPU lacks."""
    if running_vendor(r) != "nvidia" or refused_earlier(r):
        return
    major = r.platform.device_capability[0]
    seen: set[str] = set()
    for phase, backend in used_backends(r):
        needs = backend_table().backends.get(backend)
        if needs is None or not needs.majors or backend in seen:
            continue
        if needs.decode_only and (phase == PREFILL or r.disaggregation_mode == "prefill"):
            continue
        majors = needs.majors_for(phase != DRAFT and uses_mla(r))
        if major not in majors:
            seen.add(backend)
            yield phase, backend, majors


def instead_of(r: Resolution, backend: str, phase: str = PREFILL) -> Fix:
    """A fix that gets rid of `backend`: take the choice back, or name a backend that fits."""
    if phase == DRAFT:
        return drop(DRAFT_OPTION, title="draft with the engine's choice")
    chosen = [o for o in BACKEND_OPTIONS if r.chose(o) and getattr(r.raw, o) == backend]
    if chosen and not r.enable_deterministic_inference:
        return drop(*chosen, title="let the engine choose the backend")
    changes = [Change(BACKEND_OPTIONS[0], "triton")]
    changes += [Change(option) for option in BACKEND_OPTIONS[1:] if r.chose(option)]
    return Fix("use triton", tuple(changes))


def keeps_fp8_e4m3(r: Resolution) -> bool:
    """True where KV is stored as E4M3, by choice or by the checkpoint's own setting."""
    stored = r.pool.kv_dtype if r.pool is not None else None
    return r.kv_cache_dtype == "fp8_e4m3" or stored == "float8_e4m3fn"


def keep_kv_wide(r: Resolution) -> Fix:
    """A fix that stores KV in the model's own 16-bit type."""
    return set_to("keep KV in 16 bit (twice the bytes)", kv_cache_dtype="bf16")


def sm_names(majors: tuple[int, ...]) -> str:
    """`(8, 9, 10)` as `SM8x, SM9x or SM10x`."""
    *first, last = (f"SM{major}x" for major in majors)
    return f"{', '.join(first)} or {last}" if first else last
