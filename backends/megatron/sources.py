"""Sources of log bytes: a file that may grow, be truncated, be replaced or not exist yet; a pipe; bytes in a test."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path
from typing import Protocol

CHUNK = 4 * 2**20  # bytes a reading, at most
LARGEST_PIPE = 2**20  # bytes
LINE = 2**16  # bytes in which a line is expected to end
QUICK, SLOW = 0.05, 0.5  # s between two looks at a file: while it grows, and after a long pause


class LogSource(Protocol):
    """Where log bytes come from: a live file, a pipe, a test."""

    cut: int  # how often the log was truncated or replaced; then reading starts again at the beginning
    trouble: str | None  # why nothing can be read at the moment, as a sentence

    def read(self, timeout: float) -> bytes | None:
        """The next bytes; None if none arrived within `timeout` s; b"" if the log ended or `close` was called.

        Only one thread may read. After b"" there is nothing more to read.
        """
        ...

    def close(self) -> None:
        """Make a `read` in progress return soon. Safe from any thread, and more than once."""
        ...


class FileSource:
    """A file, followed by polling, because inotify does not see writers on other hosts. It never ends by itself.

    All bytes written within `QUICK` s are returned together, so that a flood takes a few reads a second, not one a line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = 0
        self.trouble: str | None = None
        self.position = 0  # bytes of the file that were read
        self._descriptor: int | None = None
        self._inode: tuple[int, int] | None = None
        self._pause = QUICK
        self._more_waits = True
        self._closed = threading.Event()

    def skip_to_tail(self, size: int) -> int:
        """Start at the first line that begins in the last `size` bytes. Returns its position (0: nothing is skipped).

        Call it only before the first `read`.
        """
        if not self.path.is_file():
            return 0
        try:
            with self.path.open("rb", buffering=0) as file:
                start = os.fstat(file.fileno()).st_size - size
                if start > 0:
                    file.seek(start)
                    self.position = start + file.read(min(size, LINE)).find(b"\n") + 1
        except OSError:
            pass  # `read` says what is wrong
        return self.position

    def read(self, timeout: float) -> bytes | None:
        waited = 0.0 if self._more_waits else self._wait(QUICK, timeout)
        while not self._closed.is_set():
            data = self._look()
            if data:
                self._pause = QUICK
                self._more_waits = len(data) == CHUNK
                return data
            if waited >= timeout:
                return None
            waited += self._wait(self._pause, timeout - waited)
            self._pause = min(SLOW, self._pause * 1.5)
        self._release()
        return b""

    def close(self) -> None:
        self._closed.set()

    def _wait(self, pause: float, most: float) -> float:
        self._closed.wait(min(pause, most))
        return min(pause, most)

    def _look(self) -> bytes:
        try:
            stat = self.path.stat()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            reason = "is not there (yet)" if missing else f"cannot be read: {error.strerror}"
            return self._rest() or self._nothing(reason)  # the rest of a removed file is still read
        if self._descriptor is None or (stat.st_dev, stat.st_ino) != self._inode:
            return self._rest() or self._open()
        if stat.st_size < self.position:
            self.cut += 1
            self.position = 0
        return self._rest() if stat.st_size > self.position else b""

    def _nothing(self, reason: str) -> bytes:
        self.trouble = f"{self.path} {reason}."
        return b""

    def _rest(self) -> bytes:
        if self._descriptor is None:
            return b""
        try:
            data = os.pread(self._descriptor, CHUNK, self.position)
        except OSError as error:
            return self._nothing(f"cannot be read: {error.strerror}")
        self.trouble = None
        self.position += len(data)
        return data

    def _open(self) -> bytes:
        try:
            # Non-blocking, because opening a named pipe waits for its writer, and `close` could not end that wait.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return self._nothing(f"cannot be read: {error.strerror}")
        if self._inode is not None:
            self.cut += 1
            self.position = 0
        self._release()
        stat = os.fstat(descriptor)
        self._descriptor, self._inode = descriptor, (stat.st_dev, stat.st_ino)
        return self._rest()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class PipeSource:
    """A pipe or terminal, by its descriptor. The log ends when all writers have closed it. The caller closes the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.cut = 0
        self.trouble: str | None = None
        self._descriptor = descriptor
        self._woken, self._wake = os.pipe()
        self._closed = False
        self._ended = False
        self._lock = threading.Lock()  # `close` writes to a pipe that the reader closes

    def read(self, timeout: float) -> bytes | None:
        if self._ended or not self._ready(timeout):
            return self._end() if self._ended or self._closed else None
        pieces: list[bytes] = []
        size = 0
        until = time.monotonic() + QUICK
        while size < CHUNK:
            piece = self._piece()
            if not piece:
                self._ended = True
                break
            pieces.append(piece)
            size += len(piece)
            # A pipe holds 64 KiB, so a flood arrives in many pieces.
            if not self._ready(max(0.0, until - time.monotonic())):
                break
        return b"".join(pieces) or self._end()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.write(self._wake, b".")

    def _ready(self, timeout: float) -> bool:
        if self._closed:
            return False
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(1000 * timeout)}
        return self._descriptor in ready and self._woken not in ready

    def _piece(self) -> bytes:
        try:
            return os.read(self._descriptor, LARGEST_PIPE)
        except OSError:  # the terminal was closed
            return b""

    def _end(self) -> bytes:
        """Nothing more can be read: close the wake-up pipe."""
        with self._lock:
            self._ended = True
            if self._woken >= 0:
                self._closed = True
                os.close(self._woken)
                os.close(self._wake)
                self._woken = self._wake = -1
        return b""


class BytesSource:
    """A complete log: it ends after its last byte."""

    def __init__(self, content: bytes, chunk: int = CHUNK) -> None:
        self.cut = 0
        self.trouble: str | None = None
        self._content, self._chunk = content, chunk
        self._position = 0

    def read(self, timeout: float) -> bytes | None:
        data = self._content[self._position : self._position + self._chunk]
        self._position += len(data)
        return data

    def close(self) -> None:
        self._position = len(self._content)
