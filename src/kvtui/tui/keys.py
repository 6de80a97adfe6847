"""Every key of the screens with the id under which the config file can move it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from textual.binding import Binding

from kvtui.tui.app import KvtuiApp
from kvtui.tui.screens.compare import CompareSheet
from kvtui.tui.screens.explain import PasteArea
from kvtui.tui.screens.export import ExportSheet
from kvtui.tui.screens.fit import NumberField
from kvtui.tui.screens.fixes import FixSheet
from kvtui.tui.screens.home import HomeScreen
from kvtui.tui.screens.matrix import MatrixScreen
from kvtui.tui.screens.pool import PoolSheet
from kvtui.tui.screens.rule import RuleSheet
from kvtui.tui.screens.setup import SetupScreen
from kvtui.tui.screens.sheet import Sheet
from kvtui.tui.screens.why import WhySheet
from kvtui.tui.widgets.rows import RowList

PLACES: tuple[tuple[str, Any], ...] = (
    ("Anywhere", KvtuiApp),
    ("Lists", RowList),
    ("Welcome", HomeScreen),
    ("Set-up", SetupScreen),
    ("Sheets", Sheet),
    ("Fixes", FixSheet),
    ("Why", WhySheet),
    ("Rule", RuleSheet),
    ("Pool check", PoolSheet),
    ("Matrix", MatrixScreen),
    ("Export", ExportSheet),
    ("Capacity", NumberField),
    ("Compare", CompareSheet),
    ("Explain", PasteArea),
)
"""What has keys of its own, in the order of the page."""

NAMES = {
    "slash": "/", "question_mark": "?", "escape": "Esc", "enter": "Enter", "space": "Space",
    "down": "Down", "up": "Up", "left": "Left", "right": "Right", "home": "Home", "end": "End",
    "pagedown": "PageDown", "pageup": "PageUp", "delete": "Delete", "backspace": "Backspace",
    "tab": "Tab", "f1": "F1",
}  # fmt: skip


def bindings_of(place: Any) -> Iterator[Binding]:
    """The bindings that a class declares itself and that can be moved."""
    declared: Sequence[Any] = place.__dict__.get("BINDINGS", ())
    for binding in declared:
        if isinstance(binding, Binding) and binding.id:
            yield binding


def key_text(key: str) -> str:
    """Keys of a binding as one reads them on a keyboard."""
    return ", ".join(NAMES.get(part, part.replace("ctrl+", "Ctrl+")) for part in key.split(","))


def as_markdown() -> str:
    """docs/keys.md."""
    lines = [
        "# Keys",
        "",
        "Made by `python -m kvtui.tui.keys`; do not edit. The same list is behind `?` in the app,",
        "and `Ctrl+P` finds every command by name. A key is moved in `config.toml` (in",
        "`~/.config/kvtui` on Linux) by its id:",
        "",
        "```toml",
        'theme = "kvtui-light"   # any of Textual; ansi-dark, ansi-light: the terminal\'s own',
        'glyphs = "auto"         # auto, unicode, ascii',
        'models = ["/data/models"]',
        'engine = "/opt/sglang"  # the SGLang to ask: a Python, a folder, or a command',
        'pool_limit = "8G"       # what a pool check may take at most',
        "",
        "[keys]",
        '"pool.run" = "ctrl+t"',
        "```",
        "",
    ]
    for title, place in PLACES:
        rows = list(bindings_of(place))
        if not rows:
            continue
        lines += [f"## {title}", "", "| key | what it does | id |", "|---|---|---|"]
        lines += [
            f"| {key_text(b.key)} | {(b.tooltip or b.description)} | `{b.id}` |" for b in rows
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
