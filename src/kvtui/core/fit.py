"""Changes that reach a capacity goal, each already judged, ranked by what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from kvtui.core.draft import Draft
from kvtui.core.evaluate import Report, evaluate
from kvtui.core.facts import Checkpoint, Facts
from kvtui.core.findings import Change, Outcome

MOST_TOGETHER = 3
"""Changes that are combined at most."""
MOST_SHOWN = 12
CHEAP = 2
"""Cost of a change from which on it is worth looking for cheaper combinations."""


NEEDS = {"fp4_mx_block16": (Change("attention_backend", "triton"),)}
"""What a KV dtype needs beside it."""


@dataclass(frozen=True, slots=True)
class Goal:
    """So many requests at once, each with so many tokens of context."""

    requests: int
    context: int


@dataclass(frozen=True, slots=True)
class Move:
    """One change that may help: what it does, what it costs the user, and how dear that is."""

    title: str
    price: str
    cost: int
    """1 hardly noticed, 2 some speed, 4 perhaps accuracy, 8 more GPUs; for ranking."""
    changes: tuple[Change, ...]
    kind: str
    """Moves of one kind exclude each other."""


@dataclass(frozen=True, slots=True)
class Option:
    """Moves taken together, and what comes of them."""

    moves: tuple[Move, ...]
    report: Report
    requests: int
    """Requests of the goal's context that fit at once, over all replicas."""
    tokens: int
    reaches: bool

    @property
    def cost(self) -> int:
        """What all moves cost together."""
        return sum(move.cost for move in self.moves)

    @property
    def changes(self) -> tuple[Change, ...]:
        """All edits, in order."""
        return tuple(change for move in self.moves for change in move.changes)


@dataclass(frozen=True, slots=True)
class Fit:
    """The launch as it is, and the ways to the goal."""

    goal: Goal
    now: int
    """Requests that fit as it is."""
    options: tuple[Option, ...]
    """Ways that reach the goal, cheapest first; where none does, the best tries."""

    @property
    def reached(self) -> bool:
        """True where the launch reaches the goal as it is, or one of the ways does."""
        return self.now >= self.goal.requests or any(o.reaches for o in self.options)


def requests_at(report: Report, context: int) -> int:
    """Requests of `context` tokens each that run at once, over all data-parallel replicas."""
    capacity: Any = report.capacity
    if capacity is None or report.outcome is Outcome.FAILS:
        return 0
    return int(capacity.requests_at(context)) * max(1, int(capacity.replicas))


def fit(
    draft: Draft,
    facts: Facts,
    goal: Goal,
    *,
    max_tp: int | None = None,
    variants: Mapping[str, Checkpoint] | None = None,
) -> Fit:
    """Search changes of up to three kinds that reach `goal`. Never one that the rules refuse."""
    report = evaluate(draft, facts)
    now = requests_at(report, goal.context)
    if now >= goal.requests:
        return Fit(goal, now, ())
    world = replace(facts, checkpoints={**facts.checkpoints, **(variants or {})})
    moves = list(possible_moves(report, goal, max_tp or facts.gpu_count, variants or {}))
    singles = [o for m in moves if (o := _try(draft, world, goal, (m,))) is not None]
    helpful = [o.moves[0] for o in singles if o.requests > now or o.tokens > _tokens(report)]
    found = [o for o in singles if o.reaches]
    tried = list(singles)
    for count in range(2, MOST_TOGETHER + 1):
        if found and min(o.cost for o in found) < count * CHEAP:
            break
        for group in combinations(helpful, count):
            if len({move.kind for move in group}) == count and not _has_way(found, group):
                option = _try(draft, world, goal, group)
                if option is not None:
                    tried.append(option)
        found = [o for o in tried if o.reaches]
    best = sorted(found, key=lambda o: (o.cost, -o.requests)) or sorted(
        (o for o in tried if o.requests > now), key=lambda o: (-o.requests, o.cost)
    )
    return Fit(goal, now, tuple(best[:MOST_SHOWN]))


def _has_way(found: Sequence[Option], group: tuple[Move, ...]) -> bool:
    """True where a part of the group reaches the goal already: more of it is only dearer."""
    return any(set(option.moves) <= set(group) for option in found)


def _try(draft: Draft, facts: Facts, goal: Goal, moves: tuple[Move, ...]) -> Option | None:
    changed = draft.with_changes(change for move in moves for change in move.changes)
    report = evaluate(changed, facts)
    if report.outcome is not Outcome.STARTS:
        return None
    requests = requests_at(report, goal.context)
    return Option(moves, report, requests, _tokens(report), requests >= goal.requests)


def _tokens(report: Report) -> int:
    capacity: Any = report.capacity
    return int(capacity.max_total_num_tokens) if capacity is not None else 0


def possible_moves(
    report: Report, goal: Goal, max_tp: int, variants: Mapping[str, Checkpoint]
) -> Iterator[Move]:
    """Every single change that could raise the capacity of this launch."""
    yield from _limits(report, goal)
    yield from _memory(report)
    yield from _dtypes(report)
    yield from _parallel(report, max_tp)
    for path in variants:
        yield Move(
            f"load {path}", "accuracy may drop", 4, (Change("model_path", path),), "checkpoint"
        )


def _limits(report: Report, goal: Goal) -> Iterator[Move]:
    values = report.plan.values
    limit = values["max_running_requests"]
    if limit is None or limit < goal.requests:
        yield Move(
            f"--max-running-requests {goal.requests}", "a larger request table", 1,
            (Change("max_running_requests", goal.requests),), "requests",
        )  # fmt: skip
    yield Move(
        f"--context-length {goal.context}", "longer prompts are refused", 2,
        (Change("context_length", goal.context),), "context",
    )  # fmt: skip
    capacity: Any = report.capacity
    for ratio in (0.5, 0.3, 0.15) if capacity and capacity.state_slots else ():
        if values["mamba_full_memory_ratio"] and values["mamba_full_memory_ratio"] > ratio:
            yield Move(
                f"--mamba-full-memory-ratio {ratio}", "fewer prefixes of states are kept", 2,
                (Change("mamba_full_memory_ratio", ratio),), "states",
            )  # fmt: skip
    for ratio in (0.5, 0.25, 0.1) if capacity and capacity.swa_tokens else ():
        if values["swa_full_tokens_ratio"] and values["swa_full_tokens_ratio"] > ratio:
            yield Move(
                f"--swa-full-tokens-ratio {ratio}", "fewer sliding-window prefixes are kept", 2,
                (Change("swa_full_tokens_ratio", ratio),), "sliding",
            )  # fmt: skip


def _memory(report: Report) -> Iterator[Move]:
    fraction = report.plan.values["mem_fraction_static"]
    if isinstance(fraction, float):
        for more in (0.02, 0.04):
            raised = round(fraction + more, 3)
            if raised < 0.96:
                yield Move(
                    f"--mem-fraction-static {raised}", "less room for graphs and activations",
                    2 if more < 0.03 else 3, (Change("mem_fraction_static", raised),), "fraction",
                )  # fmt: skip
    chunk = report.plan.values["chunked_prefill_size"]
    if isinstance(chunk, int) and chunk > 2048:
        for smaller in (chunk // 2, 2048):
            yield Move(
                f"--chunked-prefill-size {smaller}", "slower prefill of long prompts", 2,
                (Change("chunked_prefill_size", smaller),), "chunk",
            )  # fmt: skip


def _dtypes(report: Report) -> Iterator[Move]:
    prices = {
        "fp8_e4m3": ("accuracy may drop", 4),
        "fp8_e5m2": ("accuracy may drop more than with e4m3", 5),
        "mxfp8": ("accuracy may drop", 4),
        "nvfp4": ("accuracy may drop clearly", 6),
        "fp4_mx_block16": ("accuracy may drop clearly, slower attention", 7),
    }
    for dtype, (price, cost) in prices.items():
        if report.plan.values["kv_cache_dtype"] != dtype:
            yield Move(
                f"--kv-cache-dtype {dtype}", price, cost,
                (Change("kv_cache_dtype", dtype), *NEEDS.get(dtype, ())), "dtype",
            )  # fmt: skip


def _parallel(report: Report, max_tp: int) -> Iterator[Move]:
    values = report.plan.values
    tp, dp = values["tp_size"], values["attn_dp_size"]
    if not isinstance(tp, int):
        return
    wider = tp * 2
    while wider <= max_tp:
        yield Move(
            f"--tp-size {wider}", f"{wider - tp} more GPUs", 8 * wider // tp,
            (Change("tp_size", wider),), "parallel",
        )  # fmt: skip
        wider *= 2
    if tp > 1 and dp == 1:
        yield Move(
            f"--attn-dp-size {tp}", "one request runs on one attention rank", 3,
            (Change("attn_dp_size", tp),), "attention-dp",
        )  # fmt: skip
