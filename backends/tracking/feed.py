"""Reads a file of a run as batches of points. The file is the spool: what could not be sent is read again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backends.tracking.points import Point, Row

MOST = 1000  # metrics in one call, MLflow's limit
CHUNK = 2**20  # bytes
AHEAD = 500  # rows that are read ahead of sending


class Points(Protocol):
    """Turns the bytes of a file into rows."""

    def feed(self, data: bytes) -> list[Row]: ...
    def finish(self) -> list[Row]: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """The points to send in one call: of the lines after the batch before, up to line `last`."""

    feed: str
    last: int
    points: tuple[Point, ...]


class Feed:
    """The rows of one file after line `sent`. `name`: of the tag that records at the server how far it came."""

    def __init__(self, name: str, path: Path, points: Points) -> None:
        self.name = name
        self.path = path
        self.points = points
        self.sent = 0
        self.newest = 0  # ms since the epoch, of the newest point
        self._position = 0
        self._rows: deque[Row] = deque()

    def fill(self) -> None:
        """Read more, unless enough rows wait. A file that cannot be read has nothing new."""
        while len(self._rows) < AHEAD:
            try:
                with self.path.open("rb") as file:
                    file.seek(self._position)
                    data = file.read(CHUNK)
            except OSError:
                return
            if not data:
                return
            self._position += len(data)
            self._take(self.points.feed(data))

    def finish(self) -> None:
        """The file is complete: read its last line even without a newline. Call it after `fill` brought nothing new."""
        self._take(self.points.finish())

    def _take(self, rows: list[Row]) -> None:
        for row in rows:
            self.newest = max(self.newest, row.points[-1].time if row.points else 0)
            if row.line > self.sent:
                self._rows.append(row)

    @property
    def waiting(self) -> int:
        """The number of points that were read and not yet sent."""
        return sum(len(row.points) for row in self._rows)

    def batch(self) -> Batch | None:
        """The rows that fit into one call, again and again until `done`; None if nothing waits."""
        points: list[Point] = []
        last = 0
        for row in self._rows:
            if points and len(points) + len(row.points) > MOST:
                break
            points += row.points
            last = row.line
        return Batch(self.name, last, tuple(points)) if last else None

    def start_after(self, line: int) -> None:
        """The server has all points up to `line`."""
        self.sent = line
        while self._rows and self._rows[0].line <= line:
            self._rows.popleft()

    done = start_after
