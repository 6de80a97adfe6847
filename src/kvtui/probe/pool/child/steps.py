"""The steps of a pool check in order; each reports its start, its figures and its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kvtui.core.pools.spec import PoolPlan

from .build import Pool, build, check_dtype
from .device import Device, Watch
from .exercise import Exercise
from .host_plan import spaces
from .host_step import run_host
from .memory import cuda_budget, host_budget, host_most
from .offload import refuse_unknown_pool
from .offload_step import run_offload
from .refusals import lacks_v, try_refusals
from .request import HostTier, Offload, Request
from .sizing import Reduction, TooSmall, fit, space_slots
from .slots import make_slots
from .sweep import sweep
from .wire import Channel, Refused

GIB = 1 << 30
PROGRESS_S = 0.2


class Run:
    """One pool check on one device."""

    def __init__(
        self, request: Request, device: Device, channel: Channel, report: dict[str, Any]
    ) -> None:
        self.request = request
        self.device = device
        self.channel = channel
        self.report = report
        self.report.update(
            schema=1,
            pool_class=request.plan.class_name,
            device=device.describe(),
            planned=_figures(request.plan),
            steps=[],
            notes=[],
        )

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[dict[str, Any]]:
        """Announce a step, collect its figures, announce its end with the time it took."""
        self.channel.emit("step", step=name, state="started", title=title)
        figures: dict[str, Any] = {}
        start = time.perf_counter()
        yield figures
        self.device.wait()
        seconds = round(time.perf_counter() - start, 6)
        entry = {"step": name, "title": title, "seconds": seconds, "figures": figures}
        self.report["steps"].append(entry)
        self.channel.emit("step", state="passed", **entry)

    def note(self, text: str) -> None:
        """Remember a remark for the report, once."""
        if text and text not in self.report["notes"]:
            self.report["notes"].append(text)

    def _follow(self, step: str) -> Callable[[float], None]:
        """Called with the share of a step that is done; tells the parent a few times a second."""
        told = time.monotonic()

        def follow(done: float) -> None:
            nonlocal told
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                self.channel.emit("progress", step=step, done=round(min(done, 1.0), 3))

        return follow

    def run(self) -> dict[str, Any]:
        """All steps asked for; returns the report."""
        before = self.device.free_bytes()
        held_before = self.device.allocated_bytes()
        pool = self._build()
        watch = Watch(pool.storages)
        if "exercise" in self.request.steps:
            self._exercise(pool)
        if "sweep" in self.request.steps and pool.plan.writable:
            self._sweep(pool)
        if "host" in self.request.steps and self.request.host is not None:
            self._host(pool, self.request.host)
        if "offload" in self.request.steps and self.request.offload is not None:
            self._offload(pool, self.request.offload)
        # The pool must be let go here, in the last frame that holds it.
        del pool
        with self.step("release", "Give the memory back") as figures:
            self.device.give_back()
            left = max(watch.alive_bytes(), self.device.allocated_bytes() - held_before)
            figures["left_over_bytes"] = left
            figures["free_before_bytes"] = before
            figures["free_after_bytes"] = self.device.free_bytes()
            if left:
                raise Refused("left_over", f"{left} bytes stayed allocated after the release")
        return self.report

    def _build(self) -> Pool:
        plan = self.request.plan
        built, reduction = self._fit(plan)
        with self.step("build", f"Build {plan.class_name}") as figures:
            held = self.device.allocated_bytes()
            start = time.perf_counter()
            pool = build(built, self.device.torch_device)
            self.device.wait()
            seconds = time.perf_counter() - start
            seen = self.device.allocated_bytes() - held or pool.allocated_bytes
            figures.update(
                _figures(built),
                predicted_bytes=built.nbytes,
                allocated_bytes=seen,
                seconds=round(seconds, 6),
                reduced=None if reduction is None else str(reduction),
            )
            self._compare_bytes(pool, seen)
        self.report["built"] = figures
        for buffer in pool.buffers:
            self.note(check_dtype(buffer.spec))
        missing = lacks_v(pool) if plan.writable else ""
        if missing:
            raise Refused("missing_v", missing)
        return pool

    def _fit(self, plan: PoolPlan) -> tuple[PoolPlan, Reduction | None]:
        request = self.request
        free = self.device.free_bytes()
        if self.device.is_cuda:
            budget = most = cuda_budget(free, request.limit_bytes, request.share, request.full)
        else:
            budget = host_budget(request.limit_bytes, request.share, request.full)
            most = host_most(request.limit_bytes, request.share, request.full)
        self.report["budget_bytes"] = budget
        self.report["free_bytes"] = free
        if request.full and plan.nbytes > budget:
            raise Refused(
                "memory",
                f"the planned pool takes {plan.nbytes / GIB:.2f} GiB, {budget / GIB:.2f} GiB may "
                f"be taken on {self.device.torch_device} ({free / GIB:.2f} GiB are free)",
            )
        try:
            return fit(plan, budget)
        except TooSmall as error:
            if error.needed <= most:
                return fit(plan, error.needed)
            raise Refused(
                "memory",
                f"the smallest {plan.class_name} of this model takes {error.needed / GIB:.3f} GiB,"
                f" {most / GIB:.3f} GiB may be taken on {self.device.torch_device}",
            ) from None

    def _compare_bytes(self, pool: Pool, seen: int) -> None:
        """Allocated bytes against the prediction: equal but for the allocator's rounding."""
        predicted = pool.plan.nbytes
        slack = 2 * 1024 * 1024 * len(pool.storages) if self.device.is_cuda else 0
        if not predicted <= seen <= predicted + slack:
            raise Refused("bytes", f"{predicted} bytes were predicted, {seen} were allocated")

    def _exercise(self, pool: Pool) -> None:
        if not pool.plan.writable:
            with self.step("exercise", "Writes are refused") as figures:
                figures["refused"] = try_refusals(pool)
            return
        with self.step("exercise", "Write, read back bit for bit, free") as figures:
            run = Exercise(pool, self.request.seed, self._follow("exercise"))
            figures.update(run.run())
            figures["refused"] = try_refusals(pool)

    def _sweep(self, pool: Pool) -> None:
        with self.step("sweep", "Write and read whole allocations") as figures:
            request = self.request
            figures.update(sweep(pool, request.seed, self._follow("sweep"), request.full))

    def _offload(self, pool: Pool, settings: Offload) -> None:
        plan = self.request.plan
        refuse_unknown_pool(plan.class_name, plan.decode_offload)
        if not plan.writable:
            self.note("the no-op pool holds nothing that could be offloaded")
            return
        if settings.storage not in ("", "file"):
            self.note(
                f"storage backend {settings.storage} was not touched; copies to the host were"
            )
        tier = self.request.host or HostTier(layout="page_first")
        with self.step("offload", "Decode KV offload") as figures:
            figures.update(
                run_offload(
                    pool,
                    make_slots(pool),
                    tier,
                    settings,
                    self._host_budget(),
                    self.request.seed,
                )
            )
        self.report["offload"] = figures

    def _host_budget(self) -> int:
        request = self.request
        return host_budget(request.host_limit_bytes, request.share, request.full)

    def _host(self, pool: Pool, tier: HostTier) -> None:
        if not pool.plan.writable:
            self.note("the no-op pool holds nothing that a host tier could keep")
            return
        title = f"Host pool, {tier.layout}, {tier.io_backend}"
        with self.step("host", title) as figures:
            figures.update(
                run_host(
                    pool,
                    make_slots(pool),
                    tier,
                    spaces(self.request.plan, tier),
                    self._host_budget(),
                    self.request.seed,
                )
            )
        self.report["host"] = figures


def _figures(plan: PoolPlan) -> dict[str, Any]:
    return {
        "tokens": plan.tokens,
        "slots": space_slots(plan),
        "page_size": plan.page_size,
        "bytes": plan.nbytes,
        "sub_pools": [
            {
                "role": sub.role,
                "class": sub.class_name,
                "slots": sub.slots,
                "bytes": sub.nbytes,
                "buffers": [
                    {
                        "name": buffer.name,
                        "dtype": buffer.dtype,
                        "shape": list(buffer.shape),
                        "count": buffer.count,
                    }
                    for buffer in sub.buffers
                ],
            }
            for sub in plan.sub_pools
        ],
    }
