"""A program in a pseudo-terminal, with the time at which each byte arrived: for the figures of tests/bench."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

TOP = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
# A user's own settings; and an installed program has its modules compiled.
NOT_INHERITED = ("TEXTUAL", "MDK_", "NO_COLOR", "PYTHONDONTWRITEBYTECODE")
MDK_TUI = (sys.executable, "-c", "from tui.cli import main; main()")

BARE_APP = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self): yield Static("painted")
Bare().run()
"""


class Terminal:
    """Runs `argv` in a terminal of `columns` × `rows`; a thread reads what it writes, so that it never has to wait."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        columns: int = 120,
        rows: int = 36,
        environment: Mapping[str, str] | None = None,
        folder: Path = TOP,
    ) -> None:
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
        inherited |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", **(environment or {})}
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            argv, stdin=other, stdout=other, stderr=other, cwd=folder, env=inherited, start_new_session=True
        )
        os.close(other)
        self._main = main
        self._changed = threading.Condition()
        self._data = bytearray()
        self._arrivals: list[tuple[float, int]] = []  # time, length of the data then
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        with self._changed:
            return len(self._data)

    def send(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def wait_for(self, text: str, *, after: int = 0, timeout: float = 20.0) -> float:
        """Wait until `text` was written at or beyond byte `after`; the time (monotonic) at which it arrived.

        Raises TimeoutError with the end of what was written.
        """
        wanted = text.encode()
        return self._wait(lambda data: data.find(wanted, after), timeout, repr(text))

    def quiet(self, seconds: float = 0.7, timeout: float = 20.0) -> None:
        """Wait until nothing was written for `seconds`."""
        limit = time.monotonic() + timeout
        with self._changed:
            while (left := self._last() + seconds - time.monotonic()) > 0 and time.monotonic() < limit:
                self._changed.wait(left)

    def since(self, start: int) -> bytes:
        """What was written from byte `start` on."""
        with self._changed:
            return bytes(self._data[start:])

    def arrival(self, byte: int) -> float:
        """When (monotonic) the byte with that number arrived."""
        with self._changed:
            return self._arrivals[bisect_right(self._arrivals, byte, key=lambda arrival: arrival[1])][0]

    def cpu(self) -> float:
        """CPU seconds of the program itself so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def close(self) -> None:
        """End the program and whatever is left of its session."""
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(3)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(2)

    def _last(self) -> float:
        return self._arrivals[-1][0] if self._arrivals else self.started

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._main, 1 << 16)
            except OSError:
                data = b""
            with self._changed:
                if data:
                    self._data += data
                    self._arrivals.append((time.monotonic(), len(self._data)))
                self._ended = not data
                self._changed.notify_all()
            if not data:
                os.close(self._main)
                return

    def _wait(self, find: Callable[[bytearray], int], timeout: float, what: str) -> float:
        limit = time.monotonic() + timeout
        with self._changed:
            while (found := find(self._data)) < 0:
                left = limit - time.monotonic()
                if left <= 0 or self._ended:
                    raise TimeoutError(
                        f"{what} was not written within {timeout} s; the end: {bytes(self._data[-300:])!r}"
                    )
                self._changed.wait(left)
        return self.arrival(found)


def table(title: str, rows: Sequence[tuple[str, str, str]]) -> None:
    """Print what was measured, beside what was asked for."""
    print(f"\n{title}")
    width = max(len(name) for name, _, _ in rows)
    for name, value, wanted in rows:
        print(f"  {name.ljust(width)}  {value:>14}   {wanted}")
