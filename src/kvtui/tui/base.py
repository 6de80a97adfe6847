"""The app's heart: session, edits, and the world that is read as drafts need it."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from textual import work
from textual.app import App
from textual.reactive import var
from textual.worker import Worker, WorkerState

from kvtui.core.draft import MODEL_OPTIONS, Draft
from kvtui.core.facts import Facts
from kvtui.core.findings import Change, Finding, Fix
from kvtui.core.options import NEWEST
from kvtui.errors import InputError
from kvtui.tui.glyphs import choose_glyphs
from kvtui.tui.layers import Activity
from kvtui.tui.prober import LocalModel, Machine, NoProber, Prober
from kvtui.tui.session import Judge, Session, World, change_draft
from kvtui.tui.settings import Settings
from kvtui.tui.theme import THEMES, extra_variables

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

BROKE = "kvtui broke:"
"""Begins the note on a fault of our own."""

KEEP_AFTER = 1.0
"""Seconds after the last edit before the draft is written for the next start."""


class SessionApp(App[None]):
    """Holds the session; every screen shows its report and edits through it."""

    revision: var[int] = var(0, init=False)
    """Counts the reports; screens watch it and then look at `report`."""
    activity: var[Activity] = var(Activity(), init=False)

    crash: BaseException | None = None
    """What ended the app, where it did not end as asked."""

    def _print_error_renderables(self) -> None:
        """Keep the exception for one line after the screen is gone, in place of a traceback."""
        self.crash = self._exception
        if self.crash is None:
            super()._print_error_renderables()

    def __init__(
        self,
        draft: Draft,
        facts: Facts,
        prober: Prober | None = None,
        *,
        settings: Settings | None = None,
        judge: Judge | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or Settings()
        self.glyphs = choose_glyphs(self.settings.glyphs)
        self.now = clock
        self.today: Callable[[], datetime] = partial(datetime.now, UTC)
        self.prober: Prober = prober or NoProber()
        self.session = Session(draft, world_of(facts), judge)
        self.kept = self.settings.kept_draft()
        self.local_models: tuple[LocalModel, ...] | None = None
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        wanted = self.settings.theme or self.settings.last_theme() or THEMES[0].name
        self.theme = wanted if wanted in self.available_themes else THEMES[0].name
        if self.glyphs.name == "ascii":
            from kvtui.tui.plain import PlainFilter

            self._filters.append(PlainFilter())
        if self.settings.keymap:
            self.set_keymap(dict(self.settings.keymap))

    @property
    def report(self) -> Report:
        """What is known of the launch at hand."""
        return self.session.report

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables, for whatever theme is on."""
        return extra_variables(self.current_theme)

    def on_mount(self) -> None:
        """Look at the machine and read the models that the draft names."""
        self._leave_on_signals()
        self.theme_changed_signal.subscribe(self, self.settings.keep_theme)
        self.probe_machine()
        self.probe_models()
        if self._unread(self.session.draft):
            self.read_models(self.session.draft)

    def _leave_on_signals(self) -> None:
        """A hang-up or a termination leaves the terminal as it was, like any other exit."""
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGHUP):
            with suppress(NotImplementedError, ValueError):
                loop.add_signal_handler(name, self.exit)

    def on_unmount(self) -> None:
        """Nothing is lost by leaving before the draft was kept."""
        if self.session.can_undo:
            self.settings.keep_draft(self.session.draft)

    def edit(self, changes: Iterable[Change]) -> None:
        """Change the draft; models that it newly names are read first."""
        self.open_draft(change_draft(self.session.draft, changes))

    def open_draft(self, draft: Draft) -> None:
        """Put another draft in place, judged with the configuration of its models."""
        if self._unread(draft):
            self.read_models(draft)
        elif self.session.replace(draft):
            self.publish()

    def publish(self) -> None:
        """Let every screen see the new report, and keep the draft for a next start."""
        self.revision += 1
        self.keep_draft(self.session.draft)

    @work(exclusive=True, group="keep", exit_on_error=False)
    async def keep_draft(self, draft: Draft) -> None:
        """Write the draft once edits pause."""
        await asyncio.sleep(KEEP_AFTER)
        await asyncio.to_thread(self.settings.keep_draft, draft)

    def _unread(self, draft: Draft) -> list[str]:
        world = self.session.world
        paths = [draft.options.get(name) for name in MODEL_OPTIONS]
        return [
            path
            for path in paths
            if isinstance(path, str) and path not in world.checkpoints and path not in world.missing
        ]

    @work(exclusive=True, group="models", exit_on_error=False)
    async def read_models(self, draft: Draft) -> None:
        """Read the configuration of a draft's models, then put the draft in place."""
        await self.read_world(draft)
        self.session.replace(draft)
        self.publish()

    async def read_world(self, draft: Draft) -> None:
        """Read the configuration of the models that a draft names, where not yet known."""
        for path in self._unread(draft):
            try:
                found = await self.prober.checkpoint(path)
            except Exception as error:
                self.session.world = self.session.world.without_checkpoint(path, one_line(error))
            else:
                self.session.world = self.session.world.with_checkpoint(path, found)

    async def fetch_model(self, hub_id: str) -> None:
        """Read a model's configuration from the hub; why not, where that fails."""
        self.say(f"fetching the configuration of {hub_id}")
        try:
            found = await self.prober.fetch(hub_id)
        except Exception as error:
            self.session.world = self.session.world.without_checkpoint(hub_id, one_line(error))
        else:
            self.session.world = self.session.world.with_checkpoint(hub_id, found)

    @work(exclusive=True, group="machine", exit_on_error=False)
    async def probe_machine(self) -> None:
        """See what this machine has."""
        try:
            machine = await self.prober.machine()
        except Exception as error:
            machine = Machine(missing={"gpu": one_line(error)})
        merged = merge_machine(self.session.world.machine, machine)
        if merged != self.session.world.machine:
            self.session.world = replace(self.session.world, machine=merged)
            self.revision += 1

    @work(exclusive=True, group="local-models", exit_on_error=False)
    async def probe_models(self) -> None:
        """See which models lie on this machine."""
        try:
            self.local_models = tuple(await self.prober.models())
        except Exception as error:
            self.local_models = ()
            self.say(f"models: {one_line(error)}", bad=True)
        for screen in self.screen_stack:
            with suppress(AttributeError):
                screen.models_changed()  # type: ignore[attr-defined]

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that breaks says so; the app goes on."""
        error = event.worker.error
        if event.state is WorkerState.ERROR and isinstance(error, Exception):
            self.say(f"{BROKE} {one_line(error)} (in {event.worker.name})", bad=True)

    def judged_by(self) -> str:
        """What judges the launch, for the top line."""
        machine = self.session.world.machine
        engine = f"SGLang {machine.engine}" if machine.engine else "no SGLang"
        return f"rules {NEWEST} {self.glyphs.dot} {engine}"

    def action_undo(self) -> None:
        """Take the latest edit back."""
        if self.session.undo():
            self.publish()
        else:
            self.say("nothing to undo")

    def action_redo(self) -> None:
        """Bring an edit back."""
        if self.session.redo():
            self.publish()
        else:
            self.say("nothing to redo")

    def action_reset_all(self) -> None:
        """Back to the model and the hardware alone."""
        draft = self.session.draft
        kept = {k: v for k, v in draft.options.items() if k == "model_path"}
        self.open_draft(Draft(options=kept, gpu=draft.gpu, gpu_count=draft.gpu_count))
        self.say("all options reset; u brings them back")

    def apply_fix(self, fix: Fix) -> None:
        """Apply a fix and say what was done."""
        self.edit(fix.changes)
        self.say(f"{fix.title}; u takes it back")

    def fix_first(self, finding: Finding | None = None) -> None:
        """Apply the first fix of a finding, or of the first finding that has one."""
        found = [finding] if finding and finding.fixes else list(self.report.findings)
        first = next((f for f in found if f.fixes), None)
        if first is None:
            self.say("nothing to fix" if not self.report.findings else "no finding has a fix")
            return
        self.apply_fix(first.fixes[0])

    def time_text(self) -> str:
        """The time now for a header or a proof: UTC, ISO 8601."""
        return self.today().isoformat(timespec="seconds")

    def say(self, text: str, *, bad: bool = False) -> None:
        """A short note that goes away by itself."""
        self.notify(
            text, severity="error" if bad else "information", timeout=6 if bad else 3, markup=False
        )


def is_hub_id(path: str) -> bool:
    """True for text of the form `org/name`, which can't be a path on this machine."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", path) is not None and not path.startswith((".", "~"))


def one_line(error: Exception) -> str:
    """An error as one line for people; what is not ours also names its type."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, InputError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def world_of(facts: Facts) -> World:
    """What a caller already knows, as the world to start from."""
    gpu = facts.gpu if facts.gpu is not None and facts.gpu.local else None
    machine = Machine(
        gpu=gpu,
        gpu_count=facts.gpu_count if gpu else 0,
        host=facts.host,
        engine=facts.engine_version,
        missing={n: why for n, why in facts.missing.items() if not n.startswith("model:")},
    )
    return World(
        machine=machine,
        checkpoints=dict(facts.checkpoints),
        missing={
            name.removeprefix("model:"): why
            for name, why in facts.missing.items()
            if name.startswith("model:")
        },
        pool=facts.pool,
        engine=facts.engine,
    )


def merge_machine(known: Machine, found: Machine) -> Machine:
    """What was found, over what was known before; a reason goes when the thing is there."""
    merged = Machine(
        gpu=found.gpu or known.gpu,
        gpu_count=found.gpu_count or known.gpu_count,
        host=found.host or known.host,
        torch=found.torch or known.torch,
        engine=found.engine or known.engine,
        engine_place=found.engine_place or known.engine_place,
        missing={**known.missing, **found.missing},
    )
    missing: Mapping[str, str] = {
        name: why for name, why in merged.missing.items() if not getattr(merged, name, None)
    }
    return replace(merged, missing=missing)
