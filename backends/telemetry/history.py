"""telemetry.jsonl: written by a run's supervisor, read by screens on any host that sees the folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from backends.telemetry.readings import Snapshot
from backends.telemetry.wire import decode_line, encode

INTERVAL = 15.0  # s; with eight GPUs about 2 KB a line, 12 MB a day
TAIL = 1 << 18  # bytes at the end of a file that are read first
WHOLE = 8 << 20  # bytes; of a longer file only samples are read
SAMPLES = 3000  # lines read of a long file: more than a plot has columns
LONGEST_LINE = 1 << 20  # bytes


class SnapshotSource(Protocol):
    """A source of snapshots: a Collector, or a test's own."""

    def next(self, timeout: float | None = None) -> Snapshot | None: ...
    def close(self) -> None: ...


class TelemetryRecorder:
    """Appends this node's snapshots to a file, for a loop that calls `look` about twice a second."""

    def __init__(self, path: Path, source: SnapshotSource) -> None:
        self._path = path
        self._source = source

    def look(self) -> None:
        """Write the snapshot that is due, if there is one. Never waits for the driver.

        A line that cannot be written is dropped: telemetry must not harm a run.
        """
        snapshot = self._source.next(timeout=0)
        if snapshot is None:
            return
        line = json.dumps(_without_none(encode(snapshot)), separators=(",", ":")) + "\n"
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            return

    def close(self) -> None:
        self._source.close()


class TelemetryFile:
    """Follows a telemetry.jsonl while another process, perhaps on another host, writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset: int | None = None

    def history(self) -> list[Snapshot]:
        """All snapshots so far, oldest first; of a long file, evenly spaced samples. `read` continues after them."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                lines = list(_sampled(file, size)) if size > WHOLE else []
        except OSError:
            return []
        self._offset = size if lines else 0
        return _decoded(lines) if lines else self.read()

    def read(self) -> list[Snapshot]:
        """The snapshots since the last call, oldest first; in the first call those of the last 256 KB.

        A missing or unreadable file has none. Incomplete and foreign lines are skipped.
        """
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if self._offset is None or size < self._offset:
                    self._offset = max(size - TAIL, 0)
                file.seek(self._offset)
                data = file.read(size - self._offset)
        except OSError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return _decoded(complete.splitlines())


def _decoded(lines: Iterable[bytes]) -> list[Snapshot]:
    return [snapshot for line in lines if (snapshot := decode_line(line)) is not None]


def _sampled(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Whole lines at even distances, then the last lines. A distance ends within a line, so the next one is read."""
    for sample in range(SAMPLES):
        file.seek(sample * (size - TAIL) // SAMPLES)
        file.readline(LONGEST_LINE)
        yield file.readline(LONGEST_LINE)
    file.seek(size - TAIL)
    yield from file.read(TAIL).splitlines()[1:]


def newest_by_host(snapshots: list[Snapshot]) -> dict[str, Snapshot]:
    """The last snapshot of each node, ordered by the first snapshot of each."""
    newest: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        newest[snapshot.host.host] = snapshot
    return newest


def _without_none(value: Any) -> Any:
    """JSON without the keys that are None, which halves its size."""
    if isinstance(value, dict):
        return {key: _without_none(entry) for key, entry in value.items() if entry is not None}  # pyright: ignore
    if isinstance(value, list | tuple):
        return [_without_none(entry) for entry in value]  # pyright: ignore
    return value
