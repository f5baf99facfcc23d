"""Following a log: a file that grows, is cut, replaced, or not there yet; a pipe; bytes in a test.

A `Follower` lives in a thread of its own. Of a long log it reads the tail first, so that the newest values are there at
once, then the whole from the start; when that has caught up, the record of the whole takes over.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backends.megatron.events import LogLine
from backends.megatron.folding import Folder
from backends.megatron.parser import Parser
from backends.megatron.record import Record

CHUNK = 4 * 2**20  # bytes a reading, and the tail that is read first
QUICK, SLOW = 0.05, 0.5  # s between two looks at a file: while it grows, and when it has long been quiet
SETTLE = 1.0  # s of silence after which a held-back error is shown


class LogSource(Protocol):
    """Where log bytes come from: a live file, a pipe, a test."""

    def read(self, timeout: float) -> bytes | None:
        """The next bytes; None when none came within `timeout` s; b"" when the log ended or `close` was called."""
        ...

    def close(self) -> None:
        """Make a `read` in progress return soon. Safe from any thread."""
        ...


class FileSource:
    """A file, followed by looking at it (inotify says nothing of writers on other hosts).

    `cut` counts how often the file was truncated or replaced: what comes after is a new beginning.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self.cut = 0
        self._start = start
        self._descriptor: int | None = None
        self._inode: tuple[int, int] | None = None
        self._position = start
        self._pause = QUICK
        self._closed = threading.Event()

    def size(self) -> int:
        """Bytes in the file now; 0 when it is not there."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def read(self, timeout: float) -> bytes | None:
        waited = 0.0
        while not self._closed.is_set():
            data = self._more()
            if data:
                self._pause = QUICK
                return data
            if waited >= timeout:
                return None
            step = min(self._pause, timeout - waited)
            self._closed.wait(step)
            waited += step
            self._pause = min(SLOW, self._pause * 1.5)
        self._release()
        return b""

    def close(self) -> None:
        self._closed.set()

    def _more(self) -> bytes:
        try:
            stat = self.path.stat()
        except OSError:
            return self._rest()  # removed: what the old file still holds is read
        if self._descriptor is None or (stat.st_dev, stat.st_ino) != self._inode:
            rest = self._rest()
            return rest or self._open()
        if stat.st_size < self._position:
            self.cut += 1
            self._position = 0
        return self._rest() if stat.st_size > self._position else b""

    def _rest(self) -> bytes:
        if self._descriptor is None:
            return b""
        data = os.pread(self._descriptor, CHUNK, self._position)
        self._position += len(data)
        return data

    def _open(self) -> bytes:
        replaced = self._descriptor is not None
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        self._release()
        stat = os.fstat(descriptor)
        self._descriptor, self._inode = descriptor, (stat.st_dev, stat.st_ino)
        if replaced:
            self.cut += 1
            self._position = 0
        return self._rest()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class PipeSource:
    """A pipe or terminal, by its descriptor; the log ends when its writers are gone."""

    cut = 0

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wake_read, self._wake_write = os.pipe()
        self._closed = threading.Event()

    def size(self) -> int:
        return 0

    def read(self, timeout: float) -> bytes | None:
        if self._closed.is_set():
            return b""
        ready, _, _ = select.select([self._descriptor, self._wake_read], [], [], timeout)
        if self._wake_read in ready or self._closed.is_set():
            return b""
        return os.read(self._descriptor, CHUNK) if ready else None

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            os.write(self._wake_write, b".")


class BytesSource:
    """A log that is all there: it ends after its last byte."""

    cut = 0

    def __init__(self, content: bytes, chunk: int = CHUNK) -> None:
        self._content, self._chunk = content, chunk
        self._position = 0

    def size(self) -> int:
        return 0

    def read(self, timeout: float) -> bytes | None:
        data = self._content[self._position : self._position + self._chunk]
        self._position += len(data)
        return data

    def close(self) -> None:
        self._position = len(self._content)


@dataclass(frozen=True, slots=True)
class Update:
    """What changed. `lines`: display lines, new or with another count. `record` to read now; `caught_up`: nothing is left to read."""

    lines: tuple[LogLine, ...]
    record: Record
    caught_up: bool
    ended: bool = False
    note: str | None = None


class Follower:
    """Reads one source to its end, or until closed, and fills records. Iterate `updates` in a thread of its own."""

    def __init__(self, source: FileSource | PipeSource | BytesSource) -> None:
        self.record = Record()
        self._source = source
        self._parser = Parser()
        self._folder = Folder()
        self._cut = source.cut
        self._silent = False
        self.closed = False

    def close(self) -> None:
        """End `updates` soon. Safe from any thread."""
        self.closed = True
        self._source.close()

    def updates(self) -> Iterator[Update]:
        whole = self._source.size()
        shown_from = 0
        if isinstance(self._source, FileSource) and whole > 2 * CHUNK:
            preview, lines = _tail(self._source.path, whole)
            shown_from = whole
            yield Update(tuple(lines), preview, caught_up=False)
            yield from self._backfill(preview, shown_from)
        while not self.closed:
            data = self._source.read(SETTLE)
            if data is None:
                if errors := self._settle():
                    yield errors
                continue
            note = self._after_cut()
            if not data:
                break
            self._silent = False
            self._apply(data)
            yield Update(tuple(self._folder.feed(data)), self.record, caught_up=len(data) < CHUNK, note=note)
        if not self.closed:
            yield self._end()

    def _backfill(self, preview: Record, whole: int) -> Iterator[Update]:
        """Read up to where the tail ended; the preview stays in sight until then."""
        done = 0
        while done < whole and not self.closed:
            data = self._source.read(SETTLE)
            if data is None or not data or self._source.cut != self._cut:
                break
            self._apply(data[: whole - done])
            extra = data[whole - done :]
            done += len(data) - len(extra)
            self._folder.lines = self._parser.lines
            if extra:
                self._apply(extra)
                yield Update(tuple(self._folder.feed(extra)), self.record, caught_up=False)
        yield Update((), self.record, caught_up=True)

    def _apply(self, data: bytes) -> None:
        events = self._parser.feed(data)
        with self.record.lock:
            self.record.apply(events)

    def _after_cut(self) -> str | None:
        """The file began anew: what was read stays, and what comes is another attempt."""
        if self._source.cut == self._cut:
            return None
        self._cut = self._source.cut
        with self.record.lock:
            self.record.apply(self._parser.finish())
            self.record.begin_attempt()
        lines = self._parser.lines
        self._parser = Parser()
        self._parser.lines = lines
        return "The log was truncated or replaced; what was read before is kept."

    def _settle(self) -> Update | None:
        """After a silence, show errors that were held back for more ranks to report."""
        if self._silent:
            return None
        self._silent = True
        with self.record.lock:
            self.record.pending = self._parser.pending_errors()
            self.record.version += 1
        return Update((), self.record, caught_up=True)

    def _end(self) -> Update:
        with self.record.lock:
            self.record.pending = []
            self.record.apply(self._parser.finish())
        return Update(tuple(self._folder.finish()), self.record, caught_up=True, ended=True)


def _tail(path: Path, size: int) -> tuple[Record, list[LogLine]]:
    """The newest values and lines of a long file, from its last bytes."""
    with path.open("rb") as file:
        file.seek(max(0, size - CHUNK))
        data = file.read(CHUNK)
    data = data[data.find(b"\n") + 1 :]
    record, parser, folder = Record(), Parser(), Folder()
    record.apply(parser.feed(data))
    record.pending = parser.pending_errors()
    return record, folder.feed(data)
