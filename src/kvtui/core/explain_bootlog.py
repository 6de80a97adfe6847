"""What a boot log says: how far the server came, with which figures, and where it died."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvtui.core.draft import Draft

STEPS = (
    "arguments read",
    "weights begin to load",
    "weights loaded",
    "pools built",
    "graphs captured",
    "scheduler ready",
    "server ready",
)
"""What a boot reaches, in order."""


@dataclass(frozen=True, slots=True)
class BootLog:
    """Figures of one boot. Sizes are GiB as the engine prints them, per rank."""

    launch: Draft | None = None
    """What the launch asked for, from the line with ServerArgs."""
    blanks: tuple[str, ...] = ()
    version: str | None = None
    model_class: str | None = None
    weights_begin_free_gib: float | None = None
    weights_end_free_gib: float | None = None
    weights_gib: float | None = None
    kv_dtype: str | None = None
    tokens: int | None = None
    k_gib: float | None = None
    v_gib: float | None = None
    kv_gib: float | None = None
    state_gib: float | None = None
    pool_end_free_gib: float | None = None
    graph_gib: float | None = None
    max_total_num_tokens: int | None = None
    max_running_requests: int | None = None
    context_len: int | None = None
    chunked_prefill_size: int | None = None
    reached: tuple[str, ...] = ()
    """Steps of `STEPS` that the log proves."""

    @property
    def died_after(self) -> str | None:
        """The last step that was reached, or None where the server came up or nothing was read."""
        if not self.reached or self.reached[-1] == STEPS[-1]:
            return None
        return self.reached[-1]


@dataclass(frozen=True, slots=True)
class _Line:
    pattern: re.Pattern[str]
    reached: str | None
    fields: tuple[tuple[str, Callable[[str], Any]], ...] = field(default=())


def _line(pattern: str, reached: str | None, **fields: Callable[[str], Any]) -> _Line:
    return _Line(re.compile(pattern), reached, tuple(fields.items()))


LINES = (
    _line(r"sglang[ =]+v?(?P<version>\d+\.\d+\.\d+\S*)", None, version=str),
    _line(r"ServerArgs\(", STEPS[0]),
    _line(
        r"Load weight begin\. avail mem=(?P<weights_begin_free_gib>[\d.]+)",
        STEPS[1], weights_begin_free_gib=float,
    ),
    _line(
        r"Load weight end\..*?type=(?P<model_class>\w+)"
        r".*?avail mem=(?P<weights_end_free_gib>[\d.]+)",
        STEPS[2], model_class=str, weights_end_free_gib=float,
    ),
    _line(r"Load weight end\..*?mem usage=(?P<weights_gib>[\d.]+)", STEPS[2], weights_gib=float),
    _line(
        r"KV Cache is allocated\.(?: dtype: (?P<kv_dtype>[\w.]+),)? ?#tokens: (?P<tokens>\d+)",
        STEPS[3], kv_dtype=str, tokens=int,
    ),
    _line(r"#tokens: (?P<tokens>\d+), KV size: (?P<kv_gib>[\d.]+)", STEPS[3],
          tokens=int, kv_gib=float),
    _line(r"K size: (?P<k_gib>[\d.]+) GB, V size: (?P<v_gib>[\d.]+)", STEPS[3],
          k_gib=float, v_gib=float),
    _line(r"KV Cache skipped \(no-op pool\)", STEPS[3]),
    _line(r"ssm_state size: ?(?P<state_gib>[\d.]+)", STEPS[3], state_gib=float),
    _line(r"Memory pool end\. avail mem=(?P<pool_end_free_gib>[\d.]+)", STEPS[3],
          pool_end_free_gib=float),
    _line(r"Capture .*?end\..*?mem usage=(?P<graph_gib>[\d.]+)", STEPS[4], graph_gib=float),
    _line(r"max_total_num_tokens=(?P<max_total_num_tokens>\d+)", STEPS[5],
          max_total_num_tokens=int),
    _line(
        r"max_total_num_tokens=.*?max_running_requests=(?P<max_running_requests>\d+)"
        r", context_len=(?P<context_len>\d+)",
        STEPS[5], max_running_requests=int, context_len=int,
    ),
    _line(r"chunked_prefill_size=(?P<chunked_prefill_size>-?\d+), max_prefill_tokens", STEPS[5],
          chunked_prefill_size=int),
    _line(r"fired up and ready to roll", STEPS[6]),
)  # fmt: skip
"""Lines of the log with the figures in them; the first occurrence counts."""


def read_boot_log(text: str) -> BootLog | None:
    """The boot in a log, or None where the text holds no line of one."""
    from kvtui.core.imports.keywords import calls_in, draft_of

    values: dict[str, Any] = {}
    reached: set[str] = set()
    for line in LINES:
        match = line.pattern.search(text)
        if match is None:
            continue
        if line.reached:
            reached.add(line.reached)
        for name, read in line.fields:
            if match.group(name) is not None:
                values.setdefault(name, read(match.group(name).rstrip(".")))
    if not reached:
        return None
    launch: Draft | None = None
    blanks: tuple[str, ...] = ()
    for source, keywords in calls_in(text):
        if "ServerArgs" in source[:40]:
            launch, blanks = draft_of(keywords)
            break
    order = tuple(step for step in STEPS if step in reached)
    return BootLog(launch=launch, blanks=blanks, reached=order, **values)
