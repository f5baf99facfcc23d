"""The log: follows its end, pauses, goes back to any line, searches, filters, folds repeats, copies.

Only rows that changed are written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, chop_cells
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from tui.widgets.log_moves import LogMoves
from tui.widgets.log_words import displayed
from tui.widgets.panel import Span, fit, width_of

if TYPE_CHECKING:
    from backends.megatron.events import LogLine

STYLES = {"debug": "dim", "info": "text", "warning": "warning", "error": "error"}
SIDEWAYS = 20  # cells a key press moves the text


class LogView(LogMoves):
    """Draws the lines around the reader's position, and shows that position."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "pause", id="log.pause", tooltip="Pause the log, or follow its end again"),
        Binding("slash", "search", "search", key_display="/", id="log.search", tooltip="Search the log"),
        Binding("n", "next(-1)", "next", id="log.next", tooltip="Go to the next match, upwards"),
        Binding("N", "next(1)", "previous", id="log.previous", tooltip="Go to the match before, downwards"),
        Binding("f", "filter", "filter", id="log.filter", tooltip="Show only one rank, or only warnings and errors"),
        Binding("y", "copy", "copy", id="log.copy", tooltip="Copy the marked line, or all lines in view"),
        Binding("enter,o", "open", "whole line", id="log.open", tooltip="Show the whole marked line", show=False),
        Binding("up,k", "move(-1)", "up", id="log.up", tooltip="Go up or down", show=False),
        Binding("down,j", "move(1)", "down", id="log.down", tooltip="Go up or down", show=False),
        Binding("pageup", "page(-1)", "page up", id="log.page_up", tooltip="Go up or down by a page", show=False),
        Binding("pagedown", "page(1)", "page down", id="log.page_down", tooltip="Go up or down by a page", show=False),
        Binding("home,g", "top", "first", id="log.top", tooltip="Go to the first line of the log", show=False),
        Binding("end,G", "bottom", "last", id="log.bottom", tooltip="Go to the newest line and follow the log", show=False),
        Binding("left,h", "sideways(-1)", "left", id="log.left", tooltip="Show the left or right part of long lines", show=False),
        Binding("right", "sideways(1)", "right", id="log.right", tooltip="Show the left or right part of long lines", show=False),
    ]  # fmt: skip

    class SearchAsked(Message):
        """The view wants a text to search for."""

    class FilterAsked(Message):
        """The view wants a filter."""

    class Copied(Message):
        """`text` is to be copied; `lines` of it."""

        def __init__(self, text: str, lines: int) -> None:
            self.text, self.lines = text, lines
            super().__init__()

    class Opened(Message):
        """A line is to be shown whole."""

        def __init__(self, line: LogLine) -> None:
            self.line = line
            super().__init__()

    # Drawing.

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        dot = " - " if self.ascii_only else " · "
        counts = f"{self.buffer.total:,} lines" + (
            f", {self.buffer.folded:,} folded" if self.buffer.folded else ""
        )
        state: Span = ("follow", "good") if self.following else ("paused", "warning")
        left: list[Span] = [
            ("log", "title"),
            (dot, "dim"),
            state,
            (f"{dot}{self._filter_words()}{dot}{self._place_words() or counts}", "dim"),
        ]
        if self.note:
            left.append((dot + self.note, "warning"))
        return left, self._search_words()

    def _place_words(self) -> str:
        """Where in the log the marked line is."""
        marked = [] if self._cursor is None else self._lines.window(self._cursor, 1)
        if self.past.progress is not None and not self.search:
            return f"reading the file, {self.past.progress:.0%}"
        if not marked or not (self.caught_up or len(self.past)):
            return ""
        lost = self._cursor == 0 and not self.past.path and self.buffer.dropped
        total = f" of {self.buffer.total:,}" if self.caught_up else ""
        return f"line {marked[0].number:,}{total}{', older ones were not kept' if lost else ''}"

    def _search_words(self) -> Sequence[Span]:
        if not self.search:
            return []
        if not self._deep:
            return [(f"/{self.search}  {self.buffer.matches(self.search):,} lines", "info")]
        progress = self.past.progress
        far = f"  searching, {progress:.0%}, esc ends it" if progress is not None else ""
        more = "+" if self.past.counting else ""
        return [(f"/{self.search}  {self.past.matches:,}{more} lines{far}", "info")]

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        last = max(len(self._lines) - height, 0)
        if self.following:
            self._top = last
        elif self._cursor is not None:
            # The cursor stays visible when the pane becomes lower or is drawn for the first time.
            self._top = min(max(self._top, self._cursor - height + 1), self._cursor)
        self._top = min(max(self._top, 0), last)
        rank_width = len(str(max(self.buffer.ranks))) if self.buffer.ranks else 0
        lines = self._lines.window(self._top, height)
        return [
            self._row(line, self._top + i == self._cursor, width, rank_width) for i, line in enumerate(lines)
        ]

    def _row(self, line: LogLine, marked: bool, width: int, rank_width: int) -> Sequence[Span]:
        style = "selected" if marked else STYLES[line.level]
        quiet = "selected" if marked else "dim"
        rank = (
            [(("" if line.rank is None else str(line.rank)).rjust(rank_width) + " ", quiet)]
            if rank_width
            else []
        )
        count = f" {'x' if self.ascii_only else '×'} {line.count:,}" if line.count > 1 else ""
        room = max(width - width_of(rank) - len(count), 0)
        text = self._shifted(displayed(line.text))
        spans = self._with_matches(text, style) if self.search else [(text, style)]
        if cell_len(text) > room:
            more = ">" if self.ascii_only else "…"
            spans = [*fit(spans, max(room - 1, 0)), (more, quiet)]
        return [*rank, *fit(spans, room, style), (count, quiet)]

    def _shifted(self, text: str) -> str:
        """`text` without the cells scrolled out at the left; a wide character is never cut in two."""
        if not self._shift or cell_len(text) <= self._shift:
            return text if not self._shift else ""
        return text[len(chop_cells(text, self._shift)[0]) :]

    def _with_matches(self, text: str, style: str) -> list[Span]:
        spans: list[Span] = []
        at = 0
        for match in re.finditer(re.escape(self.search), text, re.IGNORECASE):
            spans += [(text[at : match.start()], style), (match[0], "match")]
            at = match.end()
        return [*spans, (text[at:], style)]

    # Keys.

    def action_sideways(self, step: int) -> None:
        self._shift = max(self._shift + step * SIDEWAYS, 0)
        self.show()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        if self.following:
            return
        at_end = self._cursor == len(self._lines) - 1
        self._go(3)
        if at_end:
            self.action_bottom()

    # What needs the screen.

    def action_search(self) -> None:
        self.post_message(self.SearchAsked())

    def action_next(self, step: int) -> None:
        if not self.search:
            self.action_search()
            return
        self._to_match(self._cursor, step)

    def action_filter(self) -> None:
        self.post_message(self.FilterAsked())

    def action_copy(self) -> None:
        if self._cursor is not None:
            lines = self._lines.window(self._cursor, 1)
        else:
            lines = self._lines.window(self._top, self.body_size[1])
        self.post_message(self.Copied("\n".join(line.text for line in lines), len(lines)))

    def action_open(self) -> None:
        at = self._cursor if self._cursor is not None else len(self._lines) - 1
        for line in self._lines.window(at, 1):
            self.post_message(self.Opened(line))
