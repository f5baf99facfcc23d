"""Follows TensorBoard's event files as a log is followed: fills a record, and yields lines about what was read.

Each start of Megatron-LM writes a new file. So the files of a folder are read in the order of the times in their names,
and the newest is followed until a newer one appears.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from backends.megatron.events import Argument, Event, LogLine
from backends.megatron.follow import SETTLE, Update
from backends.megatron.record import Record
from backends.megatron.sources import FileSource
from backends.text import clean_line
from backends.tracking.event_files import EventReader
from backends.tracking.event_paths import event_files
from backends.tracking.event_record import Translation

SHOWN = 200  # lines in one update


class EventFollower:
    """Like a `Follower` of a log; iterate `updates` in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.record = Record()
        self.path = path  # the file that is read now
        self.closed = False
        self._wanted = path
        self._source: FileSource | None = None
        self._reader = EventReader()
        self._translation = Translation()
        self._done: set[Path] = set()
        self._lines = 0
        self._torn = 0

    def close(self) -> None:
        """End `updates` soon. Safe from any thread."""
        self.closed = True
        if self._source is not None:
            self._source.close()

    def updates(self) -> Iterator[Update]:
        waiting = False
        while not self.closed:
            if self._source is None and (lines := self._open_next()):
                yield Update(tuple(lines), self.record, caught_up=False)
            source = self._source
            data = source.read(SETTLE if waiting else 0.0) if source else b""
            if data:
                waiting = False
                yield from self._shown(self._take(data), caught_up=False)
            elif data is None and self._next() is not None:
                waiting = False
                yield from self._shown(self._end_file(), caught_up=False)
            elif data is None and not waiting:
                waiting = True
                trouble = source.trouble if source else None
                yield from self._shown(self._apply(self._translation.settle()), caught_up=True, note=trouble)
            elif source is None:
                return  # nothing to read at all

    def _next(self) -> Path | None:
        return next((path for path in event_files(self._wanted) if path not in self._done), None)

    def _open_next(self) -> list[LogLine]:
        path = self._next()
        if path is None:
            return []
        self._done.add(path)
        self.path = path
        self._reader, self._translation, self._torn = EventReader(), Translation(self._translation.rows), 0
        with self.record.lock:
            self.record.begin_attempt(self._translation.rows + 1 if self.record.segments else 0)
        self._source = FileSource(path)
        if self.closed:
            self._source.close()
        return [self._line("info", f"event file {path.name}")]

    def _take(self, data: bytes) -> list[LogLine]:
        self._reader.feed(data)
        scalars, texts = self._reader.take()
        return self._apply(self._translation.add(scalars, texts)) + self._damage()

    def _end_file(self) -> list[LogLine]:
        self._reader.finish()
        scalars, texts = self._reader.take()
        events = [*self._translation.add(scalars, texts), *self._translation.settle()]
        if self._source is not None:
            self._source.close()
            self._source.read(0.0)  # closes its descriptor
        self._source = None
        return self._apply(events) + self._damage()

    def _apply(self, events: list[Event]) -> list[LogLine]:
        with self.record.lock:
            self.record.apply(events)
            if self.record.iteration is not None:
                self.record.train_iters = self._translation.train_iters
        return [self._line("info", f"{e.name} {e.value}") for e in events if isinstance(e, Argument)]

    def _damage(self) -> list[LogLine]:
        """Lines about the torn bytes found since the last call."""
        new, self._torn = self._reader.torn[self._torn :], len(self._reader.torn)
        return [
            self._line(
                "warning",
                f"{self.path.name}: {t.length} bytes from byte {t.offset} on are not a whole record and are skipped",
            )
            for t in new
        ]

    def _line(self, level: Literal["info", "warning"], text: str) -> LogLine:
        self._lines += 1
        return LogLine(self._lines, None, level, clean_line(text))

    def _shown(self, lines: list[LogLine], *, caught_up: bool, note: str | None = None) -> Iterator[Update]:
        starts = range(0, max(1, len(lines)), SHOWN)
        for start in starts:
            last = start == starts[-1]
            yield Update(tuple(lines[start : start + SHOWN]), self.record, caught_up and last, note=note)
