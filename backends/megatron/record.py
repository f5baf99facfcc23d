"""Everything that a log has said so far, in bounded memory, for any reader: screens, `summary`, sidecars."""

from __future__ import annotations

import bisect
import datetime
import math
import statistics
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from backends.megatron.alerts import SKIPPED
from backends.megatron.events import (
    Alert,
    Argument,
    Checkpoint,
    Error,
    Event,
    Exit,
    IterationBatch,
    Memory,
    Milestone,
    Number,
    Parameters,
    Timers,
    Validation,
    Value,
)
from backends.megatron.series import Curve, Series

Axis: TypeAlias = Literal["iteration", "time", "tokens"]
KEPT = 5000  # of validations, checkpoints, alerts, …: the newest
ITERATION_MS = "elapsed time per iteration (ms)"
SAMPLES = "consumed samples"
ANCHOR_ROWS = 64  # one time stamp in so many rows is read; between them time runs evenly
RECENT = 50  # iteration lines on which an estimate rests


@dataclass(slots=True)
class Segment:
    """One attempt: from a start, or from where the iteration went back, to the next."""

    line: int
    series: dict[str, Series] = field(default_factory=dict[str, Series])
    first: int = 0
    last: int = 0
    started: str | None = None  # ISO
    ended: str | None = None
    anchors: tuple[list[int], list[float]] = field(
        default_factory=lambda: (list[int](), list[float]())
    )  # iteration, s since the epoch

    def time_at(self, iteration: float) -> float | None:
        """s since the epoch (local clock of the rank) when `iteration` was logged, interpolated; None without time stamps."""
        iterations, times = self.anchors
        if not iterations:
            return None
        at = bisect.bisect_left(iterations, iteration)
        if at == 0:
            return times[0]
        if at == len(iterations):
            return times[-1]
        share = (iteration - iterations[at - 1]) / (iterations[at] - iterations[at - 1])
        return times[at - 1] + share * (times[at] - times[at - 1])


class Record:
    """Filled by `apply` in the order of the log. Not safe across threads by itself: hold `lock` while reading or applying."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.version = 0
        self.iteration: int | None = None
        self.train_iters: int | None = None
        self.last: dict[str, Value] = {}
        self.last_time: str | None = None
        self.segments: list[Segment] = []
        self.validations: deque[Validation] = deque(maxlen=KEPT)
        self.checkpoints: deque[Checkpoint] = deque(maxlen=KEPT)
        self.alerts: deque[Alert] = deque(maxlen=KEPT)
        self.errors: deque[Error] = deque(maxlen=KEPT)
        self.pending: list[Error] = []  # seen, but more ranks may still report the same
        self.milestones: deque[Milestone] = deque(maxlen=KEPT)
        self.exits: deque[Exit] = deque(maxlen=KEPT)
        self.arguments: dict[str, str] = {}
        self.parameters: dict[str, Number] = {}
        self.memory: dict[int | None, Memory] = {}
        self.theoretical: Memory | None = None
        self.timers: dict[str, tuple[float, float]] = {}
        self.iterations_seen = 0
        self._names: dict[str, None] = {}
        self._new_attempt = True
        self._recent: deque[float] = deque(maxlen=RECENT)

    def begin_attempt(self) -> None:
        """What comes next is another attempt, whatever its iterations."""
        self._new_attempt = True

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self.version += 1
            if isinstance(event, IterationBatch):
                self._batch(event)
            else:
                self._other(event)

    def _batch(self, batch: IterationBatch) -> None:
        if self._new_attempt or self.iteration is None or batch.iterations[0] <= self.segments[-1].last:
            self.segments.append(Segment(batch.line, first=batch.iterations[0], started=batch.times[0]))
            self._new_attempt = False
        segment = self.segments[-1]
        numeric = {name: column for name, column in batch.columns.items() if not isinstance(column[0], str)}
        skipped_all = _all_skipped(batch)
        for name, column in numeric.items():
            if skipped_all and name == "lm loss":
                continue  # 0.17 prints a mean of nothing as 0: no perfect loss
            self._names.setdefault(name)
            segment.series.setdefault(name, Series()).extend(batch.iterations, column)  # type: ignore[arg-type]
        self._anchor(segment, batch)
        segment.last = self.iteration = int(batch.iterations[-1])
        segment.ended = batch.times[-1] or segment.ended
        self.train_iters = int(batch.train_iters[-1])
        self.last_time = batch.times[-1] or self.last_time
        self.last.update({name: column[-1] for name, column in batch.columns.items()})
        for name in [
            name
            for name in self.last
            if name not in batch.columns and "loss" in name and name != "loss scale"
        ]:
            del self.last[name]  # a vanished loss is not the newest loss
        self.iterations_seen += len(batch)
        if ITERATION_MS in numeric:
            self._recent.extend(float(v) for v in numeric[ITERATION_MS][-RECENT:])

    def _anchor(self, segment: Segment, batch: IterationBatch) -> None:
        rows = sorted({*range(0, len(batch), ANCHOR_ROWS), len(batch) - 1})
        for row in rows:
            stamp = batch.times[row]
            if stamp is not None and (seconds := seconds_of(stamp)) is not None:
                segment.anchors[0].append(int(batch.iterations[row]))
                segment.anchors[1].append(seconds)

    def _other(self, event: Event) -> None:
        match event:
            case Validation():
                self.validations.append(event)
            case Checkpoint():
                self.checkpoints.append(event)
            case Alert():
                self.alerts.append(event)
            case Error():
                self.pending = [error for error in self.pending if error.line != event.line]
                self.errors.append(event)
            case Milestone():
                self.milestones.append(event)
                self._new_attempt = self._new_attempt or event.name == "distributed"
            case Exit():
                self.exits.append(event)
            case Argument():
                self.arguments[event.name] = event.value
            case Parameters():
                self.parameters.update(event.values)
            case Memory():
                if event.iteration is None:
                    self.theoretical = event
                else:
                    self.memory[event.rank] = event
            case Timers():
                self.timers.update(event.values)
            case IterationBatch():
                raise TypeError("batches are applied by _batch")

    # Questions

    def all_errors(self) -> list[Error]:
        """Errors in the order of the log, those included that more ranks may still report."""
        return [*self.errors, *self.pending]

    def metrics(self) -> list[str]:
        """Names of numbers, in the order of their first appearance."""
        return list(self._names)

    def curves(
        self,
        metric: str,
        *,
        x: Axis = "iteration",
        start: float | None = None,
        stop: float | None = None,
        buckets: int = 200,
    ) -> list[Curve]:
        """`metric`, one curve a segment that has it, thinned to `buckets` in all of the stretch. `start`, `stop`: iterations.

        With x "time" the xs are s since the epoch, with "tokens" tokens; segments without time stamps are left out then.
        """
        low = -math.inf if start is None else start
        high = math.inf if stop is None else stop
        found: list[Curve] = []
        for segment in self.segments:
            series = segment.series.get(metric)
            if series is None or segment.last < low or segment.first > high:
                continue
            curve = series.curve(low, high, buckets)
            xs = curve.xs if x == "iteration" else [self._convert(segment, value, x) for value in curve.xs]
            if curve.xs and None not in xs:
                found.append(
                    Curve([float(v) for v in xs if v is not None], curve.lows, curve.highs, curve.means)
                )
        return found

    def _convert(self, segment: Segment, iteration: float, x: Axis) -> float | None:
        if x == "time":
            return segment.time_at(iteration)
        samples, length = segment.series.get(SAMPLES), self.sequence_length
        if samples is None or length is None:
            return None
        row = min(samples.iterations.find(iteration), len(samples.iterations) - 1)
        return samples.values[row] * length

    def value_at(self, metric: str, iteration: int) -> float | None:
        """The value of `metric` at `iteration`, of the newest segment that has it."""
        for segment in reversed(self.segments):
            series = segment.series.get(metric)
            if series is not None:
                row = series.iterations.find(iteration)
                if row < len(series.iterations) and series.iterations[row] == iteration:
                    return series.values[row]
        return None

    @property
    def sequence_length(self) -> int | None:
        value = self.arguments.get("seq_length", "")
        return int(value) if value.isdigit() else None

    @property
    def tokens(self) -> int | None:
        """Tokens consumed so far; None where the log does not say samples and sequence length."""
        samples, length = self.last.get(SAMPLES), self.sequence_length
        return int(samples) * length if isinstance(samples, int) and length else None

    @property
    def iteration_ms(self) -> float | None:
        """Median of the newest iteration times."""
        return statistics.median(self._recent) if self._recent else None

    @property
    def tokens_per_second(self) -> float | None:
        batch, length, ms = self.last.get("global batch size"), self.sequence_length, self.iteration_ms
        if not isinstance(batch, (int, float)) or not length or not ms:
            return None
        return batch * length / ms * 1000

    def seconds_left(self) -> float | None:
        """Estimated s to the last iteration: median iteration time, plus what evaluations and saves have cost so far."""
        ms = self.iteration_ms
        if ms is None or self.iteration is None or self.train_iters is None or not self.segments:
            return None
        left = max(0, self.train_iters - self.iteration)
        return left * (ms / 1000 + self._pause_per_iteration(self.segments[-1]))

    def _pause_per_iteration(self, segment: Segment) -> float:
        """s an iteration that the clock ran on while no iteration was timed (evaluation, saving)."""
        times = segment.series.get(ITERATION_MS)
        iterations, stamps = segment.anchors
        if times is None or len(stamps) < 2 or iterations[-1] == iterations[0] or self.iteration_ms is None:
            return 0.0
        wall = (stamps[-1] - stamps[0]) / (iterations[-1] - iterations[0])
        return min(max(0.0, wall - self.iteration_ms / 1000), 9 * self.iteration_ms / 1000)


def seconds_of(stamp: str) -> float | None:
    """s since the epoch of an ISO time without zone, as local time of this machine."""
    try:
        return datetime.datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _all_skipped(batch: IterationBatch) -> bool:
    """Whether every line of the batch says that all its steps were skipped and yet prints a loss of 0."""
    skipped, loss = batch.columns.get(SKIPPED), batch.columns.get("lm loss")
    return skipped is not None and loss is not None and all(skipped) and not any(loss)
