"""A file of a run as batches of points. The file is the spool: what could not be sent is read from it again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backends.tracking.points import Point, Row

MOST = 1000  # metrics in one call, MLflow's limit
CHUNK = 2**20  # bytes
AHEAD = 500  # rows that are read before the first of them is sent


class Points(Protocol):
    """Makes rows of a file's bytes."""

    def feed(self, data: bytes) -> list[Row]: ...
    def finish(self) -> list[Row]: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Points to send in one call: all of the lines that follow the batch before, up to line `last`."""

    feed: str
    last: int
    points: tuple[Point, ...]


class Feed:
    """The rows of one file beyond line `sent`. `name` is that of the tag that tells the server how far it came."""

    def __init__(self, name: str, path: Path, points: Points) -> None:
        self.name = name
        self.path = path
        self.points = points
        self.sent = 0
        self.newest = 0  # ms since the epoch, of the newest point
        self._position = 0
        self._rows: deque[Row] = deque()

    def fill(self) -> None:
        """Read on, unless enough waits already. A file that cannot be read has nothing new."""
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
        """The file grows no more: its last line too, even if it has no end. After `fill` brought nothing new."""
        self._take(self.points.finish())

    def _take(self, rows: list[Row]) -> None:
        for row in rows:
            self.newest = max(self.newest, row.points[-1].time if row.points else 0)
            if row.line > self.sent:
                self._rows.append(row)

    @property
    def waiting(self) -> int:
        """Points that were read and not sent. What has not been read yet is not among them."""
        return sum(len(row.points) for row in self._rows)

    def batch(self) -> Batch | None:
        """As many rows as fit into one call; None when nothing waits. It stays until `done`."""
        points: list[Point] = []
        last = 0
        for row in self._rows:
            if points and len(points) + len(row.points) > MOST:
                break
            points += row.points
            last = row.line
        return Batch(self.name, last, tuple(points)) if last else None

    def start_after(self, line: int) -> None:
        """The server has all up to `line`."""
        self.sent = line
        while self._rows and self._rows[0].line <= line:
            self._rows.popleft()

    done = start_after
