"""What else a supervisor does while it looks at its job. A sidecar never harms the job: what it cannot do, it leaves."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Protocol

from backends.telemetry.collector import Collector
from backends.telemetry.wire import encode

INTERVAL = 5.0  # s between two lines of telemetry.jsonl


class Sidecar(Protocol):
    def look(self) -> None:
        """Called at each look at the job; must not wait."""
        ...

    def close(self) -> None: ...


class Telemetry:
    """Appends what the GPUs and the host say to `telemetry.jsonl`, one object a line."""

    def __init__(self, file: Path, collector: Collector) -> None:
        self._file = file
        self._collector = collector

    def look(self) -> None:
        snapshot = self._collector.next(timeout=0)
        if snapshot is None:
            return
        line = json.dumps(encode(snapshot), separators=(",", ":"), default=str)
        with contextlib.suppress(OSError), self._file.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def close(self) -> None:
        self._collector.close()
