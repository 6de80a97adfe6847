"""Interleaved requests of odd lengths: allocate, write, read back bit for bit, free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .build import Pool
from .pattern import Stamp
from .slots import Slots, addressed, check_rows, make_slots
from .wire import Refused

WORK_BYTES = {"cpu": 48 << 20, "cuda": 1 << 30}
"""Bytes of patterns that the live requests hold at once, about."""
DECODE_ROUNDS = 5
FEWEST_STATES = 3
"""Requests with a state each that run even where their states exceed the work limit."""
USUAL_CHECKS = 8
"""Lines that a history without incidents adds to the checks; the measure of progress."""


@dataclass
class Live:
    """One request: its slots in order, which of them are written, its state slot."""

    number: int
    slots: torch.Tensor
    state: torch.Tensor | None
    window_start: int = 0
    """First position whose sliding slot is still held."""
    state_version: int = 0


@dataclass
class Tally:
    """What the exercise did; becomes figures of the report."""

    requests: int = 0
    tokens: int = 0
    bytes_written: int = 0
    bytes_compared: int = 0
    checks: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "bytes_written": self.bytes_written,
            "bytes_compared": self.bytes_compared,
            "checks": self.checks,
        }


class Exercise:
    """Runs requests through a built pool; raises Refused(`corrupt` | `slots`) on a fault."""

    def __init__(self, pool: Pool, seed: int, follow: Callable[[float], None]) -> None:
        self.pool = pool
        self.slots: Slots = make_slots(pool)
        self.follow = follow
        self.tally = Tally()
        self.live: list[Live] = []
        self.stamps = {
            space: [Stamp(built, number, seed) for number, built in addressed(pool, space)]
            for space in ("full", "swa", "state")
        }

    def run(self) -> dict[str, Any]:
        """The whole history; returns figures."""
        overrun = check_rows(self.pool)
        if overrun:
            raise Refused("plan", overrun)
        before = self.slots.census()
        lengths = self._lengths()
        self._prefill(lengths)
        self._verify("prefill read back")
        self._decode()
        self._verify("decode read back")
        self._leave_window()
        self._free(self.live[::2])
        self._verify("neighbours of freed requests intact")
        self._prefill([length + 2 for length in reversed(lengths[::2])])
        self._verify("reused slots read back")
        self._exhaust()
        self._verify("live requests intact after exhaustion")
        self._free(list(self.live))
        if self.slots.census() != before:
            raise Refused("slots", f"slots lost: {before} before, {self.slots.census()} after")
        self.tally.checks.append("every slot came back")
        return self.tally.figures()

    def _lengths(self) -> list[int]:
        """Odd lengths around page borders that fit into half of the pool and the work limit."""
        page = self.slots.page_size
        per_token = sum(
            stamp.bytes_per_token() for space in ("full", "swa") for stamp in self.stamps[space]
        )
        work = WORK_BYTES.get(self.pool.device.type, WORK_BYTES["cpu"])
        room = min(self.slots.capacity // 2, max(2 * page, work // max(1, per_token)))
        wanted = [
            page + 1, 1, 2 * page + 3, max(1, page - 1), 7, page, 129, 3 * page + 5, 61, 257, 33
        ]  # fmt: skip
        chosen: list[int] = []
        for length in wanted:
            cost = -(-(length + DECODE_ROUNDS + 2) // page) * page
            if cost <= room:
                chosen.append(length)
                room -= cost
        states = sum(stamp.bytes_per_token() for stamp in self.stamps["state"])
        most = max(FEWEST_STATES, work // states) if states else len(chosen)
        return chosen[:most] or [1]

    def _prefill(self, lengths: list[int]) -> None:
        """Two chunks a request, the second ones after all first ones."""
        started: list[tuple[Live, int]] = []
        for length in lengths:
            state = None
            if self.slots.has_states:
                state = self.slots.alloc_state()
                if state is None:
                    self._note("state slots ran out and said so")
                    break
            slots = torch.empty(0, dtype=torch.int64, device=self.pool.device)
            request = Live(self.tally.requests + 1, slots, state)
            first = -(-length * 2 // 3)
            if not self._extend(request, first):
                if state is not None:
                    self.slots.free_state(state)
                self._note("slots ran out and said so")
                break
            self.tally.requests += 1
            self.live.append(request)
            self._write_state(request)
            started.append((request, length))
        for request, length in started:
            if length > len(request.slots):
                self._extend(request, length)

    def _extend(self, request: Live, length: int) -> bool:
        """Grow `request` to `length` tokens and write them; False when slots ran out."""
        self._step()
        prefix = len(request.slots)
        last = int(request.slots[-1]) if prefix else -1
        new = self.slots.tokens.alloc_extend([prefix], [length], [last])
        if new is None:
            return False
        self._accept(request, new)
        return True

    def _accept(self, request: Live, new: torch.Tensor) -> None:
        """Take new slots into a request: none held by anybody, page offsets right, then write."""
        page = self.slots.page_size
        prefix = len(request.slots)
        positions = torch.arange(prefix, prefix + len(new), device=new.device)
        if bool((new % page != positions % page).any()):
            raise Refused("slots", f"request {request.number}: slots are not page-aligned")
        if bool((new < page).any()):
            raise Refused("slots", "the padding page was handed out")
        held = [other.slots for other in self.live if other is not request] + [request.slots]
        if bool(torch.isin(new, torch.cat(held)).any()) or len(torch.unique(new)) != len(new):
            raise Refused("slots", f"request {request.number}: a slot was handed out twice")
        request.slots = torch.cat((request.slots, new))
        for space in ("full", "swa"):
            rows = self.slots.rows(space, new)
            for stamp in self.stamps[space]:
                stamp.write(request.number, rows, positions)
                self.tally.bytes_written += stamp.bytes_per_token() * len(new)
        self.tally.tokens += len(new)

    def _write_state(self, request: Live) -> None:
        if request.state is None:
            return
        request.state_version += 1
        row, version = self._state_at(request)
        for stamp in self.stamps["state"]:
            self._step()
            stamp.write(request.number, row, version)
            self.tally.bytes_written += stamp.bytes_per_token()

    def _state_at(self, request: Live) -> tuple[torch.Tensor, torch.Tensor]:
        assert request.state is not None
        row = self.slots.state_row(request.state)
        return row, torch.full_like(row, request.state_version)

    def _decode(self) -> None:
        """A few steps of one token for every request in one batch, then new states."""
        for _ in range(DECODE_ROUNDS):
            self._step()
            lengths = [len(request.slots) + 1 for request in self.live]
            last = [int(request.slots[-1]) for request in self.live]
            new = self.slots.tokens.alloc_decode(lengths, last)
            if new is None:
                self._note("decode slots ran out and said so")
                return
            for request, slot in zip(self.live, torch.split(new, 1), strict=True):
                self._accept(request, slot)
        for request in self.live:
            self._write_state(request)

    def _leave_window(self) -> None:
        """Tokens that left the sliding window give back their sliding slots, whole pages only."""
        page = self.slots.page_size
        freed = False
        for request in self.live:
            length = len(request.slots)
            border = length // 2 // page * page or (length - 1) // page * page
            if border and self.slots.free_window(request.slots[:border]):
                request.window_start = border
                freed = True
        if freed:
            self._verify("full side intact after the window moved on")

    def _verify(self, title: str) -> None:
        """Every live request reads back as written."""
        for request in self.live:
            self._step()
            for space, start in (("full", 0), ("swa", request.window_start)):
                slots = request.slots[start:]
                rows = self.slots.rows(space, slots)
                positions = torch.arange(start, len(request.slots), device=slots.device)
                for stamp in self.stamps[space]:
                    self._compare(stamp, request.number, rows, positions)
            if request.state is not None:
                row, version = self._state_at(request)
                for stamp in self.stamps["state"]:
                    self._step()
                    self._compare(stamp, request.number, row, version)
        self._note(title)

    def _compare(
        self, stamp: Stamp, request: int, rows: torch.Tensor, positions: torch.Tensor
    ) -> None:
        fault = stamp.mismatch(request, rows, positions)
        if fault:
            raise Refused("corrupt", fault)
        self.tally.bytes_compared += stamp.bytes_per_token() * len(rows)

    def _free(self, requests: list[Live]) -> None:
        for request in requests:
            self.slots.tokens.free(request.slots)
            if request.state is not None:
                self.slots.free_state(request.state)
        self.live = [request for request in self.live if request not in requests]

    def _exhaust(self) -> None:
        """Ask for more than there is (None, nothing changed), then take all that is left."""
        tokens = self.slots.tokens
        page = self.slots.page_size
        left = tokens.available_size()
        before = self.slots.census()
        if tokens.alloc_extend([0], [left + 1], [-1]) is not None:
            raise Refused("slots", f"{left + 1} slots were granted of {left} free ones")
        if self.slots.census() != before:
            raise Refused("slots", "a refused allocation changed the free slots")
        rest = tokens.alloc_extend([0], [left], [-1]) if left else None
        if left and rest is None:
            raise Refused("slots", f"{left} free slots could not be taken at once")
        if rest is not None:
            held = torch.cat([request.slots for request in self.live])
            if bool(torch.isin(rest, held).any()) or len(torch.unique(rest)) != left:
                raise Refused("slots", "a slot was handed out twice")
            self._touch_ends(rest)
            if tokens.alloc_extend([0], [page], [-1]) is not None:
                raise Refused("slots", "a full pool granted another page")
            tokens.free(rest)
        self._note("exhaustion answered, nothing changed by it")

    def _touch_ends(self, slots: torch.Tensor) -> None:
        """Write and read the outermost of these slots: the whole range is really there."""
        ends = torch.unique(torch.stack((slots.min(), slots.max())))
        for space in ("full", "swa"):
            rows = self.slots.rows(space, ends)
            for stamp in self.stamps[space]:
                stamp.write(0, rows, ends)
                self._compare(stamp, 0, rows, ends)

    def _step(self) -> None:
        """Between two pieces of work: a place to stop, and to say how far it is."""
        self.follow(len(self.tally.checks) / USUAL_CHECKS)

    def _note(self, title: str) -> None:
        if title not in self.tally.checks:
            self.tally.checks.append(title)
