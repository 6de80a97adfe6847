"""One-line and few-line parts of a screen: top line, verdict line, key bar, command."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

from kvtui.tui.words import Tone


class Line(Widget):
    """Draws one content, told from outside; a new layout is asked for only by a new height."""

    DEFAULT_CSS = "Line { width: 1fr; height: auto; }"

    content: reactive[Content] = reactive(Content(""), repaint=False, always_update=True)
    auto_links = False

    def watch_content(self, before: Content, now: Content) -> None:
        """Draw what differs."""
        if before.is_same(now):
            return
        width = self.content_size.width
        same = width > 0 and _height(before, width) == _height(now, width)
        self.refresh(layout=not same)

    def render(self) -> Content:
        """The content as it is."""
        return self.content


def _height(content: Content, width: int) -> int:
    return sum(len(line.wrap(width)) for line in content.split("\n", allow_blank=True))


class TopLine(Widget):
    """What is set up on the left, what judges it on the right."""

    left: reactive[Content] = reactive(Content(""))
    right: reactive[Content] = reactive(Content(""))

    def render(self) -> Content:
        """Both ends, the right one giving way first."""
        width = self.content_size.width
        room = width - self.left.cell_length - 2
        right = self.right
        if right.cell_length > room:
            right = right.truncate(room, ellipsis=True) if room > 12 else Content("")
        left = self.left
        if left.cell_length > width:
            left = left.truncate(width, ellipsis=True)
        gap = max(0, width - left.cell_length - right.cell_length)
        return Content.assemble(left, " " * gap, right)


class VerdictLine(Line):
    """The verdict in one line; a click opens the panel behind it."""

    class Opened(Message):
        """The line was clicked."""

    def on_click(self, event: events.Click) -> None:
        """Ask for the panel."""
        event.stop()
        self.post_message(self.Opened())


class CommandLine(Line):
    """The command as it grows; a click copies it."""

    class Clicked(Message):
        """The command was clicked."""

    def on_click(self, event: events.Click) -> None:
        """Ask for a copy."""
        event.stop()
        self.post_message(self.Clicked())


PLAIN_KEYS = {"⏎": "Enter", "→": "Right", "←": "Left", "↑": "Up", "↓": "Down"}
"""Names of keys whose usual sign is not ASCII."""


class KeyBar(Widget):
    """The keys that work now, as many as fit; each can be clicked."""

    auto_links = False

    keys: reactive[tuple[tuple[str, str, str], ...]] = reactive(())
    """(key as shown, what it does, action)."""

    def on_mount(self) -> None:
        """Follow the screen's bindings."""
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self._bindings_changed(self.screen)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        if not self.is_attached or screen is not self.screen:
            return
        shown: dict[str, tuple[str, str, str]] = {}
        typing = screen.focused is not None and screen.focused.check_consume_key("a", "a")
        for active in screen.active_bindings.values():
            binding: Binding = active.binding
            if typing and active.node is not screen.focused and is_printable(binding.key):
                continue
            if binding.show and active.enabled and binding.action not in shown:
                key = self._shown(binding)
                shown[binding.action] = (
                    key,
                    binding.description,
                    self._target(active.node, binding),
                )
        self.keys = tuple(shown.values())

    def _shown(self, binding: Binding) -> str:
        key = binding.key_display or self.app.get_key_display(binding)
        glyphs = getattr(self.app, "glyphs", None)
        return PLAIN_KEYS.get(key, key) if glyphs is not None and glyphs.name == "ascii" else key

    def _target(self, node: object, binding: Binding) -> str:
        if "." in binding.action.split("(")[0]:
            return binding.action
        if node is self.app:
            return f"app.{binding.action}"
        return f"screen.{binding.action}" if node is self.screen else f"focused.{binding.action}"

    def render(self) -> Content:
        """Keys from the left as far as there is room, the last one (help) always."""
        return key_line(self.keys, self.content_size.width)


def is_printable(key: str) -> bool:
    """True for a key that a text field takes as text."""
    return len(key) == 1 or key in ("slash", "question_mark", "space")


def key_line(keys: Sequence[tuple[str, str, str]], width: int) -> Content:
    """`keys` in one line of at most `width` cells; the last is kept before the others."""
    if not keys:
        return Content("")
    items = [_key_item(*key) for key in keys]
    last = items[-1]
    line = Content("")
    for item in items[:-1]:
        if line.cell_length + item.cell_length + last.cell_length + 4 > width:
            break
        line = Content.assemble(line, item, "  ")
    return Content.assemble(line, last)


def _key_item(key: str, text: str, action: str) -> Content:
    item = Content.assemble((key, f"bold {Tone.KEY}"), " ", text)
    return item.stylize(Style.from_meta({"@click": action}))
