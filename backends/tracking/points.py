"""Turns the files of a run into points for MLflow.

The same file always gives the same points, because times come from the file. So points that were sent can be recognised.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backends.megatron.alerts import SKIPPED, is_loss
from backends.megatron.events import Event, IterationBatch, Memory, Validation, Value
from backends.megatron.parser import Parser
from backends.megatron.record import ITERATION_MS, Record
from backends.megatron.segment import seconds_of
from backends.telemetry.readings import GpuReading, Snapshot
from backends.telemetry.wire import decode_line

REFUSED = re.compile(
    r"[^\w\-./ ]"
)  # MLflow refuses these in names; training_mlflow.patch leaves them out, too
LONGEST_NAME = 250
MOST_IN_LINE = 200  # points of one line; a hostile log has more
SYSTEM_INTERVAL = 30.0  # s between two readings of a host; eight GPUs are 40 points each time
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one metric. `time`: ms since the epoch."""

    key: str
    value: float
    step: int
    time: int


@dataclass(frozen=True, slots=True)
class Row:
    """The points of one line of a file, the first line being 1."""

    line: int
    points: tuple[Point, ...]


def allowed_name(name: str) -> str:
    """`name` as MLflow takes it: "throughput per GPU (TFLOP/s/GPU)" loses its brackets."""
    plain = REFUSED.sub("", name).strip()
    normal = posixpath.normpath(plain.strip("/"))  # "a//b" and "../a" are refused too
    return normal.replace("../", "").strip(". ")[:LONGEST_NAME] or "unnamed"


class LogPoints:
    """Points from a log of Megatron-LM. `began`: s since the epoch, from which times are counted if the log has none.

    `record` holds everything that the log says.
    """

    def __init__(self, began: float) -> None:
        self.record = Record()
        self._parser = Parser()
        self._time = int(1000 * began)
        self._iteration = 0
        self._names: dict[str, str] = {}

    def feed(self, data: bytes) -> list[Row]:
        return self._rows(self._parser.feed(data))

    def finish(self) -> list[Row]:
        return self._rows(self._parser.finish())

    def _rows(self, events: list[Event]) -> list[Row]:
        """Rows in the order of the lines. The parser yields many iterations at once, and what stood between them later."""
        self.record.apply(events)
        found = sorted(_lines(events), key=lambda entry: entry[0])
        return [row for _, event, i in found if (row := self._row_of(event, i)).points]

    def _row_of(self, event: IterationBatch | Validation | Memory, i: int) -> Row:
        if isinstance(event, IterationBatch):
            return self._iteration_row(event, i)
        if isinstance(event, Validation):
            step = self._iteration if event.iteration is None else event.iteration
            return self._row(
                event.line, [(f"{event.set} {n}", value) for n, value in event.values.items()], step
            )
        place = "memory" if event.rank is None else f"memory/rank {event.rank}"
        named = [(f"{place}/{name} MiB", value) for name, value in event.values.items()]
        return self._row(event.line, named, self._iteration if event.iteration is None else event.iteration)

    def _iteration_row(self, batch: IterationBatch, i: int) -> Row:
        skipped = batch.columns.get(SKIPPED)
        stamp = batch.times[i]
        self._pass_time(seconds_of(stamp) if stamp is not None else None, batch, i)
        self._iteration = batch.iterations[i]
        named = [
            (name, column[i])
            for name, column in batch.columns.items()
            if not (skipped and skipped[i] and column[i] == 0.0 and is_loss(name))  # the mean over no samples
        ]
        return self._row(batch.lines[i], named, self._iteration)

    def _pass_time(self, seconds: float | None, batch: IterationBatch, i: int) -> None:
        if seconds is not None:
            self._time = int(1000 * seconds)
            return
        took = batch.columns[ITERATION_MS][i] if ITERATION_MS in batch.columns else 0
        if isinstance(took, int | float) and 0 < took < 1e9:
            self._time += int(took * max(1, batch.iterations[i] - self._iteration))

    def _row(self, line: int, named: Sequence[tuple[str, Value]], step: int) -> Row:
        points = tuple(
            Point(self._allowed(name), _number(value), step, self._time)
            for name, value in named[:MOST_IN_LINE]
            if not isinstance(value, str)
        )
        return Row(line, points)

    def _allowed(self, name: str) -> str:
        if name not in self._names and len(self._names) < 10_000:
            self._names[name] = allowed_name(name)
        return self._names.get(name) or allowed_name(name)


def _lines(events: list[Event]) -> Iterator[tuple[int, IterationBatch | Validation | Memory, int]]:
    """(line, event, row in the event) of everything that has points."""
    for event in events:
        if isinstance(event, IterationBatch):
            for i, line in enumerate(event.lines):
                yield line, event, i
        elif isinstance(event, Validation) or (isinstance(event, Memory) and event.iteration is not None):
            yield event.line, event, 0


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class TelemetryPoints:
    """Points from telemetry.jsonl, with the names that MLflow shows as system metrics. The step is the line's number.

    One reading of each host is taken in `SYSTEM_INTERVAL` s. The names of all hosts but the first contain the host.
    """

    def __init__(self) -> None:
        self._line = 0
        self._rest = b""
        self._taken: dict[str, float] = {}

    def feed(self, data: bytes) -> list[Row]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        rows: list[Row] = []
        for line in lines:
            self._line += 1
            snapshot = decode_line(line)
            if snapshot is not None and self._is_due(snapshot):
                rows.append(Row(self._line, tuple(self._points(snapshot))[:MOST_IN_LINE]))
        return rows

    def finish(self) -> list[Row]:
        return []

    def _is_due(self, snapshot: Snapshot) -> bool:
        name, last = snapshot.host.host, self._taken.get(snapshot.host.host)
        if last is not None and 0 <= snapshot.time - last < SYSTEM_INTERVAL:
            return False
        if last is None and len(self._taken) >= 10_000:
            return False
        self._taken[name] = snapshot.time
        return True

    def _points(self, snapshot: Snapshot) -> Iterator[Point]:
        host = snapshot.host
        first = next(iter(self._taken)) == host.host
        prefix = "system" if first else f"system/{host.host}"
        readings = {
            "cpu_utilization_percentage": host.cpu_percent,
            "system_memory_usage_megabytes": _mib(host.memory_used),
        }
        for gpu in snapshot.gpus:
            readings |= _gpu_readings(gpu)
        time = int(1000 * snapshot.time)
        for name, value in readings.items():
            if value is not None:
                yield Point(allowed_name(f"{prefix}/{name}"), float(value), self._line, time)


def _gpu_readings(gpu: GpuReading) -> dict[str, float | None]:
    used, total = gpu.memory_used, gpu.memory_total
    return {
        f"gpu_{gpu.index}_utilization_percentage": gpu.utilization,
        f"gpu_{gpu.index}_memory_usage_megabytes": _mib(used),
        f"gpu_{gpu.index}_memory_usage_percentage": 100 * used / total
        if used is not None and total
        else None,
        f"gpu_{gpu.index}_power_usage_watts": gpu.power,
        f"gpu_{gpu.index}_temperature_celsius": gpu.temperature,
    }


def _mib(count: int | None) -> float | None:
    return None if count is None else count / MIB
