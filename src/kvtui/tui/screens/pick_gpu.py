"""Choose the hardware: this machine's GPU, or one of the catalogue, and how many."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding
from textual.content import Content

from kvtui.core.facts import GpuFacts
from kvtui.core.gpus import find_gpu, gpus
from kvtui.tui.screens.sheet import PickSheet, heading, matches
from kvtui.tui.session import DEFAULT_COUNT, LOCAL
from kvtui.tui.widgets.row import Row
from kvtui.tui.words import Tone, memory_text

SERVER_MIB = 64 << 10
"""GPUs from this size up come eight to a machine as a rule."""
COUNTS = (1, 2, 4, 8, 16, 32, 64)


class GpuSheet(PickSheet[tuple[str | None, int] | None]):
    """Answers with (catalogue key, or None for this machine's, and count)."""

    title_text = "Hardware"
    placeholder = "type to filter, such as h100, blackwell, 24 GiB, sm90"

    BINDINGS = [
        Binding("right,ctrl+right", "count(1)", "more GPUs", key_display="→", priority=True),
        Binding("left,ctrl+left", "count(-1)", "fewer", key_display="←", priority=True),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.counts: int | None = None

    @staticmethod
    def columns(width: int) -> Sequence[int]:
        """Count, name, memory, compute, key."""
        memory, compute, key = 10, 8, 14
        name = max(20, width - memory - compute - key - 5)
        return (5, name, memory, compute, key)

    def count_of(self, key: str) -> int:
        """How many of that GPU are meant."""
        if self.counts:
            return self.counts
        if key == LOCAL:
            return self.kv.session.world.machine.gpu_count or 1
        gpu = find_gpu(key)
        small = gpu is not None and gpu.memory_mib < SERVER_MIB
        return self.kv.session.draft.gpu_count or (1 if small else DEFAULT_COUNT)

    def rows(self, text: str) -> Sequence[Row]:
        """This machine's GPU first."""
        machine = self.kv.session.world.machine
        found: list[Row] = []
        if machine.gpu is not None and matches(text, *_fields(machine.gpu), "local this machine"):
            found += [heading("this machine"), self._row(LOCAL, machine.gpu)]
        elif not text:
            found.append(heading(f"this machine: {machine.missing.get('gpu', 'no GPU found')}"))
        found_by_name = find_gpu(text)
        known = sorted(
            (gpu for gpu in gpus() if matches(text, *_fields(gpu))),
            key=lambda gpu: (gpu != found_by_name, *_order(gpu)),
        )
        if known:
            found.append(heading("catalogue"))
            found += [self._row(gpu.key, gpu) for gpu in known]
        return found

    def _row(self, key: str, gpu: GpuFacts) -> Row:
        g = self.kv.glyphs
        compute = f"SM{gpu.sm}" if gpu.vendor == "nvidia" else gpu.gcn_arch
        return Row(
            key,
            (
                Content.styled(f"{self.count_of(key)}{g.times}", f"bold {Tone.KEY}"),
                Content(gpu.name),
                Content.styled(memory_text(gpu), Tone.QUIET),
                Content.styled(compute, Tone.QUIET),
                Content.styled(gpu.key, Tone.QUIET),
            ),
        )

    def about(self, key: str) -> Content:
        """Memory of all of them together."""
        gpu = self.kv.session.world.machine.gpu if key == LOCAL else find_gpu(key)
        if gpu is None:
            return Content("")
        count = self.count_of(key)
        total = gpu.memory_mib * count / 1024
        g = self.kv.glyphs
        return Content.assemble(
            (f"{count}{g.times} {gpu.name}", "bold"), f": {total:,.0f} GiB together. ",
            ("Left and right change the count.", Tone.QUIET),
        )  # fmt: skip

    def action_count(self, by: int) -> None:
        """One step more or fewer GPUs."""
        row = self.list.current
        if row is None:
            return
        now = self.count_of(row.key)
        at = min(range(len(COUNTS)), key=lambda i: abs(COUNTS[i] - now))
        self.counts = COUNTS[min(max(at + by, 0), len(COUNTS) - 1)]
        self.refill(select=row.key)

    def picked(self, key: str) -> None:
        """Answer with the key and the count."""
        self.dismiss((None if key == LOCAL else key, self.count_of(key)))


FAMILY = {7: "volta turing", 8: "ampere ada", 9: "hopper", 10: "blackwell", 12: "blackwell"}


ORDER = (10, 9, 12, 8, 7)
"""Families by how often launches are planned for them."""


def _order(gpu: GpuFacts) -> tuple[bool, int, int, int]:
    family = gpu.capability[0]
    rank = ORDER.index(family) if family in ORDER else len(ORDER)
    return (gpu.vendor != "nvidia", rank, -gpu.capability[1], -gpu.memory_mib)


def _fields(gpu: GpuFacts) -> tuple[str, ...]:
    family = FAMILY.get(gpu.capability[0], "") if gpu.vendor == "nvidia" else "rocm"
    return (gpu.key, gpu.name, gpu.vendor, f"sm{gpu.sm}", memory_text(gpu), family)
