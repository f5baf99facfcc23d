"""The log: follows its end, pauses, searches, filters, folds repeats, copies. Only rows that changed are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len, chop_cells
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from tui.widgets.log_buffer import LogBuffer, LogFilter
from tui.widgets.log_words import displayed
from tui.widgets.panel import Panel, Span, fit, width_of

if TYPE_CHECKING:
    from backends.megatron.events import LogLine

STYLES = {"debug": "dim", "info": "text", "warning": "warning", "error": "error"}
SIDEWAYS = 20  # cells a key press moves the text


class LogView(Panel):
    """Lines of a log. `add` appends; while paused or scrolled up, what is seen stays where it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "pause", id="log.pause", tooltip="Hold the view, or follow the end again"),
        Binding("slash", "search", "search", key_display="/", id="log.search", tooltip="Search in the log"),
        Binding(
            "n", "next(-1)", "next", id="log.next", tooltip="The match above (the log is read from its end)"
        ),
        Binding("N", "next(1)", "previous", id="log.previous", tooltip="The match below"),
        Binding(
            "f", "filter", "filter", id="log.filter", tooltip="Lines of one rank, or warnings and errors only"
        ),
        Binding("y", "copy", "copy", id="log.copy", tooltip="Copy the marked line, or all lines in view"),
        Binding("enter,o", "open", "whole line", id="log.open", tooltip="The whole marked line", show=False),
        Binding("up,k", "move(-1)", "up", id="log.up", tooltip="One line up", show=False),
        Binding("down,j", "move(1)", "down", id="log.down", tooltip="One line down", show=False),
        Binding("pageup", "page(-1)", "page up", id="log.page_up", tooltip="One page up", show=False),
        Binding("pagedown", "page(1)", "page down", id="log.page_down", tooltip="One page down", show=False),
        Binding("home,g", "top", "first", id="log.top", tooltip="The oldest line kept", show=False),
        Binding(
            "end,G", "bottom", "last", id="log.bottom", tooltip="The newest line, and follow", show=False
        ),
        Binding("left,h", "sideways(-1)", "left", id="log.left", tooltip="Move the text right", show=False),
        Binding("right", "sideways(1)", "right", id="log.right", tooltip="Move the text left", show=False),
    ]

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
        """A line is to be seen whole."""

        def __init__(self, line: LogLine) -> None:
            self.line = line
            super().__init__()

    def __init__(
        self, *, id: str | None = None, ascii_only: bool = False, buffer: LogBuffer | None = None
    ) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self.buffer = buffer or LogBuffer()
        self.following = True
        self.search = ""
        self.note = ""  # what the follower says of the file ("truncated", "waiting for …")
        self._top = 0
        self._cursor: int | None = None  # marked line, while not following
        self._shift = 0

    def clear(self) -> None:
        """What comes next takes the place of all lines so far."""
        self.buffer.clear()
        self._top, self._cursor = 0, None

    def add(self, lines: Iterable[LogLine]) -> None:
        dropped = self.buffer.dropped
        self.buffer.add(lines)
        dropped = self.buffer.dropped - dropped
        if not self.following and dropped:
            self._top = max(self._top - dropped, 0)
            self._cursor = None if self._cursor is None else max(self._cursor - dropped, 0)
        self.show()

    def restart(self) -> None:
        """The log began anew."""
        self.buffer.clear()
        self.action_bottom()

    def let_through(self, wanted: LogFilter) -> None:
        self.buffer.let_through(wanted)
        self.action_bottom()

    def look_for(self, text: str) -> None:
        """Mark the newest line that holds `text`; an empty text ends the search."""
        self.search = text
        if not text:
            self.show()
            return
        self._to_match(len(self.buffer) - 1, -1)

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
            (f"{dot}{self._filter_words()}{dot}{counts}", "dim"),
        ]
        if self.note:
            left.append((dot + self.note, "warning"))
        right: list[Span] = []
        if self.search:
            right = [(f"/{self.search}  {self.buffer.matches(self.search):,} lines", "info")]
        return left, right

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        last = max(len(self.buffer) - height, 0)
        if self.following:
            self._top = last
        self._top = min(max(self._top, 0), last)
        rank_width = len(str(max(self.buffer.ranks))) if self.buffer.ranks else 0
        lines = self.buffer.window(self._top, height)
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
        """`text` without what is moved out of sight at the left; a wide character is never cut in two."""
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

    def _filter_words(self) -> str:
        words = self.buffer.filter.words()
        return words.replace(" · ", " - ") if self.ascii_only else words

    # Moving.

    def _hold(self) -> None:
        """Stop following; the newest line in view is marked."""
        if self.following:
            self.following = False
            self._cursor = max(len(self.buffer) - 1, 0)

    def _mark(self, index: int) -> None:
        self._cursor = min(max(index, 0), max(len(self.buffer) - 1, 0))
        height = self.body_size[1]
        if self._cursor < self._top:
            self._top = self._cursor
        elif self._cursor >= self._top + height:
            self._top = self._cursor - height + 1
        self.show()

    def _to_match(self, start: int, step: int) -> None:
        found = self.buffer.find(self.search, start, step)
        if found is None:
            self.app.notify(f"Nothing in view holds “{self.search}”.", markup=False, severity="warning")
            self.show()
            return
        self._hold()
        self._mark(found)

    def action_pause(self) -> None:
        if self.following:
            self._hold()
            self.show()
        else:
            self.action_bottom()

    def action_bottom(self) -> None:
        self.following, self._cursor = True, None
        self.show()

    def action_top(self) -> None:
        self._hold()
        self._mark(0)

    def action_move(self, step: int) -> None:
        self._hold()
        self._mark((self._cursor or 0) + step)

    def action_page(self, step: int) -> None:
        self.action_move(step * max(self.body_size[1] - 1, 1))

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
        self.action_move(3)
        if self._cursor == len(self.buffer) - 1:
            self.action_bottom()

    # What needs the screen.

    def action_search(self) -> None:
        self.post_message(self.SearchAsked())

    def action_next(self, step: int) -> None:
        if not self.search:
            self.action_search()
            return
        start = (len(self.buffer) if self._cursor is None else self._cursor) + step
        self._to_match(start, step)

    def action_filter(self) -> None:
        self.post_message(self.FilterAsked())

    def action_copy(self) -> None:
        if self._cursor is not None:
            lines = self.buffer.window(self._cursor, 1)
        else:
            lines = self.buffer.window(self._top, self.body_size[1])
        self.post_message(self.Copied("\n".join(line.text for line in lines), len(lines)))

    def action_open(self) -> None:
        at = self._cursor if self._cursor is not None else len(self.buffer) - 1
        for line in self.buffer.window(at, 1):
            self.post_message(self.Opened(line))
