"""The reader's position in a log: following its end, or at a marked line anywhere in the file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tui.widgets.log_buffer import KEPT, KEPT_OF_PIPE, WHOLE, LogBuffer, LogFilter
from tui.widgets.log_past import LogPast, Stretch
from tui.widgets.panel import Panel

if TYPE_CHECKING:
    from pathlib import Path

    from backends.megatron.events import LogLine


class LogMoves(Panel):
    """`add` appends lines; while the log is paused, the lines in view stay.

    The newest lines are in `buffer`. Of a log that is longer, every move away from its end is a move in its file (`past`).
    """

    def __init__(
        self, *, id: str | None = None, ascii_only: bool = False, buffer: LogBuffer | None = None
    ) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self.buffer = buffer or LogBuffer()
        self.past = LogPast(self)
        self.following = True
        self.caught_up = False  # whether the buffer's lines have the numbers that they have in the file
        self.search = ""
        self.note = ""  # what the follower says of the file ("truncated", "waiting for …")
        self._top = 0
        self._cursor: int | None = None  # marked line, while not following
        self._screen_row = 0  # where on the screen the next line that the file brings belongs
        self._owed = 0  # lines still to move when it comes
        self._shift = 0

    @property
    def _lines(self) -> LogBuffer | LogPast:
        """The lines in view come from here."""
        return self.past if len(self.past) else self.buffer

    @property
    def _deep(self) -> bool:
        """Whether moving reads the file, because it has lines that are not kept here."""
        whole = self.caught_up and self.buffer.total <= WHOLE
        return self.past.path is not None and (bool(len(self.past)) or not whole)

    def clear(self) -> None:
        """Remove all lines; the next ones replace them."""
        self.buffer.clear()
        if not len(self.past):
            self._top, self._cursor = 0, None

    def add(self, lines: Iterable[LogLine]) -> None:
        dropped = self.buffer.dropped
        self.buffer.add(lines)
        dropped = self.buffer.dropped - dropped
        if not self.following and dropped and not len(self.past):
            self._top = max(self._top - dropped, 0)
            self._cursor = None if self._cursor is None else max(self._cursor - dropped, 0)
        self.show()

    def restart(self, path: Path | None = None) -> None:
        """Start with another log; `path` is its file, if it has one."""
        self.past.look_into(path)
        self.caught_up = False
        self.buffer.kept = KEPT if path else KEPT_OF_PIPE
        self.buffer.clear()
        self.action_bottom()

    def let_through(self, wanted: LogFilter) -> None:
        """Show only lines that pass the filter, from the file too if they are not kept here."""
        self.action_bottom()
        self.buffer.let_through(wanted)
        if self._deep and wanted != LogFilter():
            self._hold()
            self._enter(None, self.body_size[1])
        self.show()

    def look_for(self, text: str) -> None:
        """Mark the newest line that holds `text`; an empty text ends the search."""
        self.search = text
        if text:
            self._to_match(None, -1)
        else:
            self.past.stop()
            self.show()

    def go_to(self, number: int) -> None:
        """Mark line `number`, whatever the filter."""
        if self.buffer.filter != LogFilter():
            self.buffer.let_through(LogFilter())
        if number <= self.past.before and self._deep:
            self.app.notify(
                "That line is gone: the log was truncated or replaced after it.",
                markup=False,
                severity="warning",
            )
            return
        self._hold()
        if self._deep:
            self._enter(number, self.body_size[1] // 2)
        else:
            self._mark(self.buffer.index_of(number))

    def _filter_words(self) -> str:
        words = self.buffer.filter.words()
        return words.replace(" · ", " - ") if self.ascii_only else words

    # Moving.

    def _hold(self) -> None:
        """Stop following; the newest line in view is marked."""
        if self.following:
            self.following = False
            self._cursor = max(len(self._lines) - 1, 0)

    def _mark(self, index: int) -> None:
        self._cursor = min(max(index, 0), max(len(self._lines) - 1, 0))
        height = max(self.body_size[1], 1)
        if self._cursor < self._top:
            self._top = self._cursor
        elif self._cursor >= self._top + height:
            self._top = self._cursor - height + 1
        self.show()

    def _go(self, step: int) -> None:
        """Mark the line `step` lines away, wherever it is kept."""
        self._hold()
        cursor = self._cursor or 0
        if not self._deep:
            self._mark(cursor + step)
        elif not len(self.past):
            marked = self.buffer.window(cursor, 1) if self.caught_up else []
            self._owed += step
            self._enter(marked[0].number if marked else None, cursor - self._top)
        else:
            inside = min(max(cursor + step, 0), len(self.past) - 1)
            self._owed += cursor + step - inside
            self._mark(inside)
            margin = 2 * self.body_size[1]
            if (step < 0 and inside < margin) or (step > 0 and inside >= len(self.past) - margin):
                self.past.extend(1 if step > 0 else -1, self.buffer.filter)

    def _enter(self, number: int | None, row: int) -> None:
        """Show the file around line `number` (None: its end), with that line in `row`."""
        self._screen_row = row
        self.past.enter(number, self.buffer.filter)
        self.show()

    def past_came(self, stretch: Stretch) -> None:
        owed, self._owed = self._owed, 0
        if stretch.mark is not None:
            self.following = False
            self._top, self._cursor = max(stretch.mark - self._screen_row, 0), stretch.mark
        else:
            self._top += stretch.above
            self._cursor = (self._cursor or 0) + stretch.above
        if owed and 0 <= self._cursor + (1 if owed > 0 else -1) < len(self.past):
            self._go(owed)
        else:
            self._mark(self._cursor)

    def past_missed(self) -> None:
        what = f"holds “{self.search}”" if self.search else f"passes “{self._filter_words()}”"
        self._owed = 0
        self.app.notify(f"No line of the log {what}.", markup=False, severity="warning")
        self.show()

    def past_failed(self, error: Exception) -> None:
        words = "it was truncated" if isinstance(error, EOFError) else str(error)
        self.app.notify(f"The log's older lines cannot be read: {words}.", markup=False, severity="warning")
        self.action_bottom()

    def _to_match(self, start: int | None, step: int) -> None:
        """Mark the next line from `start` on (None: from the newest) that holds the searched text."""
        if self._deep:
            marked = [] if start is None or not self.caught_up else self._lines.window(start, 1)
            self._screen_row = self.body_size[1] // 2
            self.past.find(self.search, marked[0].number if marked else None, step, self.buffer.filter)
            self.show()
            return
        found = self.buffer.find(self.search, len(self.buffer) - 1 if start is None else start + step, step)
        if found is None:
            self.past_missed()
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
        self.past.leave()
        self.following, self._cursor, self._owed = True, None, 0
        self.show()

    def action_top(self) -> None:
        self._hold()
        if self._deep:
            self._enter(self.past.before + 1, 0)
        else:
            self._mark(0)

    def action_move(self, step: int) -> None:
        self._go(step)

    def action_page(self, step: int) -> None:
        self._go(step * max(self.body_size[1] - 1, 1))
