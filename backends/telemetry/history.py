"""telemetry.jsonl: written by the supervisor of a run, read by screens on any host that sees the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from backends.telemetry.readings import Snapshot
from backends.telemetry.wire import decode_line, encode

INTERVAL = 15.0  # s; with eight GPUs about 2 KB a line, 12 MB a day
TAIL = 1 << 18  # bytes of an old file that are read at first


class SnapshotSource(Protocol):
    """Where snapshots come from: a Collector, or a test."""

    def next(self, timeout: float | None = None) -> Snapshot | None: ...
    def close(self) -> None: ...


class TelemetryRecorder:
    """Appends this node's snapshots to a file. For a loop that calls `step` now and then (twice a second, say)."""

    def __init__(self, path: Path, source: SnapshotSource) -> None:
        self._path = path
        self._source = source

    def step(self) -> dict[str, Any] | None:
        """Write the snapshot that is due, if one is, and return its line. Never waits for the driver.

        A line that cannot be written is lost, and the file as it was: telemetry must not harm a run.
        """
        snapshot = self._source.next(timeout=0)
        if snapshot is None:
            return None
        line = _without_none(encode(snapshot))
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        except OSError:
            return None
        return line

    def close(self) -> None:
        self._source.close()


class TelemetryFile:
    """Follows a telemetry.jsonl that somebody else may be writing, on a shared disk perhaps."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset: int | None = None

    def read(self) -> list[Snapshot]:
        """The snapshots since the last call, oldest first (at first: of the file's last 256 KB).

        A missing or unreadable file has none; half-written and foreign lines are passed over.
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
        return [snapshot for line in complete.splitlines() if (snapshot := decode_line(line)) is not None]


def newest_by_host(snapshots: list[Snapshot]) -> dict[str, Snapshot]:
    """The last snapshot of each node, in the order in which the nodes first spoke."""
    newest: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        newest[snapshot.host.host] = snapshot
    return newest


def _without_none(value: Any) -> Any:
    """JSON without the keys that say nothing: half the bytes."""
    if isinstance(value, dict):
        return {key: _without_none(entry) for key, entry in value.items() if entry is not None}  # pyright: ignore
    if isinstance(value, list | tuple):
        return [_without_none(entry) for entry in value]  # pyright: ignore
    return value
