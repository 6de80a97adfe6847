"""Everything that the screens share: draft, world, report, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kvtui.core.draft import MODEL_OPTIONS, Draft
from kvtui.core.facts import Checkpoint, EngineFact, Facts, PoolFact
from kvtui.core.findings import Change
from kvtui.core.gpus import find_gpu
from kvtui.tui.prober import Machine

if TYPE_CHECKING:
    from kvtui.core.evaluate import Report

Judge = Callable[[Draft, Facts], "Report"]

GPU = "@gpu"
GPU_COUNT = "@gpu_count"
"""Names under which the hardware is edited like an option."""

LOCAL = "local"
"""The GPU of this machine, by name."""

DEFAULT_COUNT = 8
"""GPUs of a machine that is only named, where no count is given."""


def _no_checkpoints() -> Mapping[str, Checkpoint]:
    return MappingProxyType({})


def _no_text() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class World:
    """What was found so far, apart from any draft."""

    machine: Machine = field(default_factory=Machine)
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=_no_checkpoints)
    missing: Mapping[str, str] = field(default_factory=_no_text)
    """Why a checkpoint is not there, by model path."""
    pool: PoolFact | None = None
    engine: EngineFact | None = None

    def facts(self, draft: Draft) -> Facts:
        """The facts that `draft` is judged by: its own hardware, else this machine's."""
        machine = self.machine
        claimed = draft.gpu not in (None, LOCAL)
        gpu = find_gpu(draft.gpu or "") if claimed else machine.gpu
        count = draft.gpu_count or (DEFAULT_COUNT if claimed else machine.gpu_count) or 1
        missing = dict(machine.missing)
        if claimed and gpu is None:
            missing["gpu"] = f"{draft.gpu} is not in the catalogue"
        missing.update({f"model:{path}": why for path, why in self.missing.items()})
        wanted = [draft.options.get(name) for name in MODEL_OPTIONS]
        return Facts(
            checkpoints={p: c for p, c in self.checkpoints.items() if p in wanted},
            gpu=gpu,
            gpu_count=count,
            host=None if claimed else machine.host,  # a named GPU is in another machine
            engine_version=self.engine.version if self.engine else machine.engine,
            pool=self.pool,
            engine=self.engine,
            missing=missing,
        )

    def with_checkpoint(self, path: str, checkpoint: Checkpoint) -> World:
        """The world after a model's configuration was read."""
        missing = {p: why for p, why in self.missing.items() if p != path}
        return replace(self, checkpoints={**self.checkpoints, path: checkpoint}, missing=missing)

    def without_checkpoint(self, path: str, why: str) -> World:
        """The world after a model's configuration could not be read."""
        return replace(self, missing={**self.missing, path: why.removeprefix(f"{path}: ")})


def change_draft(draft: Draft, changes: Iterable[Change]) -> Draft:
    """The draft after edits, the hardware's names included; None takes a choice out."""
    rest: list[Change] = []
    for change in changes:
        if change.option == GPU:
            draft = replace(draft, gpu=change.value, gpu_count=None)
        elif change.option == GPU_COUNT:
            draft = replace(draft, gpu_count=change.value)
        else:
            rest.append(change)
    return draft.with_changes(rest) if rest else draft


def chosen(draft: Draft, option: str) -> object:
    """What the user set for an option or for the hardware; None where nothing was set."""
    if option == GPU:
        return draft.gpu
    if option == GPU_COUNT:
        return draft.gpu_count
    return draft.options.get(option)


def changed_options(before: Draft, after: Draft) -> frozenset[str]:
    """Options whose choice differs between two drafts."""
    names = {*before.options, *after.options}
    found = {n for n in names if before.options.get(n) != after.options.get(n)}
    env = {*before.env, *after.env}
    found |= {f"env:{n}" for n in env if before.env.get(n) != after.env.get(n)}
    if before.gpu != after.gpu:
        found.add(GPU)
    if before.gpu_count != after.gpu_count:
        found.add(GPU_COUNT)
    return frozenset(found)


class Session:
    """The one place that holds the draft and what follows from it.

    A change is a new draft; undo is the list of the earlier ones. A draft is judged when its
    report is first asked for, so that a screen without verdict does not wait for the rules.
    """

    def __init__(self, draft: Draft, world: World, judge: Judge | None = None) -> None:
        self.draft = draft
        """The launch as chosen now."""
        self._world = world
        self._judge = judge
        self._past: list[Draft] = []
        self._future: list[Draft] = []
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """What is known of the present draft in the present world."""
        if self._report is None:
            self._report = self.judge(self.draft)
        return self._report

    @property
    def facts(self) -> Facts:
        """The facts that the present draft is judged by."""
        return self.world.facts(self.draft)

    @property
    def world(self) -> World:
        """What was found so far; a new one makes the report anew."""
        return self._world

    @world.setter
    def world(self, world: World) -> None:
        self._world = world
        self._report = None

    def judge(self, draft: Draft) -> Report:
        """Judge any draft in the present world; nothing is kept."""
        if self._judge is None:
            from kvtui.core.evaluate import evaluate

            self._judge = evaluate
        return self._judge(draft, self.world.facts(draft))

    def _put(self, draft: Draft) -> None:
        self.draft = draft
        self._report = None

    @property
    def last_changed(self) -> frozenset[str]:
        """Options that the latest edit touched."""
        return changed_options(self._past[-1], self.draft) if self._past else frozenset()

    @property
    def can_undo(self) -> bool:
        """True where there is an edit to take back."""
        return bool(self._past)

    @property
    def can_redo(self) -> bool:
        """True where there is an edit to bring back."""
        return bool(self._future)

    def change(self, changes: Iterable[Change]) -> bool:
        """Edit the draft; False where nothing differs."""
        return self.replace(change_draft(self.draft, changes))

    def replace(self, draft: Draft) -> bool:
        """Put another draft in place of the present one; False where it is the same."""
        if draft == self.draft:
            return False
        self._past.append(self.draft)
        self._future.clear()
        self._put(draft)
        return True

    def undo(self) -> bool:
        """Take the latest edit back."""
        if not self._past:
            return False
        self._future.append(self.draft)
        self._put(self._past.pop())
        return True

    def redo(self) -> bool:
        """Bring the latest edit back that undo took."""
        if not self._future:
            return False
        self._past.append(self.draft)
        self._put(self._future.pop())
        return True

    def try_out(self, changes: Iterable[Change]) -> Report:
        """What the report would be after an edit; nothing is kept."""
        return self.judge(change_draft(self.draft, changes))
