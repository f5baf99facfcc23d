"""One attempt of a run in its log: a column of numbers for each metric, and the times of the iterations."""

from __future__ import annotations

import bisect
import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from backends.megatron.alerts import SKIPPED, is_loss
from backends.megatron.events import IterationBatch, Value
from backends.megatron.series import Series

ANCHOR_ROWS = 64  # rows for each time stamp that is kept; times between are interpolated


def seconds_of(stamp: str) -> float | None:
    """s since the epoch of an ISO time without zone, taken as local time of this machine; None if it is no time."""
    try:
        return datetime.datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(slots=True)
class Clock:
    """The times of every `ANCHOR_ROWS`th iteration line and of the newest. Times never fall."""

    iterations: list[int] = field(default_factory=list[int])
    times: list[float] = field(default_factory=list[float])  # s since the epoch
    _rows: int = 0
    _kept: bool = True  # whether the newest anchor stays when another comes

    def extend(self, iterations: Sequence[int], stamps: Sequence[str | None]) -> None:
        if not self._kept:
            self.iterations.pop()
            self.times.pop()
            self._kept = True
        count = len(iterations)
        regular = range(-self._rows % ANCHOR_ROWS, count, ANCHOR_ROWS)
        for row in [*regular, *([] if count - 1 in regular else [count - 1])]:
            stamp = stamps[row]
            seconds = seconds_of(stamp) if stamp is not None else None
            if seconds is not None:
                self._add(iterations[row], seconds, kept=row in regular)
        self._rows += count

    def _add(self, iteration: int, seconds: float, kept: bool) -> None:
        if self.times and seconds < self.times[-1]:
            return  # another host's clock, or the end of summer time
        self.iterations.append(iteration)
        self.times.append(seconds)
        self._kept = kept

    def at(self, iteration: float) -> float | None:
        """s since the epoch when `iteration` was logged, interpolated; None without time stamps."""
        if not self.iterations:
            return None
        after = bisect.bisect_left(self.iterations, iteration)
        if after == 0:
            return self.times[0]
        if after == len(self.iterations):
            return self.times[-1]
        before = after - 1
        share = (iteration - self.iterations[before]) / (self.iterations[after] - self.iterations[before])
        return self.times[before] + share * (self.times[after] - self.times[before])

    def seconds_per_iteration(self) -> float | None:
        """Mean over the attempt, evaluations and saves included; None with fewer than two time stamps."""
        if len(self.iterations) < 2 or self.iterations[-1] == self.iterations[0]:
            return None
        return (self.times[-1] - self.times[0]) / (self.iterations[-1] - self.iterations[0])


@dataclass(slots=True)
class Segment:
    """One attempt: from a start, or a point where the iteration went back, to the next one."""

    line: int
    first: int = 0
    last: int = 0
    started: str | None = None  # ISO
    ended: str | None = None
    series: dict[str, Series] = field(default_factory=dict[str, Series])
    clock: Clock = field(default_factory=Clock)
    _timed_ms: float = 0.0  # sum over all rows but the first, which includes compilation
    _timed_rows: int = -1

    def time_at(self, iteration: float) -> float | None:
        """s since the epoch (local clock of the rank) when `iteration` was logged; None without time stamps."""
        return self.clock.at(iteration)

    def add_times(self, milliseconds: Sequence[float]) -> None:
        """Add the iteration times of the newest rows, in ms."""
        self._timed_ms += sum(filter(math.isfinite, milliseconds[1 if self._timed_rows < 0 else 0 :]))
        self._timed_rows += len(milliseconds)

    def pause_per_iteration(self) -> float:
        """Mean s an iteration that Megatron's timer leaves out: evaluations and saves. 0 if it is not known."""
        wall = self.clock.seconds_per_iteration()
        if wall is None or self._timed_rows < 1:
            return 0.0
        return max(0.0, wall - self._timed_ms / self._timed_rows / 1000)


def numbers_of(batch: IterationBatch) -> Iterator[tuple[str, Sequence[int], Sequence[float]]]:
    """The metrics of `batch` that are numbers, each with its iterations, without losses of rows whose steps were all skipped."""
    skipped = batch.columns.get(SKIPPED)
    for name, column in batch.columns.items():
        if not all_numbers(column):
            continue
        iterations = batch.iterations
        if skipped is not None and is_loss(name) and 0.0 in column:
            iterations, column = _without_skipped(iterations, column, skipped)
        if column:
            yield name, iterations, column


def all_numbers(column: Sequence[Value]) -> TypeGuard[Sequence[float]]:
    """Whether `column` contains no text. Only a list can contain text."""
    return not isinstance(column, list) or not any(isinstance(value, str) for value in column)


def _without_skipped(
    iterations: Sequence[int], losses: Sequence[float], skipped: Sequence[Value]
) -> tuple[list[int], list[float]]:
    """The rows whose loss is real: 0.17 and later print 0 if every step was skipped."""
    rows = [i for i, loss in enumerate(losses) if loss != 0.0 or not skipped[i]]
    return [iterations[i] for i in rows], [losses[i] for i in rows]
