"""Builds the host tier beside a built pool and sends pages there and back, bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .build import Built, Pool
from .host_plan import Space, spaces, verdict
from .hostpool import HostPool, mirrored
from .pattern import Stamp
from .regions import check_layout, make_regions
from .request import HostTier
from .slots import Slots, addressed
from .wire import Refused

WORK_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}
"""Bytes that one round trip moves, about."""
DIRECT_COPIES = 20_000
"""Most single copies of one direct transfer."""
REPEATS = 3
ROUND_TRIP_REQUEST = 90_001
MIN_PAGES = 8


class HostCheck:
    """The host pools of a built device pool; raises Refused (`refused`, `memory`, `corrupt`)."""

    def __init__(
        self, pool: Pool, slots: Slots, tier: HostTier, budget: int, seed: int,
    ) -> None:  # fmt: skip
        self.pool = pool
        self.slots = slots
        self.tier = tier
        self.seed = seed
        self.pinned = tier.pin and pool.device.type == "cuda"
        self.buffers = {
            space: mirrored([built for _, built in addressed(pool, space)], pool.plan.page_size)
            for space in ("full", "swa", "state")
        }
        every = [built for group in self.buffers.values() for built in group]
        check_layout(every, tier.layout, tier.io_backend, pool.plan.page_size)
        self.stamps = {
            space: [Stamp(built, number, seed) for number, built in addressed(pool, space)
                    if any(built is one for one in self.buffers[space])]
            for space in self.buffers
        }  # fmt: skip
        self.pools = self._build(budget)
        self.request = ROUND_TRIP_REQUEST
        """Patterns of this number; a new one for each trip, so that no old bytes can pass."""

    def _build(self, budget: int) -> dict[str, HostPool]:
        wanted = [space for space in spaces(self.pool.plan, self.tier) if self.buffers[space.name]]
        asked = sum(space.nbytes for space in wanted)
        share = min(1.0, budget / max(1, asked))
        pools = {}
        for space in wanted:
            floor = 3 if space.name == "state" else MIN_PAGES
            pages = max(min(floor, space.pages), int(space.pages * share))
            if pages * space.page_bytes > budget:
                raise Refused(
                    "memory",
                    f"a host pool of {pages} pages takes {pages * space.page_bytes} bytes, "
                    f"{budget} bytes of host memory may be taken",
                )
            pools[space.name] = self._host_pool(self.buffers[space.name], space, pages)
        return pools

    def _host_pool(self, buffers: list[Built], space: Space, pages: int) -> HostPool:
        page = self.pool.plan.page_size
        regions = make_regions(buffers, self.tier.layout, pages, page, self.pinned)
        return HostPool(regions, pages, self.tier.io_backend)

    def figures(self) -> dict[str, Any]:
        """What was built, and what the engine would ask of this machine."""
        return {
            "layout": self.tier.layout,
            "io_backend": self.tier.io_backend,
            "pinned": self.pinned,
            "host_bytes": sum(pool.nbytes for pool in self.pools.values()),
            "host_pages": {name: pool.slots.pages for name, pool in self.pools.items()},
        }

    def round_trips(self) -> list[dict[str, Any]]:
        """Contiguous and scattered pages of every index space, out and back."""
        results = []
        for space in self.pools:
            for scattered in (False, True):
                self.request += 1
                trip = self._state_trip if space == "state" else self._token_trip
                results.append(trip(space, scattered))
        return results

    def _page_count(self, space: str) -> int:
        pool = self.pools[space]
        work = WORK_BYTES.get(self.pool.device.type, WORK_BYTES["cpu"])
        count = min(work // max(1, pool.page_bytes), pool.slots.pages // 2)
        if self.tier.io_backend == "direct":
            copies = sum(len(region.layers) for region in pool.regions)
            count = min(count, DIRECT_COPIES // max(1, copies))
        return max(1, count)

    def _token_trip(self, space: str, scattered: bool) -> dict[str, Any]:
        page = self.slots.page_size
        tokens = self.slots.tokens
        # Source (twice as much where every other page is let go) and target must both fit.
        room = self.slots.capacity // page // (3 if scattered else 2)
        count = max(1, min(self._page_count(space), room))
        taken = self._take(count * page * (2 if scattered else 1))
        source = taken
        if scattered:
            by_page = taken.view(-1, page)
            tokens.free(by_page[1::2].reshape(-1))
            source = by_page[::2].reshape(-1)
        positions = torch.arange(len(source), device=source.device)
        rows = self.slots.rows(space, source)
        for stamp in self.stamps[space]:
            stamp.write(self.request, rows, positions)
        target = self._take(count * page)
        result = self._trip(
            space, scattered, self._pages(rows), self._pages(self.slots.rows(space, target))
        )
        back = self.slots.rows(space, target)
        self._verify(space, back, positions)
        tokens.free(source)
        tokens.free(target)
        return result

    def _take(self, need: int) -> torch.Tensor:
        slots = self.slots.tokens.alloc_extend([0], [need], [-1])
        if slots is None:
            raise Refused("slots", f"{need} slots for the round trip were not granted")
        return slots

    def _pages(self, rows: torch.Tensor) -> torch.Tensor:
        page = self.slots.page_size
        return rows[::page] // page

    def _state_trip(self, space: str, scattered: bool) -> dict[str, Any]:
        first, second = self.slots.alloc_state(), self.slots.alloc_state()
        if first is None or second is None:
            raise Refused("slots", "two state slots for the round trip were not granted")
        source, target = self.slots.state_row(first), self.slots.state_row(second)
        positions = torch.zeros_like(source)
        for stamp in self.stamps[space]:
            stamp.write(self.request, source, positions)
        result = self._trip(space, scattered, source, target)
        self._verify(space, target, positions)
        self.slots.free_state(first)
        self.slots.free_state(second)
        return result

    def _trip(
        self, space: str, scattered: bool, source: torch.Tensor, target: torch.Tensor
    ) -> dict[str, Any]:
        """Out from `source` and back into `target` (device pages), timed."""
        pool = self.pools[space]
        held = self._host_pages(pool, len(source), scattered)
        out = self._time(lambda: pool.backup(source, held))
        back = self._time(lambda: pool.load(held, target))
        pool.slots.free(held)
        moved = len(source) * pool.page_bytes
        return {
            "space": space,
            "pages": "scattered" if scattered else "contiguous",
            "count": len(source),
            "bytes": moved,
            "out_gb_s": round(moved / out / 1e9, 3),
            "in_gb_s": round(moved / back / 1e9, 3),
        }

    def _host_pages(self, pool: HostPool, count: int, scattered: bool) -> torch.Tensor:
        taken = pool.slots.alloc(min(2 * count, pool.slots.pages) if scattered else count)
        if taken is None:
            raise Refused("slots", f"{count} host pages were not granted")
        if not scattered:
            return taken
        held = taken.flip(0)[-2 * count :: 2] if len(taken) >= 2 * count else taken.flip(0)
        held = held[:count]
        rest = taken[~torch.isin(taken, held)]
        if len(rest):
            pool.slots.free(rest)
        return held

    def _time(self, action: Callable[[], None]) -> float:
        """Best wall time of a few runs."""
        best = float("inf")
        for _ in range(REPEATS):
            start = time.perf_counter()
            action()
            best = min(best, time.perf_counter() - start)
        return max(best, 1e-9)

    def _verify(self, space: str, rows: torch.Tensor, positions: torch.Tensor) -> None:
        for stamp in self.stamps[space]:
            fault = stamp.mismatch(self.request, rows, positions)
            if fault:
                raise Refused("corrupt", f"after the trip through the host pool: {fault}")

    def plain_copies(self, nbytes: int) -> dict[str, float]:
        """GB/s of one plain copy each way between device and (pinned) host memory."""
        here = torch.empty(nbytes, dtype=torch.uint8, device=self.pool.device)
        there = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=self.pinned)
        here.zero_()

        def copy(target: torch.Tensor, source: torch.Tensor) -> Callable[[], None]:
            def run() -> None:
                target.copy_(source, non_blocking=True)
                if self.pool.device.type == "cuda":
                    torch.cuda.synchronize(self.pool.device)

            return run

        out, back = self._time(copy(there, here)), self._time(copy(here, there))
        return {
            "bytes": nbytes,
            "out_gb_s": round(nbytes / out / 1e9, 3),
            "in_gb_s": round(nbytes / back / 1e9, 3),
        }


def run_host(
    pool: Pool, slots: Slots, tier: HostTier, planned: list[Space], budget: int, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """The host step: build, round trips, plain copies; returns figures."""
    host = HostCheck(pool, slots, tier, budget, seed)
    figures = host.figures()
    figures["engine_asks"] = verdict(planned, tier)
    before = slots.census()
    figures["round_trips"] = host.round_trips()
    if slots.census() != before:
        raise Refused("slots", "slots were lost on the trip through the host pool")
    most = max((trip["bytes"] for trip in figures["round_trips"]), default=1 << 20)
    figures["plain_copy"] = host.plain_copies(most)
    return figures
