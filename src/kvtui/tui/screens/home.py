"""The first screen where nothing is set up yet: what is here, and one obvious way on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen

from kvtui.core.draft import Draft
from kvtui.core.findings import Change
from kvtui.tui.glyphs import Glyphs
from kvtui.tui.prober import Machine
from kvtui.tui.screens.pick_model import model_rows
from kvtui.tui.screens.sheet import heading, space
from kvtui.tui.widgets.lines import KeyBar, Line, TopLine
from kvtui.tui.widgets.row import Row
from kvtui.tui.widgets.rows import RowList
from kvtui.tui.words import Tone, age_text, gib_text, gpu_text, plural

if TYPE_CHECKING:
    from kvtui.tui.app import KvtuiApp

CONTINUE = "@continue"
OTHER = "@other"
PRESETS = "@presets"
EXPLAIN = "@explain"
PRESET = "@preset:"


class HomeScreen(Screen[None]):
    """The machine, its models, recent presets; Enter starts with the row under the cursor."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (96, "-medium"), (120, "-wide"), (170, "-huge")]

    BINDINGS = [
        Binding("enter", "pick", "start", show=False, id="home.start"),
        Binding("m", "other", "any model", id="home.model"),
        Binding("h", "hardware", "hardware", id="home.hardware"),
        Binding("o", "app.open", "open preset", id="preset.open"),
        Binding("x", "app.explain", "explain an error", id="explain"),
        Binding("slash", "other", "find", show=False),
    ]

    DEFAULT_CSS = """
    HomeScreen #home { padding: 1 2; height: 1fr; }
    HomeScreen #home-machine { padding: 0 0 1 2; }
    HomeScreen #home-rows { height: 1fr; }
    HomeScreen.-wide #home, HomeScreen.-huge #home { max-width: 110; }
    HomeScreen.-wide, HomeScreen.-huge { align-horizontal: center; }
    """

    @property
    def kv(self) -> KvtuiApp:
        """The app, typed."""
        return cast("KvtuiApp", self.app)

    def compose(self) -> ComposeResult:
        """What was found, then what to start from."""
        top = TopLine()
        top.left = Content.assemble(
            ("kvtui ", f"bold {Tone.KEY}"), "will this SGLang launch come up, with which KV pool?"
        )
        yield top
        with Vertical(id="home"):
            title = Line()
            title.content = Content.styled("  this machine", f"bold {Tone.QUIET}")
            yield title
            yield Line(id="home-machine")
            yield RowList(
                id="home-rows", layout=_columns, mark=self.kv.glyphs.cursor, pick_label="start"
            )
        yield KeyBar()

    def on_mount(self) -> None:
        """Follow what is found."""
        self.watch(self.app, "revision", self.show_all, init=False)
        self.show_all()
        self.query_one(RowList).focus()

    def models_changed(self) -> None:
        """The machine's models were found."""
        self.show_all()

    def show_all(self) -> None:
        """Draw machine and rows anew."""
        g = self.kv.glyphs
        draft = self.kv.session.draft
        self.query_one("#home-machine", Line).content = machine_lines(
            self.kv.session.world.machine, draft, self.kv.session.facts.gpu is not None, g
        )
        listed = self.query_one(RowList)
        at_top = all(not row.enabled for row in listed.rows[: listed.cursor])
        listed.show(self._rows(), keep=not at_top)

    def _rows(self) -> list[Row]:
        found: list[Row] = []
        kept = self.kv.kept
        if kept is not None:
            draft, age = kept
            note = f"{plural(len(draft.options), 'option')} · {age_text(age)}"
            found += [
                heading("continue"),
                Row(CONTINUE, (Content(draft.model_path or "last launch"),
                               Content.styled(note, Tone.QUIET))),
            ]  # fmt: skip
        models = model_rows(self.kv.local_models, "", typed=False, limit=0)
        models = [row for row in models if not row.key.startswith("# catalogue")]
        if found and models:
            found.append(space())
        found += models
        for recent in self.kv.recent_presets():
            if recent is self.kv.recent_presets()[0]:
                found += [space(), heading("recent presets")]
            found.append(
                Row(PRESET + recent.path,
                    (Content(recent.name), Content.styled(recent.note, Tone.QUIET)))
            )  # fmt: skip
        found += [space(), heading("or")]
        found += [
            Row(OTHER, (Content("another model"),
                        Content.styled("catalogue, folder, hub id", Tone.QUIET))),
            Row(PRESETS, (Content("a preset"), Content.styled("yours and ours", Tone.QUIET))),
            Row(EXPLAIN, (Content("an error or a boot log"),
                          Content.styled("what it means, what to change", Tone.QUIET))),
        ]  # fmt: skip
        return found

    @on(RowList.Picked)
    def _picked(self, event: RowList.Picked) -> None:
        key = event.row.key
        if key == CONTINUE and self.kv.kept is not None:
            self.kv.start_with(self.kv.kept[0])
        elif key == OTHER:
            self.action_other()
        elif key == PRESETS:
            self.kv.action_open()
        elif key == EXPLAIN:
            self.kv.action_explain()
        elif key.startswith(PRESET):
            self.kv.open_preset(key.removeprefix(PRESET))
        else:
            self.kv.start_with_changes((Change("model_path", key),))

    def action_pick(self) -> None:
        """Start with the row under the cursor."""
        self.query_one(RowList).action_pick()

    def action_other(self) -> None:
        """Choose from all models."""
        self.kv.action_pick_model()

    def action_hardware(self) -> None:
        """Choose the hardware first."""
        self.kv.action_pick_gpu()


def machine_lines(machine: Machine, draft: Draft, has_gpu: bool, g: Glyphs) -> Content:
    """This machine in four lines: what is here, and what a missing thing costs."""
    rows: list[Content] = []
    if draft.gpu:
        rows.append(_line(g.ok, Tone.GOOD, "GPU", f"{draft.gpu} (chosen from the catalogue)"))
    elif machine.gpu is not None:
        text = gpu_text(machine.gpu, machine.gpu_count, g.times)
        if machine.gpu.free_mib is not None:
            text += f", {gib_text(machine.gpu.free_mib << 20)} free"
        rows.append(_line(g.ok, Tone.GOOD, "GPU", text))
    else:
        why = machine.missing.get("gpu", "looking …")
        hint = "" if has_gpu else "; h names one that you plan for"
        rows.append(_line(g.none, Tone.QUIET, "GPU", why + hint))
    if machine.host is not None:
        host = machine.host
        text = f"{gib_text(host.total_bytes)}, {gib_text(host.available_bytes)} free"
        rows.append(_line(g.ok, Tone.GOOD, "host", text))
    if machine.torch:
        rows.append(_line(g.ok, Tone.GOOD, "torch", f"{machine.torch}: pools can be built"))
    else:
        why = machine.missing.get("torch", "looking …")
        rows.append(_line(g.none, Tone.QUIET, "torch", why))
    if machine.engine:
        where = f" in {machine.engine_place}" if machine.engine_place else ""
        rows.append(_line(g.ok, Tone.GOOD, "SGLang", f"{machine.engine}{where}: can be asked"))
    else:
        why = machine.missing.get("engine", "none found here")
        rows.append(_line(g.none, Tone.QUIET, "SGLang", f"{why}; the rules judge"))
    return Content("\n").join(rows)


def _line(sign: str, tone: Tone, name: str, text: str) -> Content:
    return Content.assemble((sign, tone), f" {name:<7}", (text, "" if tone is Tone.GOOD else tone))


def _columns(width: int) -> tuple[int, int]:
    name = max(30, width // 2)
    return (name, width - name)
