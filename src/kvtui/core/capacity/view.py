"""A capacity as JSON and as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvtui.core.capacity.figures import Figure
from kvtui.core.facts import GIB

if TYPE_CHECKING:
    from kvtui.core.capacity.result import Capacity

FIGURES = (
    "total", "baseline", "weights", "draft_weights", "free_after_load", "budget",
    "bytes_per_token", "tokens", "requests", "request_table", "reserve", "working",
    "free_after",
)  # fmt: skip

LIMITS = {
    "option": "as --max-running-requests asks",
    "default": "the engine's own limit",
    "tokens": "limited by tokens",
    "states": "limited by state slots",
}


def figure_json(figure: Figure) -> dict[str, Any]:
    """A figure with its kind, and its likely relative error where it is an estimate."""
    data: dict[str, Any] = {"value": int(figure.value), "kind": figure.kind}
    if figure.error:
        data["error"] = round(figure.error, 4)
    return data


def as_json(c: Capacity) -> dict[str, Any]:
    """The figures as JSON types."""
    host = c.host
    return {
        "weights_bytes": c.weights_bytes,
        "draft_bytes": c.draft_bytes,
        "kv_bytes": c.kv_bytes,
        "state_bytes": int(c.state_bytes),
        "max_total_num_tokens": c.max_total_num_tokens,
        "full_tokens": c.full_tokens,
        "swa_tokens": c.swa_tokens,
        "state_slots": c.state_slots,
        "max_running_requests": c.max_running_requests,
        "limited_by": c.limited_by,
        "mem_fraction_static": c.fraction,
        "host_bytes": c.host_bytes,
        "host": None
        if host is None
        else {
            "per_rank_bytes": int(host.per_rank),
            "ranks": host.ranks,
            "ratio": round(host.ratio, 3),
            "tokens": host.tokens,
            "automatic": host.automatic,
            "allowed_bytes": None if host.allowed is None else int(host.allowed),
        },
        "requests_that_fit": {str(context): count for context, count in c.fits.items()},
        "replicas": c.replicas,
        "figures": {name: figure_json(getattr(c, name)) for name in FIGURES},
        "assumed": list(c.assumed),
    }


def gib_text(value: float) -> str:
    """Bytes as GiB with two decimals."""
    return f"{value / GIB:.2f} GiB"


def spread_text(figure: Figure) -> str:
    """The likely error in words, empty for exact and computed figures."""
    if not figure.error or figure.kind != "estimated":
        return ""
    return f" ± {max(1, round(figure.error * 100))} %"


def _contexts(c: Capacity) -> str:
    parts = []
    for context, count in c.fits.items():
        parts.append(f"{count:,} at {size_of(context)}")
    return ", ".join(parts)


def as_figures(c: Capacity) -> dict[str, str]:
    """Short figures by name, for tables that set launches side by side."""
    found = {
        "weights per GPU": gib_text(c.weights_bytes),
        "KV per GPU": gib_text(c.kv_bytes),
        "tokens": f"{c.max_total_num_tokens:,}",
    }
    if c.swa_tokens is not None:
        found["sliding tokens"] = f"{c.swa_tokens:,}"
    if c.state_slots:
        found["state slots"] = f"{c.state_slots:,}"
    found["requests"] = f"{c.max_running_requests:,}"
    found |= {f"requests at {size_of(n)}": f"{count:,}" for n, count in c.fits.items()}
    found["left over per GPU"] = gib_text(c.free_after.value)
    if c.host is not None:
        found["host memory"] = gib_text(c.host_bytes)
    return found


def size_of(context: int) -> str:
    """A context length in a few characters: 32k, 512."""
    return f"{context // 1024}k" if context >= 1024 else str(context)


def as_lines(c: Capacity) -> tuple[str, ...]:
    """What a person wants to know, a line each."""
    draft = f" and {gib_text(c.draft_bytes)} of draft" if c.draft_bytes else ""
    lines = [
        f"weights    {gib_text(c.weights_bytes)}{draft} on each GPU{spread_text(c.weights)}",
        f"tokens     {c.max_total_num_tokens:,}{spread_text(c.tokens)}"
        f" in {gib_text(max(c.budget.value, 0))} at fraction {c.fraction:g}",
    ]
    if c.swa_tokens is not None:
        lines.append(f"           {c.swa_tokens:,} of them in the sliding-window pool")
    if c.state_slots:
        lines.append(f"states     {c.state_slots:,} slots, {c.slots_per_request} a request")
    lines.append(
        f"requests   {c.max_running_requests:,} at once ({LIMITS[c.limited_by]});"
        f" {_contexts(c)} fit"
    )
    lines.append(f"left over  {gib_text(c.free_after.value)} after graphs and request table")
    if c.host is not None:
        lines.append(
            f"host       {gib_text(c.host_bytes)} for {c.host.ranks} ranks"
            f" (ratio {c.host.ratio:.2f})"
        )
    return tuple(lines)
