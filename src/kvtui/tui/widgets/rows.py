"""A list of rows in columns with a cursor: the one list that every screen uses.

Only visible lines are rendered, so that 500 options cost no more than 20.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.css.styles import RulesMap
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions

from kvtui.tui.widgets.row import Layout, Row, brighten, lay_out, one_column


class RowList(ScrollView, can_focus=True):
    """Rows with one cursor, keyboard and mouse.

    With the class `-led` the cursor looks as with focus: another widget leads the list.
    """

    BINDINGS = [
        Binding("down,j", "cursor(1)", "down", show=False, id="list.down"),
        Binding("up,k", "cursor(-1)", "up", show=False, id="list.up"),
        Binding("pagedown,ctrl+d", "page(1)", "page down", show=False, id="list.page_down"),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False, id="list.page_up"),
        Binding("home", "end(-1)", "first", show=False, id="list.first"),
        Binding("end,G", "end(1)", "last", show=False, id="list.last"),
    ]

    COMPONENT_CLASSES = {"rows--line", "rows--cursor", "rows--hover"}

    DEFAULT_CSS = """
    RowList {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: auto;
        & > .rows--cursor { background: $kv-cursor-blurred; }
        & > .rows--hover { background: $kv-cursor-blurred; }
        &:focus > .rows--cursor, &.-led > .rows--cursor {
            background: $kv-cursor; color: $kv-cursor-text; text-style: bold;
        }
    }
    """

    rows: reactive[tuple[Row, ...]] = reactive((), init=False)
    cursor: reactive[int] = reactive(-1, init=False)
    hovered: reactive[int] = reactive(-1, init=False)

    class Moved(Message):
        """The cursor came to another row."""

        def __init__(self, rows: RowList, row: Row) -> None:
            super().__init__()
            self.list = rows
            self.row = row

        @property
        def control(self) -> RowList:
            """The list that sent it, for `@on` selectors."""
            return self.list

    class Picked(Moved):
        """A row was chosen by key or mouse."""

    def __init__(
        self,
        rows: Sequence[Row] = (),
        *,
        layout: Layout = one_column,
        mark: str = "›",
        empty: str = "",
        keep_cursor: bool = True,
        pick_label: str = "choose",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.column_layout = layout
        self.mark = mark
        self.empty = empty
        self.keep_cursor = keep_cursor
        """Whether the cursor stays in sight while another widget has the focus."""
        self._bindings.bind("enter", "pick", pick_label, show=True, key_display="⏎")
        self._lines: list[tuple[int, Content]] = []
        self._starts: list[int] = []
        self._cache: dict[tuple[int, bool, bool, bool], Strip] = {}
        self._width = 0
        self.set_reactive(RowList.rows, tuple(rows))
        self.set_reactive(RowList.cursor, self._nearest(0, 1))

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def show(self, rows: Sequence[Row], *, keep: bool = True, select: str | None = None) -> None:
        """Take new rows in; the cursor stays on its key, or goes to `select` or the top."""
        before = self.current
        wanted = select or (before.key if keep and before else None)
        fallback = self.cursor if keep else 0
        self.set_reactive(RowList.rows, tuple(rows))
        index = self.index_of(wanted) if wanted is not None else None
        if index is None:
            index = self._nearest(min(max(fallback, 0), len(rows) - 1), 1)
        moved = index != self.cursor
        self.set_reactive(RowList.cursor, index)
        self._take_lines(moved)
        after = self.current
        if after is not None and (before is None or before.key != after.key):
            self.post_message(self.Moved(self, after))
        self._scroll_to_cursor()

    def index_of(self, key: str) -> int | None:
        """Where the enabled row with that key is."""
        return next((i for i, r in enumerate(self.rows) if r.key == key and r.enabled), None)

    def select(self, key: str) -> bool:
        """Move the cursor to the row with that key; False where there is none."""
        index = self.index_of(key)
        if index is None:
            return False
        self.cursor = index
        return True

    def _nearest(self, index: int, direction: int) -> int:
        """The enabled row at or after `index` in that direction, else the other way, else -1."""
        for way in (direction, -direction):
            i = index
            while 0 <= i < len(self.rows):
                if self.rows[i].enabled:
                    return i
                i += way
        return -1

    def _take_lines(self, moved: bool) -> None:
        """Measure anew and redraw only the lines that differ."""
        lines, cache, width = list(self._lines), dict(self._cache), self._width
        self._measure()
        if moved or width != self._width or len(lines) != len(self._lines):
            self.refresh()
            return
        same = {
            number
            for number, (old, new) in enumerate(zip(lines, self._lines, strict=True))
            if old[0] == new[0] and old[1].is_same(new[1])
        }
        self._cache.update({key: strip for key, strip in cache.items() if key[0] in same})
        for number in range(len(lines)):
            if number not in same:
                self.refresh_lines(number)

    def _measure(self) -> None:
        """Break rows into lines for the present width."""
        width = self.scrollable_content_region.width
        self._width = width
        self._lines.clear()
        self._starts.clear()
        self._cache.clear()
        if width <= 0:
            return
        inner = max(1, width - 2)
        widths = self.column_layout(inner)
        for index, row in enumerate(self.rows):
            self._starts.append(len(self._lines))
            own = row.layout(inner) if row.layout else widths
            self._lines.append((index, lay_out(row.cells, own)))
            if row.below is not None and row.below.plain:
                room = max(8, inner - row.indent)
                pad = " " * row.indent
                self._lines.extend(
                    (index, Content(pad) + line)
                    for part in row.below.split("\n")
                    for line in part.wrap(room)
                )
        self.virtual_size = Size(width, max(1, len(self._lines)))

    def on_resize(self) -> None:
        """Lay the lines out for the new width."""
        self._measure()
        self.refresh()
        self._scroll_to_cursor()

    def notify_style_update(self) -> None:
        """Forget what was drawn in the old colours."""
        self._cache.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """One line of the view."""
        if self.scrollable_content_region.width != self._width:
            self._measure()
        number = y + self.scroll_offset.y
        if number >= len(self._lines):
            note = self.empty if number == 0 and not self.rows else ""
            return self._draw(Content.styled(f"  {note}", "$kv-quiet"), "rows--line")
        index, _ = self._lines[number]
        shown = self.has_focus or self.keep_cursor
        at_cursor, hovered = shown and index == self.cursor, index == self.hovered
        key = (number, at_cursor, hovered, self.has_focus)
        strip = self._cache.get(key)
        if strip is None:
            first = self._starts[index] == number
            sign = f"{self.mark[:1]} " if at_cursor and first else "  "
            part = "rows--cursor" if at_cursor else "rows--hover" if hovered else "rows--line"
            line = self._lines[number][1]
            if at_cursor and (self.has_focus or self.has_class("-led")):
                line = brighten(line)
            strip = self._draw(Content(sign) + line, part)
            strip = strip.apply_meta({"row": index})
            self._cache[key] = strip
        return strip

    def _draw(self, content: Content, part: str) -> Strip:
        width = self.scrollable_content_region.width
        style: Style = self.get_visual_style(part)
        options = RenderOptions(self._get_style, cast(RulesMap, self.styles))
        strips = content.render_strips(width, 1, style, options)
        strip = strips[0] if strips else Strip.blank(width, style.rich_style)
        return strip.adjust_cell_length(width, style.rich_style)

    def watch_cursor(self, before: int, now: int) -> None:
        """Show the cursor and tell."""
        self._refresh_rows(before, now)
        self._scroll_to_cursor()
        row = self.current
        if row is not None:
            self.post_message(self.Moved(self, row))

    def watch_hovered(self, before: int, now: int) -> None:
        """Redraw what the pointer left and reached."""
        self._refresh_rows(before, now)

    def watch_has_focus(self, _focus: bool) -> None:
        """The cursor looks different without focus."""
        super().watch_has_focus(_focus)
        self.refresh()

    def _refresh_rows(self, *indexes: int) -> None:
        for index in indexes:
            if 0 <= index < len(self._starts):
                self.refresh_lines(self._starts[index], self._height(index))

    def _height(self, index: int) -> int:
        after = self._starts[index + 1] if index + 1 < len(self._starts) else len(self._lines)
        return after - self._starts[index]

    def _scroll_to_cursor(self) -> None:
        if not 0 <= self.cursor < len(self._starts) or not self.size:
            return
        top = self._starts[self.cursor]
        if self._nearest(0, 1) == self.cursor:
            top = 0  # headings above the first row stay in sight
        height = self._starts[self.cursor] + self._height(self.cursor) - top
        region = Region(0, top, self.size.width, height)
        self.scroll_to_region(region, animate=False, force=True, immediate=True)

    def action_cursor(self, by: int) -> None:
        """Move by rows, over headings."""
        index = self.cursor + by
        found = self._nearest(index, by) if 0 <= index < len(self.rows) else -1
        if found >= 0 and (found - self.cursor) * by > 0:
            self.cursor = found

    def action_page(self, by: int) -> None:
        """Move by a screen."""
        index = self.cursor + by * max(1, self.size.height - 1)
        self.cursor = self._nearest(min(max(index, 0), len(self.rows) - 1), -by)

    def action_end(self, to: int) -> None:
        """Move to the first or the last row."""
        self.cursor = self._nearest(0, 1) if to < 0 else self._nearest(len(self.rows) - 1, -1)

    def action_pick(self) -> None:
        """Choose the row under the cursor."""
        row = self.current
        if row is not None:
            self.post_message(self.Picked(self, row))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Light up the row under the pointer."""
        index = event.style.meta.get("row", -1)
        self.hovered = index if 0 <= index < len(self.rows) and self.rows[index].enabled else -1

    def on_leave(self) -> None:
        """The pointer left."""
        self.hovered = -1

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor; a click on the row under it, or a double one, chooses."""
        index = event.style.meta.get("row", -1)
        if not 0 <= index < len(self.rows) or not self.rows[index].enabled:
            return
        event.stop()
        if index == self.cursor or event.chain > 1:
            self.cursor = index
            self.action_pick()
        else:
            self.cursor = index
