"""The contents of a log so far, in bounded memory, for screens, `summary` and sidecars."""

from __future__ import annotations

import math
import statistics
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, TypeVar

from backends.megatron.alerts import LM_LOSS, SKIPPED, is_loss, is_main_loss
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
from backends.megatron.segment import Segment, all_numbers, numbers_of
from backends.megatron.series import Curve, Series

Axis: TypeAlias = Literal["iteration", "time", "tokens"]
Key = TypeVar("Key")
Kept = TypeVar("Kept")

KEPT = 5000  # newest validations, checkpoints, alerts, … that are kept
NAMES = 1000  # metrics, arguments, … that are kept; a hostile log has a new one in every line
SEGMENTS = 200  # the newest attempts; older ones are forgotten
ITERATION_MS = "elapsed time per iteration (ms)"
SAMPLES = "consumed samples"
SHARD = "model parallel rank"  # in names of parameter counts
TOKENS = "consumed tokens"  # printed by forks
MOST_PAUSE = 2  # iteration times a pause may add to an iteration; a suspended job must not spoil the estimate
SLICE = 2**15  # rows of a curve that are prepared while the lock is held
RECENT = 50  # iteration lines on which an estimate rests


class Record:
    """Filled by `apply` in the order of the log. Threads must hold `lock` while they read it or apply events.

    Without `curves` only the last value of each metric is kept, which halves the work.
    """

    def __init__(self, curves: bool = True) -> None:
        self._has_curves = curves
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
        self.iterations_since_error = 0
        self.newest_lines: deque[int] = deque(maxlen=8)  # line numbers of the newest iteration lines
        self.attempt_line = 0  # where the newest attempt began; 0: the first
        self._names: dict[str, None] = {}
        self._announced = False
        self._new_attempt = True
        self._recent: deque[float] = deque(maxlen=RECENT)

    def begin_attempt(self, line: int) -> None:
        """Another attempt begins at `line`, whatever its iterations are."""
        self._new_attempt = True
        self.attempt_line = line

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            self.version += 1
            if isinstance(event, IterationBatch):
                self._batch(event)
            else:
                self._other(event)

    def _batch(self, batch: IterationBatch) -> None:
        if self._new_attempt or self.iteration is None or batch.iterations[0] < self.segments[-1].last:
            self._begin_segment(batch)
        segment = self.segments[-1]
        for name, iterations, column in numbers_of(batch) if self._has_curves else ():
            if room_for(name, self._names):
                self._names.setdefault(name)
                segment.series.setdefault(name, Series()).extend(iterations, column)
        if (took := batch.columns.get(ITERATION_MS)) is not None and all_numbers(took):
            self._recent.extend(filter(math.isfinite, took[-RECENT:]))
            segment.add_times(took)
        segment.clock.extend(batch.iterations, batch.times)
        segment.last = self.iteration = int(batch.iterations[-1])
        segment.ended = batch.times[-1] or segment.ended
        self.train_iters = int(batch.train_iters[-1])
        self.last_time = batch.times[-1] or self.last_time
        self.iterations_seen += len(batch)
        self.iterations_since_error += len(batch)
        self.newest_lines.extend(batch.lines[-8:])
        self._newest(batch)

    def _begin_segment(self, batch: IterationBatch) -> None:
        if not self._new_attempt:
            self.attempt_line = batch.line
        self.segments.append(Segment(batch.line, first=int(batch.iterations[0]), started=batch.times[0]))
        del self.segments[:-SEGMENTS]
        self._new_attempt = False
        self._recent.clear()

    def _newest(self, batch: IterationBatch) -> None:
        """The values of the last line, then older values that it lacks. A loss that the line lacks is dropped, not kept."""
        skipped = batch.columns.get(SKIPPED)
        newest: dict[str, Value] = {}
        for name, column in batch.columns.items():
            if not (skipped is not None and skipped[-1] and column[-1] == 0.0 and is_loss(name)):
                _put(newest, name, column[-1])
        for name, value in self.last.items():
            if name not in batch.columns and not is_loss(name):
                _put(newest, name, value)
        self.last = newest

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
                self.iterations_since_error = 0
            case Milestone():
                self.milestones.append(event)
                if event.name == "distributed":
                    # In the first attempt another rank may print before rank 0 prints the world size.
                    self.begin_attempt(event.line if self._announced or self.segments else 0)
                    self._announced = True
            case Exit():
                self.exits.append(event)
            case Argument():
                _put(self.arguments, event.name, event.value)
            case Parameters():
                for name, count in event.values.items():
                    if count:  # the counts of small models are rounded to 0 billions
                        _put(self.parameters, name, count)
            case Memory():
                if event.iteration is None:
                    self.theoretical = event
                else:
                    _put(self.memory, event.rank, event)
            case Timers():
                for name, times in event.values[-1].items():
                    _put(self.timers, name, times)
            case IterationBatch():
                raise TypeError("batches are applied by _batch")

    # Reading

    def all_errors(self) -> list[Error]:
        """Errors in the order of the log, with those that more ranks may still report."""
        return [*self.errors, *self.pending]

    def metrics(self) -> list[str]:
        """Names of metrics with numbers, in the order of their first occurrence."""
        return list(self._names)

    def name_here(self, metric: str) -> str:
        """The name of `metric` in this log: forks call the main loss `lm_loss`, `loss`, …"""
        if metric != LM_LOSS or metric in self._names:
            return metric
        return next(filter(is_main_loss, self._names), metric)

    def prepare(self, metric: str) -> bool:
        """Do a few ms of the work that the first `curves` of a metric needs; whether more is left.

        Call it until it returns False, and release the lock in between: a long log takes a tenth of a second.
        """
        metric = self.name_here(metric)
        series = [segment.series[metric] for segment in self.segments if metric in segment.series]
        return any(one.prepare(SLICE) for one in series)

    def curves(
        self,
        metric: str,
        *,
        x: Axis = "iteration",
        start: float | None = None,
        stop: float | None = None,
        buckets: int = 200,
    ) -> list[Curve]:
        """The curves of `metric`, one for each segment that has it, thinned to `buckets` between iterations `start` and `stop`.

        With x "time" the xs are s since the epoch, with "tokens" they are tokens. Segments whose xs are unknown are left out.
        """
        name = self.name_here(metric)
        low = -math.inf if start is None else start
        high = math.inf if stop is None else stop
        found: list[Curve] = []
        for segment in self.segments:
            series = segment.series.get(name)
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
        """The value of `metric` at `iteration` in the newest segment that has it."""
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
    def parameter_count(self) -> Number | None:
        """Exact if one rank holds the whole model, else as Megatron rounds it; None if neither is known."""
        shards = [count for name, count in self.parameters.items() if name.startswith(SHARD)]
        whole = all(
            self.arguments.get(f"{kind}_model_parallel_size", "1") == "1" for kind in ("tensor", "pipeline")
        )
        return shards[0] if whole and len(shards) == 1 else self.parameters.get("total")

    @property
    def tokens(self) -> int | None:
        """Tokens consumed so far; None if the log gives neither tokens nor samples and sequence length."""
        if isinstance(tokens := self.last.get(TOKENS), (int, float)) and math.isfinite(tokens):
            return int(tokens)
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
        """Estimated s to the last iteration: median iteration time plus the mean cost of evaluations and saves so far."""
        ms = self.iteration_ms
        if ms is None or self.iteration is None or self.train_iters is None or not self.segments:
            return None
        left = max(0, self.train_iters - self.iteration)
        pause = min(self.segments[-1].pause_per_iteration(), MOST_PAUSE * ms / 1000)
        return left * (ms / 1000 + pause)


def room_for(name: Key, names: Mapping[Key, object]) -> bool:
    """Whether `name` may be kept: a hostile log must not add names without limit."""
    return name in names or len(names) < NAMES


def _put(names: dict[Key, Kept], name: Key, value: Kept) -> None:
    if room_for(name, names):
        names[name] = value
