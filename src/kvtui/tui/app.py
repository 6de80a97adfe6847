"""The app: which screen opens on which key, and what happens with its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from textual import work
from textual.app import SystemCommand
from textual.binding import Binding
from textual.command import Provider
from textual.screen import Screen

from kvtui.core.command import argv_of, quote
from kvtui.core.draft import Draft
from kvtui.core.facts import Facts
from kvtui.core.findings import Change, Finding
from kvtui.errors import InputError
from kvtui.tui.base import is_hub_id
from kvtui.tui.checks import CheckingApp
from kvtui.tui.prober import Prober
from kvtui.tui.session import GPU, GPU_COUNT, Judge, change_draft
from kvtui.tui.settings import RecentPreset, Settings


def home_screen() -> Screen[None]:
    """The welcome, imported when it is first shown."""
    from kvtui.tui.screens.home import HomeScreen

    return HomeScreen()


def setup_screen() -> Screen[None]:
    """The set-up, imported when it is first shown."""
    from kvtui.tui.screens.setup import SetupScreen

    return SetupScreen()


def places() -> type[Provider]:
    """The palette's own provider, imported when the palette is first opened."""
    from kvtui.tui.commands import Places

    return Places


class KvtuiApp(CheckingApp):
    """Set up, judge, check and export a launch."""

    TITLE = "kvtui"
    CSS_PATH = "app.tcss"
    COMMAND_PALETTE_BINDING = "ctrl+p"
    COMMANDS = CheckingApp.COMMANDS | {places}

    BINDINGS = [
        Binding("ctrl+n", "new", "new launch", id="new", show=False),
        Binding("q,ctrl+q", "quit", "quit", id="quit", show=False, priority=False),
        Binding("question_mark,f1", "help", "help", key_display="?", id="help"),
    ]

    MODES = {"home": home_screen, "setup": setup_screen}

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
        # Textual reads the mode to start in from the instance.
        self.DEFAULT_MODE = "setup" if draft.options else "home"  # type: ignore[misc]
        super().__init__(draft, facts, prober, settings=settings, judge=judge, clock=clock)

    def start_with(self, draft: Draft) -> None:
        """Open a draft in the set-up, from wherever we are."""
        self.open_draft(draft)
        if self.current_mode != "setup":
            self.call_later(self._enter_setup)

    async def _enter_setup(self) -> None:
        await self.switch_mode("setup")
        if self.session.facts.gpu is None and self.session.draft.gpu is None:
            self.action_pick_gpu()

    def start_with_changes(self, changes: Iterable[Change]) -> None:
        """Like `start_with`, for edits of the present draft."""
        self.start_with(change_draft(self.session.draft, changes))

    def action_new(self) -> None:
        """Back to the welcome; the present draft stays for `continue`."""
        if self.current_mode == "home":
            return
        self.kept = (self.session.draft, 0.0)
        self.session.replace(Draft())
        self.revision += 1
        self.switch_mode("home")

    def action_pick_model(self) -> None:
        """Choose the model."""
        from kvtui.tui.screens.pick_model import ModelSheet

        def take(path: str | None) -> None:
            if path is not None:
                self.take_model(path)

        self.push_screen(ModelSheet(), take)

    @work(exclusive=True, group="take-model", exit_on_error=False)
    async def take_model(self, path: str) -> None:
        """Set a model up; for one that is not here, ask whether to fetch its configuration."""
        from kvtui.tui.screens.confirm import ConfirmSheet

        draft = change_draft(self.session.draft, (Change("model_path", path),))
        await self.read_world(draft)
        if path in self.session.world.missing and is_hub_id(path):
            question = f"{path} is not on this machine. Fetch its JSON files from the hub?"
            if await self.push_screen_wait(ConfirmSheet(question, "No weights are fetched.")):
                await self.fetch_model(path)
        self.start_with(draft)

    def action_pick_gpu(self) -> None:
        """Choose the hardware."""
        from kvtui.tui.screens.pick_gpu import GpuSheet

        def take(answer: tuple[str | None, int] | None) -> None:
            if answer is not None:
                key, count = answer
                own = key is None and count == self.session.world.machine.gpu_count
                self.edit((Change(GPU, key), Change(GPU_COUNT, None if own else count)))

        self.push_screen(GpuSheet(), take)

    def action_search(self, step: str | None = None) -> None:
        """Find an option and go to it."""
        from kvtui.tui.screens.search import SearchSheet

        self.push_screen(SearchSheet(step), self.goto)

    def goto(self, option: str | None) -> None:
        """Put the cursor of the set-up on an option; None leaves it where it is."""
        from kvtui.tui.screens.setup import SetupScreen

        base = self.screen_stack[0]
        if option is not None and isinstance(base, SetupScreen):
            base.goto(option)

    def action_fixes(self) -> None:
        """Every fix with what it would lead to."""
        from kvtui.tui.screens.fixes import FixSheet

        if any(finding.fixes for finding in self.report.findings):
            self.push_screen(FixSheet())
        else:
            self.say("nothing to fix" if not self.report.findings else "no finding has a fix")

    def show_why(self, finding: Finding | None, option: str | None) -> None:
        """The page of a rule with its terms, or of an option where nothing was found."""
        from kvtui.tui.screens.why import WhySheet

        findings = self.report.findings
        about = finding or next((f for f in findings if option and f.option == option), None)
        about = about or next(iter(self.report.errors), None)
        about = about or (findings[0] if findings and option is None else None)
        if about is None and option is None:
            self.say("nothing was found that needs a reason")
            return
        self.push_screen(WhySheet(about, option), self.goto)

    def show_rule(self, id: str) -> None:
        """A rule's page."""
        from kvtui.core.rulebook import find_rule
        from kvtui.tui.screens.rule import RuleSheet

        rule = find_rule(id)
        if rule is not None:
            self.push_screen(RuleSheet(rule), self.goto)

    def action_matrix(self) -> None:
        """Attention backend by KV dtype."""
        from kvtui.tui.screens.matrix import MatrixScreen

        if self.report.pool is None and self.report.unknowns:
            self.say("choose a model and a GPU first", bad=True)
            return
        self.push_screen(MatrixScreen())

    def action_pool_result(self) -> None:
        """What the pool check did."""
        from kvtui.tui.screens.pool import PoolSheet

        self.push_screen(PoolSheet())

    def action_save_difference(self) -> None:
        """Write down what rules and engine say where they differ, for a report to us."""
        from kvtui.tui.difference import save_difference

        if not self.report.disagrees:
            self.say("rules and engine do not differ here")
            return
        try:
            path = save_difference(self.report, self.settings.state, self.time_text())
        except InputError as error:
            self.say(str(error), bad=True)
        else:
            self.say(f"written to {path}")

    def action_export(self) -> None:
        """Formats, preview, copy, write."""
        from kvtui.tui.screens.export import ExportSheet

        self.push_screen(ExportSheet())

    def action_save(self) -> None:
        """Save the launch as a preset."""
        from kvtui.tui.screens.presets import SaveSheet

        self.push_screen(SaveSheet())

    def action_open(self) -> None:
        """Open a preset."""
        from kvtui.tui.screens.presets import OpenSheet

        def take(path: str | None) -> None:
            if path is not None:
                self.open_preset(path)

        self.push_screen(OpenSheet(), take)

    def action_fit(self) -> None:
        """Ways to a capacity."""
        from kvtui.tui.screens.fit import FitSheet

        self.push_screen(FitSheet())

    def action_compare(self) -> None:
        """Compare with a preset."""
        from kvtui.tui.screens.presets import OpenSheet

        def take(path: str | None) -> None:
            if path is not None:
                self.compare_with(path)

        self.push_screen(OpenSheet("Compare with a preset"), take)

    @work(exclusive=True, group="compare", exit_on_error=False)
    async def compare_with(self, path: str) -> None:
        """Judge a preset in this world and show it beside the present launch."""
        from kvtui.probe.presets import read_stored
        from kvtui.tui.screens.compare import CompareSheet

        stored = read_stored(Path(path).expanduser())
        if stored.preset is None:
            self.say(stored.error, bad=True)
            return
        await self.read_world(stored.preset.draft)
        self.push_screen(CompareSheet(self.session.judge(stored.preset.draft), stored.name))

    def open_preset(self, path: str) -> None:
        """Load a preset and judge it again; what deserves a second look is said."""
        from kvtui.probe.presets import read_stored

        stored = read_stored(Path(path).expanduser())
        preset = stored.preset
        if preset is None:
            self.say(stored.error, bad=True)
            return
        self.settings.remember(path)
        self.start_with(preset.draft)
        for caution in preset.cautions[:3]:
            self.notify(caution, severity="warning", timeout=8, markup=False)

    def recent_presets(self) -> tuple[RecentPreset, ...]:
        """Presets that were opened or saved lately and still exist."""
        return self.settings.recent()

    def action_explain(self) -> None:
        """Paste an error or a log."""
        from kvtui.tui.screens.explain import ExplainSheet

        self.push_screen(ExplainSheet(), self.goto)

    def action_copy_command(self) -> None:
        """Copy the command through the terminal (OSC 52)."""
        env = [f"{name}={value}" for name, value in sorted(self.report.draft.env.items())]
        words = [quote((word,)) for word in env]
        self.copy_text(" ".join([*words, quote(argv_of(self.report))]), "command")

    def copy_text(self, text: str, what: str) -> None:
        """Put text on the clipboard of the terminal that the user sits at."""
        from kvtui.tui.clipboard import copy

        copy(self, text)
        self.say(f"{what} copied ({len(text):,} characters)")

    def action_help(self) -> None:
        """The keys of the present screen."""
        from kvtui.tui.screens.help import HelpSheet

        if not isinstance(self.screen, HelpSheet):
            self.push_screen(HelpSheet(self.screen))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the palette offers: the keys that work now, then themes and leaving."""
        seen = set()
        for active in screen.active_bindings.values():
            binding = active.binding
            if not active.enabled or binding.action in seen or not binding.description:
                continue
            if binding.id is None or binding.id.startswith(("list.", "sheet.")):
                continue
            seen.add(binding.action)
            node, action = active.node, binding.action
            key = binding.key_display or self.get_key_display(binding)
            yield SystemCommand(
                binding.description.capitalize(),
                f"{binding.tooltip or binding.description} ({key})",
                lambda node=node, action=action: self.call_later(self.run_action, action, node),
            )
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)


def make_app(
    draft: Draft,
    facts: Facts,
    prober: Prober | None = None,
    *,
    settings: Settings | None = None,
    judge: Judge | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> KvtuiApp:
    """The one factory that the command line, the tests and the pictures use."""
    return KvtuiApp(draft, facts, prober, settings=settings, judge=judge, clock=clock)
