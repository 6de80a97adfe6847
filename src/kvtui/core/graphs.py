"""CUDA graph settings per phase and the sizes that get captured.

Mirrors `srt/model_executor/cuda_graph_config.py` and the size lists of
`srt/arg_groups/cuda_graph_hook.py` (0.5.23). Sizes are requests for decode, tokens for prefill.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

DECODE = "decode"
PREFILL = "prefill"
PHASES = (DECODE, PREFILL)

FULL = "full"
BREAKABLE = "breakable"
DISABLED = "disabled"
BACKENDS = (FULL, BREAKABLE, DISABLED)
"""Ways to capture, for either phase."""

PHASE_KEYS: Mapping[str, tuple[str, ...]] = {
    DECODE: ("backend", "max_bs", "bs"),
    PREFILL: (
        "backend", "max_bs", "bs", "max_context_size", "full_prefill_max_req",
        "full_prefill_prefix_chunk_tokens", "max_seq_len",
    ),
}  # fmt: skip
"""Keys that `--cuda-graph-config` takes in each phase."""

PREFILL_DEFAULT_TOKENS = 2048
"""Bucket limit assumed while the prefill limit is not resolved yet."""


@dataclass(frozen=True, slots=True)
class PhaseConfig:
    """Graph settings of one phase; None stands for "not resolved yet"."""

    backend: str = DISABLED
    max_bs: int | None = None
    bs: tuple[int, ...] | None = None
    max_context_size: int | None = None
    full_prefill_max_req: int | None = None
    full_prefill_prefix_chunk_tokens: int | None = None
    max_seq_len: int | None = None

    @property
    def enabled(self) -> bool:
        """True where something is captured."""
        return self.backend != DISABLED


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """The resolved `cuda_graph_config`."""

    decode: PhaseConfig = PhaseConfig(FULL)
    prefill: PhaseConfig = PhaseConfig(DISABLED)
    locked: frozenset[tuple[str, str]] = field(default=frozenset(), compare=False)
    """(phase, key) pairs that the user set; automatic changes leave most of them alone."""

    def phase(self, name: str) -> PhaseConfig:
        """The settings of `decode` or `prefill`."""
        return self.decode if name == DECODE else self.prefill

    def with_phase(self, name: str, **changes: Any) -> GraphConfig:
        """A copy with `changes` made to one phase."""
        changed = replace(self.phase(name), **changes)
        return replace(self, decode=changed) if name == DECODE else replace(self, prefill=changed)

    def is_locked(self, phase: str, key: str) -> bool:
        """True where the user set that key of that phase, by whatever spelling."""
        return (phase, key) in self.locked


class GraphConfigError(ValueError):
    """Text that `--cuda-graph-config` does not take; the message says what was expected."""


def parse_graph_config(text: str) -> dict[str, dict[str, Any]]:
    """Read the JSON of `--cuda-graph-config`; raises GraphConfigError as argparse would refuse."""
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise GraphConfigError(f"not JSON: {error}") from None
    check_graph_config(parsed)
    return {str(phase): dict(settings) for phase, settings in parsed.items()}


def check_graph_config(parsed: object) -> None:
    """Raise GraphConfigError where phases or keys are none that the engine takes."""
    if not isinstance(parsed, Mapping):
        raise GraphConfigError(f"expected a JSON object, found {type(parsed).__name__}")
    for phase, settings in parsed.items():
        if phase not in PHASES:
            raise GraphConfigError(f"no phase {phase!r}; there are decode and prefill")
        if not isinstance(settings, Mapping):
            raise GraphConfigError(f"{phase} must be a JSON object, not {type(settings).__name__}")
        if settings.get("backend") == "tc_piecewise":
            raise GraphConfigError("tc_piecewise was removed; full, breakable and disabled remain")
        for key in settings:
            if key not in PHASE_KEYS[phase]:
                raise GraphConfigError(
                    f"{phase} has no key {key!r}; it takes {', '.join(PHASE_KEYS[phase])}"
                )


LIST_LIMIT = 1 << 20
"""Largest size that lists are spelt out to; the engine's own memory ends long before."""


def _up_to(limit: int, *parts: range) -> list[int]:
    return [size for part in parts for size in part if size <= limit]


@cache
def prefill_graph_sizes(max_tokens: int) -> tuple[int, ...]:
    """Token buckets captured for prefill up to `max_tokens`, coarser as they grow."""
    max_tokens = min(max_tokens, LIST_LIMIT)
    return tuple(
        _up_to(
            max_tokens,
            range(4, 33, 4), range(48, 257, 16), range(288, 513, 32), range(576, 1025, 64),
            range(1280, 4097, 256), range(4608, max_tokens + 1, 512),
        )
    )  # fmt: skip


@cache
def decode_graph_sizes(max_bs: int, padding: bool, speculative: bool) -> tuple[int, ...]:
    """Batch sizes captured for decode; always ends with `max_bs` itself.

    Without padding every size is captured, and speculation captures small sizes more finely.
    """
    max_bs = min(max_bs, LIST_LIMIT)
    if not padding:
        sizes = list(range(1, max_bs + 1))
    elif speculative:
        sizes = _up_to(
            max_bs,
            range(1, 9), range(10, 33, 2), range(40, 65, 4), range(72, 257, 8),
            range(272, max_bs + 1, 16),
        )  # fmt: skip
    else:
        sizes = [size for size in (1, 2, 4, 8, 12) if size <= max_bs]
        sizes += _up_to(max_bs, range(16, 257, 8), range(272, 512, 16), range(512, max_bs + 1, 32))
    if max_bs not in sizes:
        sizes.append(max_bs)
    return tuple(sizes)


@cache
def cpu_graph_sizes(max_bs: int, padding: bool) -> tuple[int, ...]:
    """Batch sizes compiled on a CPU, where `torch.compile` stands in for graphs."""
    max_bs = min(max_bs, LIST_LIMIT)
    if not padding:
        return tuple(range(1, max_bs + 1))
    sizes = {*range(1, 17), *range(18, 31, 2), *range(32, 81, 4), *range(84, max_bs + 1, 8), max_bs}
    return tuple(size for size in sorted(sizes) if size <= max_bs)
