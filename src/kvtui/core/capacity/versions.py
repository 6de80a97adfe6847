"""How the sizing rule differed in earlier releases, and the boot logs that show it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

NEWEST = (0, 5, 23)


@dataclass(frozen=True, slots=True)
class SizingRule:
    """What a release's sizing charges; the defaults are 0.5.23's."""

    index_keys: bool = True
    """DSA index keys are priced (since October 2025, sgl-project/sglang#11309)."""
    packed_scales: bool = True
    """The FP8 DSA row is priced with its scales, 656 and not 576 bytes (since 0.5.17)."""
    window_ratio: bool = True
    """Sliding layers are priced at their ratio (since sgl-project/sglang#18039, 2026-01-31)."""
    eagle_draft: bool = True
    """EAGLE and MTP draft layers are priced (0.5.10 to 0.5.13 did not, 0.5.16 does)."""
    dflash_windowed: bool = True
    """A DFLASH draft of a sliding-window target is priced (0.5.16 did not)."""
    state_padding: bool = True
    """The padding slot of the state pool is charged (since 2026-07-23)."""
    stale_scales: bool = False
    """FP4 experts keep their scales as loaded, 4 bytes for 32 values, beside those that Hopper
    kernels read (on 0.5.15, not in May 2026; released since, marlin_utils_fp4.py:463)."""
    multimodal_mib: int = 100
    """Kept back for a multimodal model's embedding cache (since 0.5.18)."""
    extra_request: bool = False
    """Running requests print one above the clamp (before 2025-04)."""
    fraction: str = "graphs"
    """Automatic memory fraction: graphs (0.5.23's) | flat | classes | activations."""


SINCE: tuple[tuple[tuple[int, int, int], dict[str, object]], ...] = (
    ((0, 4, 5), {"extra_request": True}),
    ((0, 4, 8), {"fraction": "flat"}),
    ((0, 5, 4), {"fraction": "classes", "index_keys": False}),
    ((0, 5, 10), {"fraction": "activations"}),
    ((0, 5, 9), {"window_ratio": False}),
    ((0, 5, 14), {"eagle_draft": False, "stale_scales": False}),
    ((0, 5, 16), {"state_padding": False}),
    ((0, 5, 17), {"packed_scales": False, "dflash_windowed": False, "stale_scales": True}),
    ((0, 5, 18), {"multimodal_mib": 0}),
)
"""(first release with the present behaviour, what held before it)."""

RELEASED: tuple[tuple[str, tuple[int, int, int]], ...] = (
    ("2024-10", (0, 3, 4)), ("2024-12", (0, 4, 1)), ("2025-02", (0, 4, 3)), ("2025-04", (0, 4, 6)),
    ("2025-06-10", (0, 4, 7)), ("2025-06-24", (0, 4, 8)), ("2025-07", (0, 4, 9)),
    ("2025-08", (0, 5, 0)), ("2025-09", (0, 5, 2)), ("2025-10-06", (0, 5, 3)),
    ("2025-10-26", (0, 5, 4)), ("2025-11-06", (0, 5, 5)), ("2025-12-03", (0, 5, 6)),
    ("2026-01-01", (0, 5, 7)), ("2026-01-24", (0, 5, 8)), ("2026-02-24", (0, 5, 9)),
    ("2026-04-06", (0, 5, 10)), ("2026-05-05", (0, 5, 11)), ("2026-05-25", (0, 5, 12)),
    ("2026-06-10", (0, 5, 13)), ("2026-07-01", (0, 5, 15)), ("2026-07-24", (0, 5, 16)),
    ("2026-08-10", (0, 5, 17)), ("2026-08-25", (0, 5, 18)), ("2026-09-15", (0, 5, 20)),
    ("2026-10-05", (0, 5, 21)), ("2026-10-30", (0, 5, 23)),
)  # fmt: skip
"""Roughly when a release came out, to place a boot log that states no version."""


@lru_cache(maxsize=64)
def sizing_rule(version: tuple[int, int, int] = NEWEST) -> SizingRule:
    """The rule of a release."""
    changed: dict[str, object] = {}
    for first, before in sorted(SINCE, reverse=True):
        if version < first:
            changed.update(before)
    return SizingRule(**changed)  # type: ignore[arg-type]


def parse_version(text: str | None) -> tuple[int, int, int] | None:
    """(major, minor, patch) out of a version text, or None where it states none."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text or "")
    if found is None or found[0].startswith("0.0"):
        return None
    return int(found[1]), int(found[2]), int(found[3] or 0)


def version_at(date: str | None) -> tuple[int, int, int]:
    """The newest release at a date (`2026-04-10`, or a shorter form); the newest if unknown."""
    if not date or len(date) < 7:
        return NEWEST
    found = RELEASED[0][1]
    for day, version in RELEASED:
        if day <= date:
            found = version
    return found
