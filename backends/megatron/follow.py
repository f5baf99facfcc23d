"""Follows a log: turns its bytes into a record and display lines as they arrive.

A `Follower` runs in a thread of its own. It reads the tail of a long file first, so that the newest values are there at
once. At the same time it reads the file from the start; when that has caught up, its record replaces the first one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.megatron.events import LogLine
from backends.megatron.folding import MOST, Folder
from backends.megatron.parser import Parser
from backends.megatron.record import Record
from backends.megatron.sources import CHUNK, BytesSource, FileSource, LogSource, PipeSource

__all__ = ["BytesSource", "FileSource", "Follower", "LogSource", "PipeSource", "Update"]

TAIL = CHUNK  # bytes of a long file that are read first
STEP = 2**19  # bytes of the history in one step; the parser holds Python's lock for about 10 ms
SETTLE = 1.0  # s of silence after which held-back errors and an unfinished line are shown
CUT = "The log was truncated or replaced; what was read before is kept."


@dataclass(frozen=True, slots=True)
class Update:
    """What changed.

    `lines`: at most 200 display lines, new or with a new count. `reset`: they replace all lines shown before, because their
    numbers are known now. `record`: the one to read from now on. `caught_up`: nothing is left to read. `ended`: the log
    has ended. `note`: a sentence for the user. `before`: how many lines the files had that this file replaced.
    """

    lines: tuple[LogLine, ...]
    record: Record
    caught_up: bool
    ended: bool = False
    note: str | None = None
    reset: bool = False
    before: int = 0


class Reading:
    """One pass through a log: a parser that fills a record, and a folder that makes display lines."""

    def __init__(self, first_line: int = 1) -> None:
        self.record = Record()
        self.before = 0  # lines read before the log was last truncated or replaced
        self.folder = Folder(first_line)
        self.parser = Parser()

    def feed(self, data: bytes) -> None:
        """Put the values of `data` into the record. `folder` makes the display lines of the same bytes."""
        events = self.parser.feed(data)
        with self.record.lock:
            self.record.apply(events)

    def settle(self) -> tuple[bool, list[LogLine]]:
        """The log pauses: show errors that are held back, and a last line without a newline.

        Returns whether the record changed, and the display lines.
        """
        events = self.parser.settle()
        pending = self.parser.pending_errors()
        with self.record.lock:
            changed = bool(events) or pending != self.record.pending
            self.record.apply(events)
            self.record.pending = pending
            self.record.version += changed
        return changed, self.folder.settle()

    def begin_anew(self) -> list[LogLine]:
        """The log was truncated or replaced: another attempt begins. Returns the last line before it, if it had no newline."""
        lines = self.finish()
        self.before = seen = self.parser.lines
        with self.record.lock:
            self.record.begin_attempt(seen + 1)
        self.parser = Parser()
        self.parser.lines = seen
        return lines

    def finish(self) -> list[LogLine]:
        events = self.parser.finish()
        with self.record.lock:
            self.record.pending = []
            self.record.apply(events)
        return self.folder.finish()


class History:
    """Reads a long file from its start until it has caught up with a source that began at `tail`."""

    def __init__(self, path: Path, tail: int) -> None:
        self.reading = Reading()
        self.lines: dict[int, LogLine] = {}  # from `tail` on
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._tail = tail
        self._position = 0

    def advance(self, until: int) -> bool:
        """Read one step, at most up to byte `until`; whether more is left before it. Raises EOFError if the file was truncated."""
        before_tail = self._position < self._tail
        stop = min(until, self._tail) if before_tail else until
        data = os.pread(self._descriptor, min(STEP, stop - self._position), self._position)
        if not data and self._position < stop:
            raise EOFError
        self._position += len(data)
        self.reading.feed(data)
        if before_tail:
            self.reading.folder.lines = self.reading.parser.lines
        else:
            self.lines.update((line.number, line) for line in self.reading.folder.feed(data))
        return self._position < until

    def close(self) -> None:
        os.close(self._descriptor)


class Follower:
    """Reads one source until it ends or is closed, and fills records. Iterate `updates` in a thread of its own."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._reading = Reading()
        self._history: History | None = None
        self._cut = source.cut
        self._trouble: str | None = None
        self._silent = False
        self.closed = False

    @property
    def record(self) -> Record:
        """The record to read now. It is replaced when the history of a long log has caught up."""
        return self._reading.record

    def close(self) -> None:
        """End `updates` soon. Safe from any thread."""
        self.closed = True
        self._source.close()

    def updates(self) -> Iterator[Update]:
        self._begin()
        try:
            while (data := self._source.read(0.0 if self._history else SETTLE)) != b"":
                if data is None:
                    yield from self._quiet()
                else:
                    yield from self._take(data)
                yield from self._backfill()
            if not self.closed:
                yield from self._update(self._reading.finish(), caught_up=True, ended=True)
        finally:
            self._drop_history()

    def _begin(self) -> None:
        if isinstance(self._source, FileSource) and (tail := self._source.skip_to_tail(TAIL)):
            self._history = History(self._source.path, tail)

    def _take(self, data: bytes) -> Iterator[Update]:
        self._silent = False
        lines: list[LogLine] = []
        note = None
        if self._source.cut != self._cut:
            self._cut, note = self._source.cut, CUT
            self._drop_history()
            lines = self._reading.begin_anew()
        self._reading.feed(data)
        if self._history and not self._reading.folder.lines:
            # Show the newest values of a long log before its lines are ready.
            yield Update((), self.record, caught_up=False)
        lines += self._reading.folder.feed(data)
        yield from self._update(lines, caught_up=len(data) < CHUNK and not self._history, note=note)

    def _quiet(self) -> Iterator[Update]:
        """No data arrived: show once what is held back, and say why nothing can be read."""
        trouble, changed, lines = self._source.trouble, False, list[LogLine]()
        if not self._silent and self._history is None:
            self._silent = True
            changed, lines = self._reading.settle()
        if changed or lines or trouble != self._trouble:
            yield from self._update(lines, caught_up=self._history is None, note=trouble)
        self._trouble = trouble

    def _backfill(self) -> Iterator[Update]:
        """Read a step of the history. When it has caught up, its record replaces the present one."""
        if self._history is None or not isinstance(self._source, FileSource):
            return
        if self._source.cut != self._cut:
            self._drop_history()
            return
        try:
            if self._history.advance(self._source.position):
                return
        except (EOFError, OSError):
            self._drop_history()
            return
        self._reading = self._history.reading
        lines = [line for _, line in sorted(self._history.lines.items())]
        self._drop_history()
        yield from self._update(lines, caught_up=True, reset=True)

    def _drop_history(self) -> None:
        if self._history is not None:
            self._history.close()
            self._history = None

    def _update(
        self,
        lines: list[LogLine],
        *,
        caught_up: bool,
        ended: bool = False,
        note: str | None = None,
        reset: bool = False,
    ) -> Iterator[Update]:
        """Updates of at most `MOST` lines each. Only the last may be `caught_up` and `ended`, only the first resets."""
        starts = range(0, max(1, len(lines)), MOST)
        for start in starts:
            last = start == starts[-1]
            part = tuple(lines[start : start + MOST])
            yield Update(
                part, self.record, caught_up and last, ended and last, note, reset, self._reading.before
            )
            note, reset = None, False
