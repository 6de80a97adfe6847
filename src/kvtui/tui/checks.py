"""Pool check and engine question: started, followed, cancelled; their answers are facts."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on, work
from textual.events import Unmount

from kvtui.core.facts import PoolFact
from kvtui.tui.base import SessionApp, one_line
from kvtui.tui.prober import PoolStep

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report


class CheckingApp(SessionApp):
    """Asks the deeper layers; a second press on the same key cancels."""

    def action_pool(self) -> None:
        """Build the pool of the present launch, or cancel the check that runs."""
        if self.activity.pool_running:
            self.workers.cancel_group(self, "pool")
            self.activity = replace(self.activity, pool_running=False, pool_step=None)
            self.say("pool check cancelled; nothing stays allocated")
            return
        if self.report.pool is None:
            self.say("no pool is planned yet: choose a model and a GPU first", bad=True)
            return
        self.activity = replace(
            self.activity, pool_running=True, pool_step=None, pool_error="", pool_for=""
        )
        self.check_pool(self.report)

    @work(exclusive=True, group="pool", exit_on_error=False)
    async def check_pool(self, report: Report) -> None:
        """Follow a pool check to its end; the draft may change meanwhile."""
        try:
            async with aclosing(self.prober.pool(report)) as events:
                async for event in events:
                    if isinstance(event, PoolStep):
                        self.activity = replace(self.activity, pool_step=event)
                    else:
                        self._pool_done(event)
        except Exception as error:
            self.activity = replace(
                self.activity, pool_running=False, pool_step=None,
                pool_error=one_line(error), pool_for=report.key,
            )  # fmt: skip
        else:
            self.activity = replace(self.activity, pool_running=False, pool_step=None)

    def _pool_done(self, fact: PoolFact) -> None:
        self.session.world = replace(self.session.world, pool=fact)
        self.activity = replace(
            self.activity, pool_running=False, pool_step=None, pool_at=self.now()
        )
        self.revision += 1

    def action_engine(self) -> None:
        """Ask an SGLang about the present launch, or cancel the question that is open."""
        if self.activity.engine_running:
            self.workers.cancel_group(self, "engine")
            self.activity = replace(self.activity, engine_running=False)
            self.say("question to the engine cancelled")
            return
        self.activity = replace(
            self.activity, engine_running=True, engine_text="", engine_error="", engine_for=""
        )
        self.ask_engine(self.report)

    def _engine_says(self, text: str) -> None:
        self.activity = replace(self.activity, engine_text=text)

    @on(Unmount)
    async def _end_children(self) -> None:
        """Leave no child behind."""
        self.workers.cancel_all()
        await self.prober.close()

    @work(exclusive=True, group="engine", exit_on_error=False)
    async def ask_engine(self, report: Report) -> None:
        """Wait for the engine's answer."""
        try:
            fact = await self.prober.engine(report, self._engine_says)
        except Exception as error:
            self.activity = replace(
                self.activity, engine_running=False, engine_error=one_line(error),
                engine_for=report.key,
            )  # fmt: skip
            return
        self.session.world = replace(self.session.world, engine=fact)
        self.activity = replace(self.activity, engine_running=False, engine_at=self.now())
        self.revision += 1
