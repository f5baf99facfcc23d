"""Snapshots of this node. A child process asks the driver, so a driver that hangs or crashes does not block the reader.

The child is `probe`; the host is read here. When the driver is silent for `Patience.quiet` seconds, the snapshots say so
in `gpu_note`. After `Patience.limit` the child is killed, and new ones are tried with growing pauses. While a child cannot
be killed (the kernel holds it), no other is started.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from backends.telemetry.host import HostProbe
from backends.telemetry.readings import GpuReading, Snapshot
from backends.telemetry.wire import decode_gpus, parse_json
from backends.text import clean_line

MAX_LINE = 4 << 20  # bytes; an answer of eight GPUs takes 4 KB


@dataclass(frozen=True, slots=True)
class Patience:
    """Times in s. `quiet`: silence that is reported; `limit`: silence after which the child is killed; `pause` to
    `longest_pause`: before the next child, doubling; `gone`: before a machine without GPUs is asked again; `host`: between
    two snapshots of such a machine."""

    quiet: float = 3.0
    limit: float = 30.0
    pause: float = 1.0
    longest_pause: float = 60.0
    gone: float = 300.0
    host: float = 5.0


class Collector:
    """Makes a snapshot of this node every `interval` s. `next` and `close` may be called from different threads.

    `command`: a program that prints the lines of the probe, such as the probe through ssh.
    """

    def __init__(
        self,
        interval: float = 1.0,
        *,
        command: Sequence[str] | None = None,
        patience: Patience | None = None,
        host: HostProbe | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        probe = (sys.executable, "-m", "backends.telemetry.probe", "--interval", str(interval))
        self._command = tuple(command or probe)
        self._interval = interval
        self._patience = patience or Patience()
        self._host = host or HostProbe()
        self._host.read()  # so that the first snapshot has a share of the CPU
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._closed = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._child: _Child | None = None
        self._stuck: subprocess.Popen[bytes] | None = None
        self._note: str | None = None
        self._gone = False
        self._failures = 0
        self._retry_at = self._due = clock()

    def snapshots(self) -> Iterator[Snapshot]:
        """Snapshots until `close`."""
        while (snapshot := self.next()) is not None:
            yield snapshot

    def next(self, timeout: float | None = None) -> Snapshot | None:
        """The next snapshot, after at most `timeout` s (0: do not wait). None: not there yet, or closed."""
        with self._lock:
            until = None if timeout is None else self._clock() + timeout
            while not self._closed:
                snapshot = self._advance()
                if snapshot is not None:
                    pause = max(self._patience.host, self._interval) if self._gone else self._interval
                    self._due = self._clock() + pause
                    return snapshot
                now = self._clock()
                if until is not None and now >= until:
                    return None
                self._wait(min(self._wake_time(), until or float("inf")) - now)
            return None

    def close(self) -> None:
        """End the child. A `next` in progress returns None soon."""
        if self._closed:
            return
        self._closed = True
        os.write(self._wake_writer, b"x")
        with self._lock:
            if self._child is not None:
                self._child.end()
                self._child = None
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _advance(self) -> Snapshot | None:
        """Read from the child without waiting. The snapshot that is due, or None."""
        now = self._clock()
        if self._child is None:
            self._start(now)
        if self._child is None:
            return self._snapshot() if now >= self._due else None
        answer = self._child.read()
        if answer is not None and answer.gpus is not None:
            self._failures, self._note, self._gone, self._child.heard = 0, None, False, now
            return self._snapshot(answer.gpus)
        if answer is not None or self._child.over:
            self._drop(now, answer)
            return self._snapshot()
        return self._silence(now, self._child)

    def _silence(self, now: float, child: _Child) -> Snapshot | None:
        silent = now - child.heard
        if silent >= self._patience.limit:
            self._drop(
                now,
                _Answer(note=f"The NVIDIA driver did not answer for {silent:.0f} s; it will be asked again."),
            )
            return self._snapshot()
        if silent >= self._interval + self._patience.quiet and now >= self._due:
            self._note = f"The NVIDIA driver has not answered for {silent:.0f} s."
            return self._snapshot()
        return None

    def _wake_time(self) -> float:
        """The time at which `_advance` has something to do even if the child stays silent."""
        if self._child is None:
            return min(self._due, max(self._retry_at, self._clock() + 0.01))
        heard = self._child.heard
        return min(
            max(heard + self._interval + self._patience.quiet, self._due), heard + self._patience.limit
        )

    def _wait(self, seconds: float) -> None:
        files = [self._wake_reader]
        if self._child is not None:
            files.append(self._child.output)
        select.select(files, [], [], min(max(seconds, 0.0), 3600.0))

    def _start(self, now: float) -> None:
        if self._stuck is not None and self._stuck.poll() is not None:
            self._stuck = None
        if now < self._retry_at or self._stuck is not None:
            return
        try:
            self._child = _Child(self._command, now)
        except OSError as error:
            self._pause(now, _Answer(note=f"The GPU probe could not be started: {error.strerror}."))

    def _drop(self, now: float, answer: _Answer | None) -> None:
        """End a child that failed, keep its note, and set the time of the next one."""
        child = cast("_Child", self._child)
        self._child = None
        status = child.end(grace=0.5 if child.over else 0.0)
        if status is None:
            self._stuck = child.process
        if answer is None:
            words = "ended" if status is None else f"ended with status {status}"
            answer = _Answer(note=f"The GPU probe {words}; it will be started again.")
        self._pause(now, answer)

    def _pause(self, now: float, answer: _Answer) -> None:
        self._note, self._gone = answer.note, answer.gone
        pause = min(self._patience.pause * 2**self._failures, self._patience.longest_pause)
        self._retry_at = now + (self._patience.gone if answer.gone else pause)
        self._failures = min(self._failures + 1, 30)

    def _snapshot(self, gpus: tuple[GpuReading, ...] = ()) -> Snapshot:
        return Snapshot(self._now(), self._host.read(), gpus, self._note)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A line of the child: `gpus`, or a `note` why there are none."""

    gpus: tuple[GpuReading, ...] | None = None
    note: str | None = None
    gone: bool = False


class _Child:
    """The probe's process. Reading neither blocks nor raises, and memory is bounded. `heard`: time of its last answer."""

    def __init__(self, command: Sequence[str], now: float) -> None:
        # The working folder is the package's: `-m` searches it first, and must not search the user's folder.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        self._pipe = cast("IO[bytes]", self.process.stdout)
        self.output = self._pipe.fileno()
        os.set_blocking(self.output, False)
        self.heard = now
        self.over = False
        self._rest = b""

    def read(self) -> _Answer | None:
        """The newest complete answer since the last call, or None. Sets `over` when the output has ended."""
        answer: _Answer | None = None
        while not self.over:
            try:
                data = os.read(self.output, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                answer = _answer(line) or answer
            self.over = not data or len(self._rest) > MAX_LINE
        return answer

    def end(self, grace: float = 0.0) -> int | None:
        """Wait `grace` s for its end, then kill it. Its status; None if it cannot be killed."""
        for pipe in (self.process.stdin, self._pipe):
            with contextlib.suppress(OSError):
                cast("IO[bytes]", pipe).close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(grace)
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(0.5)
        return None


def _answer(line: bytes) -> _Answer | None:
    """The answer in a line of the probe; None for other text, such as a library's warning."""
    value = parse_json(line)
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    if isinstance(fields.get("note"), str):
        return _Answer(note=clean_line(fields["note"], 500), gone=fields.get("gone") is True)
    if isinstance(fields.get("gpus"), list):
        return _Answer(gpus=decode_gpus(fields["gpus"]))
    return None
