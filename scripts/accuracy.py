"""How close kvtui's capacity comes to what public boot logs printed: `--logs FILE [--json]`.

Two ways to predict: *printed* starts from the free memory that the log itself prints, so that
only the engine's arithmetic is tested; *own* knows configuration, flags and GPU and estimates
weights and free memory as well. `--write docs/accuracy.md` makes the page out of the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accuracy_boots import (
    Boot,
    Models,
    guarded,
    own_capacity,
    printed_capacity,
    printed_prices,
    read_boots,
    resolved,
)

from kvtui.core.capacity.budget import automatic_requests, budget_bytes
from kvtui.core.capacity.result import Capacity
from kvtui.core.capacity.versions import sizing_rule
from kvtui.core.facts import GIB, MIB
from kvtui.core.pools.cell import target_cell, window_cell
from kvtui.core.pools.geometry import geometry_of
from kvtui.core.resolution import Resolution

DEFAULT_STATE_RATIO = 0.9
TARGETS = {
    "printed tokens": (0.003, 0.015),
    "own tokens": (0.03, 0.12),
    "weights": (0.015, None),
}  # fmt: skip
"""(median, 95th percentile) to stay below."""


@dataclass(slots=True)
class Outcome:
    """What was predicted for one boot; None where it can't be compared."""

    boot: Boot
    origin: str
    """config | derived | log: where the geometry comes from."""
    printed: int | None = None
    own: int | None = None
    weights_gib: float | None = None
    prices: list[tuple[str, float, float]] = field(default_factory=list)
    """(pool, printed bytes, predicted bytes) of one token."""
    requests: int | None = None
    fraction: float | None = None
    """The automatic fraction, where the log states none."""
    dies: bool | None = None
    left_out: str = ""
    """Why no tokens are compared."""

    @property
    def printed_error(self) -> float | None:
        """Relative error from the printed free memory."""
        return _error(self.printed, self.boot.tokens)

    @property
    def own_error(self) -> float | None:
        """Relative error from configuration, flags and GPU."""
        return _error(self.own, self.boot.tokens)

    @property
    def weights_error(self) -> float | None:
        """Relative error of what loading takes."""
        return _error(self.weights_gib, self.boot.weights)

    def to_json(self) -> dict[str, Any]:
        """The row as JSON types."""
        return {
            "source": self.boot.name,
            "model": self.boot.row["model"],
            "gpu": self.boot.gpu_name or None,
            "version": ".".join(map(str, self.boot.version)),
            "geometry": self.origin,
            "tokens": self.boot.tokens,
            "printed_tokens": self.printed,
            "printed_error": _rounded(self.printed_error),
            "own_tokens": self.own,
            "own_error": _rounded(self.own_error),
            "weights_gib": self.boot.weights,
            "own_weights_gib": _rounded(self.weights_gib),
            "weights_error": _rounded(self.weights_error),
            "bytes_per_token": [list(one) for one in self.prices],
            "max_running_requests": self.boot.requests,
            "own_requests": self.requests,
            "automatic_fraction": _rounded(self.fraction),
            "dies": self.dies,
            "left_out": self.left_out or None,
        }


def _error(found: float | None, truth: float | None) -> float | None:
    return None if found is None or not truth else found / truth - 1


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


# One boot ---------------------------------------------------------------------------------------


def measure(boot: Boot, models: Models) -> Outcome:
    """Predict one boot in every way that its log allows."""
    known = models.find(str(boot.row["model"]))
    if known is None:
        found = Outcome(boot, "log")
        _from_log(found)
        return found
    found = Outcome(boot, "derived" if known.derived else "config")
    r = resolved(boot, known)
    own = guarded(own_capacity, r)
    if own is None:
        found.origin = "log"
        _from_log(found)
        return found
    _compare(found, r, own)
    if found.printed is None or any(not _same(a, b) for _, a, b in found.prices):
        _from_log(found)
    return found


def _same(printed: float, predicted: float) -> bool:
    return abs(predicted - printed) < 1


def _compare(found: Outcome, r: Resolution, own: Capacity) -> None:
    boot = found.boot
    found.prices = list(_prices(boot, r))
    if boot.fraction is None:
        found.fraction = own.fraction
    found.left_out = _why_not(boot)
    if not found.left_out:
        capacity = guarded(printed_capacity, boot, r)
        found.printed = capacity.max_total_num_tokens if capacity is not None else None
    if boot.died:
        measured = boot.begin is not None and boot.end is not None
        capacity = guarded(printed_capacity, boot, r) if measured else own
        found.dies = capacity is not None and capacity.max_total_num_tokens == 0
    plain = "ktransformers" not in str(boot.row["model"]).lower()
    if boot.weights is not None and plain and boot.is_modelled:
        loaded = own.baseline.value - own.free_after_load.value - own.draft_weights.value
        found.weights_gib = loaded / GIB
    if boot.tokens and boot.is_discrete and not boot.is_capped and plain and _dated(boot):
        found.own = own.max_total_num_tokens
    _requests(found, geometry_of(r).context)


def _dated(boot: Boot) -> bool:
    """True where the fraction is stated or the release that chose it is known."""
    dated = len(str(boot.row.get("date") or "")) >= 7 or boot.row.get("version")
    return boot.fraction is not None or bool(dated)


def _why_not(boot: Boot) -> str:
    if boot.tokens is None:
        return "no token count printed"
    if boot.is_capped:
        return "the count is set by an option"
    if boot.begin is None or boot.end is None:
        return "free memory before and after loading is not quoted"
    if boot.fraction is None:
        return "the memory fraction is not stated"
    if boot.extra.get("excluded_from_statistics"):
        return str(boot.extra["excluded_from_statistics"])
    return ""


def _prices(boot: Boot, r: Resolution) -> Iterable[tuple[str, float, float]]:
    g = geometry_of(r)
    for name, size in printed_prices(boot):
        if not g.hybrid_swa:
            yield name, size, float(target_cell(r, g)) if name == "token" else 0.0
        elif not g.dsv4:
            cell = window_cell(r, g)
            full, swa = cell.full * cell.full_layers, cell.swa * cell.swa_layers
            yield name, size, float({"full": full, "swa": swa}.get(name, full + swa))


def _requests(found: Outcome, context: int) -> None:
    boot = found.boot
    limited = any(str(word).startswith("--max-running-req") for word in boot.row.get("argv") or ())
    states = bool(boot.extra.get("mamba"))
    if boot.requests is None or boot.tokens is None or limited or states:
        return
    stated = boot.row.get("context_len")
    rule = sizing_rule(boot.version)
    automatic = automatic_requests(boot.tokens, int(stated or context), rule)
    found.requests = min(automatic, boot.tokens // 2)


def _from_log(found: Outcome) -> None:
    """Tokens by the budget rule alone, with the bytes per token that the log prints."""
    boot = found.boot
    found.left_out = found.left_out or _why_not(boot)
    price = boot.extra.get("priced_cell_bytes")
    if found.left_out or not price or boot.begin is None or boot.end is None:
        found.left_out = found.left_out or "bytes per token are not printed"
        return
    rule, fraction = sizing_rule(boot.version), boot.fraction or 0.0
    kept = rule.multimodal_mib * MIB if boot.extra.get("multimodal") else 0
    budget = budget_bytes(boot.end * GIB, boot.begin * GIB, fraction, kept)
    state = boot.extra.get("mamba") or {}
    if state.get("slot_ssm_bytes") and state.get("ssm_gib"):
        extra = 1 + (state.get("conv_gib") or 0) / state["ssm_gib"]
        slot, pad = state["slot_ssm_bytes"] * extra, int(rule.state_padding)
        stated = state.get("max_mamba_cache_size") if _states_fixed(boot) else None
        share = budget * DEFAULT_STATE_RATIO / (1 + DEFAULT_STATE_RATIO)
        slots = stated if stated is not None else (share - pad * slot) // slot
        budget -= (slots + pad) * slot
    page = int(boot.extra.get("page_size") or 1)
    found.printed = int(budget // price) // page * page
    found.origin = "log"
    context = boot.row.get("context_len")
    if context:
        _requests(found, int(context))


def _states_fixed(boot: Boot) -> bool:
    words = [str(word) for word in boot.row.get("argv") or ()]
    asked = any(word.startswith("--max-mamba-cache-size") for word in words)
    return asked or (
        "--disable-radix-cache" in words
        and any(word.startswith("--max-running-req") for word in words)
    )


# All boots --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the summary."""

    name: str
    count: int
    median: float | None
    p95: float | None
    worst: float | None
    target: tuple[float, float | None] | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is kept, None without one."""
        if self.target is None or self.median is None or self.p95 is None:
            return None
        median, p95 = self.target
        return self.median <= median and (p95 is None or self.p95 <= p95)


def summed(name: str, errors: Iterable[float | None], target: str | None = None) -> Line:
    """Median, 95th percentile and largest of absolute errors."""
    sizes = sorted(abs(one) for one in errors if one is not None)
    goal = TARGETS.get(target or "")
    if not sizes:
        return Line(name, 0, None, None, None, goal)
    at = min(len(sizes) - 1, int(0.95 * (len(sizes) - 1) + 0.5))
    return Line(name, len(sizes), statistics.median(sizes), sizes[at], sizes[-1], goal)


def summary(found: Sequence[Outcome]) -> list[Line]:
    """Errors by kind of prediction and of GPU."""

    def pick(value: Callable[[Outcome], float | None], *origins: str) -> list[float | None]:
        return [value(one) for one in found if not origins or one.origin in origins]

    def printed(one: Outcome) -> float | None:
        return one.printed_error

    discrete = [one for one in found if one.boot.is_discrete]
    return [
        summed("tokens from printed free memory", pick(printed), "printed tokens"),
        summed("... discrete GPUs", [one.printed_error for one in discrete]),
        summed("... bytes per token from a configuration", pick(printed, "config", "derived")),
        summed("tokens from configuration, flags and GPU",
               [one.own_error for one in discrete if one.origin == "config"], "own tokens"),
        summed("... shapes or format derived from the log",
               [one.own_error for one in discrete if one.origin == "derived"]),
        summed("weights, discrete GPUs",
               [one.weights_error for one in discrete if one.origin == "config"], "weights"),
        summed("... unified memory",
               [one.weights_error for one in found
                if one.boot.is_unified and one.origin == "config"]),
        summed("... shapes or format derived from the log",
               [one.weights_error for one in found if one.origin == "derived"]),
    ]  # fmt: skip


def exact(found: Sequence[Outcome]) -> dict[str, tuple[int, int]]:
    """(right, compared) of figures that should match to the last digit."""
    prices = [(a, b) for one in found for _, a, b in one.prices if not one.boot.is_patched]
    requests = [(one.boot.requests, one.requests) for one in found if one.requests is not None]
    deaths = [one.dies for one in found if one.dies is not None]
    return {
        "bytes per token": (sum(_same(a, b) for a, b in prices), len(prices)),
        "running requests": (sum(a == b for a, b in requests), len(requests)),
        "deaths foreseen": (sum(deaths), len(deaths)),
    }


def main() -> int:
    """Measure, print, and write the page where asked; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, required=True, help="boot logs, JSON lines")
    parser.add_argument("--models", type=Path, help="folder of OWNER--NAME/config.json")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    asked = parser.parse_args()
    beside = asked.logs.resolve().parent.parent / "models"
    models = Models(asked.models or (beside if beside.is_dir() else None))
    found = [measure(boot, models) for boot in read_boots(asked.logs)]
    lines, counts = summary(found), exact(found)
    if asked.write:
        from accuracy_page import page

        asked.write.write_text(page(found, lines, counts))
    if asked.json:
        print(json.dumps(as_json(found, lines, counts), indent=1))
    else:
        from accuracy_page import table

        print(table(found, lines, counts))
    return int(any(line.met is False for line in lines))


def as_json(
    found: Sequence[Outcome], lines: Sequence[Line], counts: dict[str, tuple[int, int]]
) -> dict[str, Any]:
    """Summary and rows as JSON types."""
    return {
        "summary": [
            {
                "name": line.name, "boots": line.count, "median": _rounded(line.median),
                "p95": _rounded(line.p95), "worst": _rounded(line.worst),
                "target": line.target, "met": line.met,
            }
            for line in lines
        ],
        "exact": {name: {"right": a, "of": b} for name, (a, b) in counts.items()},
        "boots": [one.to_json() for one in found],
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
