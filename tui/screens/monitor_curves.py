"""What the monitor plots: the metrics of a log, of the runs that it continues, and the GPU readings recorded with it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from backends.megatron.diagnosis import Diagnosis
from backends.megatron.record import ITERATION_MS, Record
from backends.megatron.series import Curve
from backends.runs.ancestors import Chapter, Descent
from backends.telemetry.timeline import Timeline
from backends.ticks import number
from tui.screens.monitor_attention import validation_loss
from tui.widgets.curves import Line, Mark, XAxis

LOSS = "lm loss"
THROUGHPUT = ("throughput per GPU (TFLOP/s/GPU)", "throughput (token/sec)", "tokens per second", ITERATION_MS)
FINE = 512  # buckets of the table from iterations to other x axes
Item = TypeVar("Item")

OF = " of "
LABELS: Mapping[Descent, str] = {"restart": "resumed", "branch": "branch"}
MARKS = 500  # most marks of one kind; a plot has no more columns


class RunCurves:
    """The source of the monitor's plots. `record` is the newest run's log; `past` are the runs before it, oldest first.

    Nothing is read half applied: the lock of each record is held meanwhile.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.past: Sequence[Chapter] = ()
        self.timeline = Timeline()

    def metrics(self) -> list[str]:
        """All metrics, those of the log first."""
        with self.record.lock:
            names = dict.fromkeys(self.record.metrics())
            names.update(dict.fromkeys(evaluation_metrics(self.record)))
        for chapter in self.past:
            names.update(dict.fromkeys(chapter.record.metrics()))
        names.update(dict.fromkeys(self.timeline.metrics()))
        return list(names)

    def newest(self, metric: str) -> float | None:
        """The newest value; None when the last line had none."""
        with self.record.lock:
            if (found := evaluations(self.record, metric)) is not None and found.means:
                return found.means[-1]
            value = self.record.last.get(metric)
        return float(value) if isinstance(value, int | float) else self.timeline.newest(metric)

    def __call__(
        self, metric: str, x: XAxis, start: float | None, stop: float | None, buckets: int
    ) -> list[Line]:
        if metric in self.timeline.metrics():
            return list(self._telemetry(metric, x, start, stop, buckets))
        lines = [
            Line.of(curve, "past")
            for chapter in self.past
            for curve in curves_of(chapter.record, metric, x, start, stop, buckets)
        ]
        return lines + [Line.of(curve) for curve in curves_of(self.record, metric, x, start, stop, buckets)]

    def _telemetry(
        self, metric: str, x: XAxis, start: float | None, stop: float | None, buckets: int
    ) -> Iterator[Line]:
        """Readings have times; on an axis of iterations each is placed where the log was at that time."""
        low, high = (-math.inf if start is None else start), (math.inf if stop is None else stop)
        if x == "time":
            curve = self.timeline.curve(metric, low, high, buckets)
            if curve is not None and curve.xs:
                yield Line.of(curve)
            return
        with self.record.lock:
            clocks = [
                (list(segment.clock.times), list(segment.clock.iterations))
                for segment in self.record.segments
                if segment.clock.times
            ]
        for times, iterations in clocks:
            curve = self.timeline.curve(metric, times[0], times[-1], buckets)
            if x == "iteration" and curve is not None and curve.xs:
                xs = [between(time, times, iterations) for time in curve.xs]
                yield Line.of(within(Curve(xs, curve.lows, curve.highs, curve.means), low, high))

    def marks(self, metric: str, x: XAxis) -> list[Mark]:
        """Evaluations (on a loss plot), saved checkpoints, restarts, and branches."""
        found: list[Mark] = []
        records = [*(chapter.record for chapter in self.past), self.record]
        for index, record in enumerate(records):
            with record.lock:
                found += _marks(record, metric, x)
                if index and record.segments:
                    kind = self.past[index - 1].child
                    place = x_of(record, float(record.segments[0].first), x)
                    found += [Mark(kind, place, label=LABELS[kind])] if place is not None else []
        return found


def curves_of(
    record: Record, metric: str, x: XAxis, start: float | None, stop: float | None, buckets: int
) -> list[Curve]:
    """`record.curves`, with a window in the units of `x`."""
    with record.lock:
        if (evaluated := evaluations(record, metric)) is not None:
            return [_placed(evaluated, [x_of(record, at, x) for at in evaluated.xs], start, stop)]
    while _prepare(record, metric):
        pass  # the lock is free in between for the thread that reads the log
    with record.lock:
        if x == "iteration" or start is None or stop is None:
            return record.curves(metric, x=x, start=start, stop=stop, buckets=buckets)
        first, last = _iterations(record, metric, x, start, stop)
        found = record.curves(metric, x=x, start=first, stop=last, buckets=buckets)
    return [within(curve, start, stop) for curve in found]


def evaluation_metrics(record: Record) -> list[str]:
    """Names for the curves of evaluations: "lm loss of validation", one a set."""
    return [f"{LOSS}{OF}{name}" for name in dict.fromkeys(result.set for result in record.validations)]


def evaluations(record: Record, metric: str) -> Curve | None:
    """The losses of one set's evaluations by iteration; None if `metric` does not name such a curve."""
    if not metric.startswith(f"{LOSS}{OF}"):
        return None
    found: dict[float, float] = {}
    for result in record.validations:
        value = validation_loss(result)
        if f"{LOSS}{OF}{result.set}" == metric and result.iteration is not None and value is not None:
            found[result.iteration] = value  # of repeated attempts the newest
    xs = sorted(found)
    values = [found[x] for x in xs]
    return Curve(xs, values, values, values)


def _placed(curve: Curve, places: Sequence[float | None], start: float | None, stop: float | None) -> Curve:
    """`curve` with other x values; points without one, or outside the window, are left out."""
    low, high = -math.inf if start is None else start, math.inf if stop is None else stop
    kept = [(x, y) for x, y in zip(places, curve.means, strict=True) if x is not None and low <= x <= high]
    values = [y for _, y in kept]
    return Curve([x for x, _ in kept], values, values, values)


def _prepare(record: Record, metric: str) -> bool:
    with record.lock:
        return record.prepare(metric)


def _iterations(record: Record, metric: str, x: XAxis, start: float, stop: float) -> tuple[float, float]:
    """The first and last iteration whose `x` lies in the window, with one bucket more on each side."""
    by_iteration = record.curves(metric, buckets=FINE)
    by_x = record.curves(metric, x=x, buckets=FINE)
    found: list[float] = []
    for plain, other in zip(by_iteration, by_x, strict=False):
        inside = [i for i, value in enumerate(other.xs) if start <= value <= stop]
        if inside:
            found += [plain.xs[max(inside[0] - 1, 0)], plain.xs[min(inside[-1] + 1, len(plain.xs) - 1)]]
    return (min(found), max(found)) if found else (math.inf, -math.inf)


def within(curve: Curve, start: float, stop: float) -> Curve:
    """The points whose x lies in the window."""
    kept = [i for i, value in enumerate(curve.xs) if start <= value <= stop]
    return Curve(*([column[i] for i in kept] for column in (curve.xs, curve.lows, curve.highs, curve.means)))


def between(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """y at `x` by linear interpolation; constant beyond the ends."""
    after = bisect.bisect_left(xs, x)
    if after == 0 or after == len(xs) or xs[after] == xs[after - 1]:
        return float(ys[min(after, len(ys) - 1)])
    share = (x - xs[after - 1]) / (xs[after] - xs[after - 1])
    return ys[after - 1] + share * (ys[after] - ys[after - 1])


def _marks(record: Record, metric: str, x: XAxis) -> list[Mark]:
    found = [Mark("restart", float(s.first)) for s in record.segments[1:]]
    saved = [c.iteration for c in record.checkpoints if c.action == "saved" and c.iteration]
    found += [Mark("checkpoint", float(iteration)) for iteration in thinned(saved)]
    if metric == LOSS:
        for result in thinned(record.validations):
            value = validation_loss(result)
            if result.iteration is not None and value is not None:
                found.append(Mark("validation", float(result.iteration), value))
    if x == "iteration":
        return found
    placed = [(mark, x_of(record, mark.x, x)) for mark in found]
    return [replace(mark, x=place) for mark, place in placed if place is not None]


def thinned(items: Sequence[Item]) -> list[Item]:
    """At most `MARKS` of them, evenly, the newest among them."""
    every = -(-len(items) // MARKS) or 1
    return list(items)[::-1][::every][::-1]


def x_of(record: Record, iteration: float, x: XAxis) -> float | None:
    """The place of `iteration` on another x axis; None if the log does not tell."""
    if x == "iteration":
        return iteration
    for segment in reversed(record.segments):
        if segment.first <= iteration <= segment.last and x == "time":
            return segment.time_at(iteration)
    if x == "tokens" and record.tokens and record.iteration:
        return record.tokens * iteration / record.iteration  # exact for a constant batch size
    return None


# Words.

EMPTY = {
    "failed": "failed before the first iteration was logged",
    "stopped": "stopped before the first iteration was logged",
    "finished": "finished without a logged iteration",
}


def empty_words(pane: str, record: Record, diagnosis: Diagnosis) -> str:
    """The text in an empty plot."""
    if record.iteration is not None:
        return "no loss in the log" if pane == "loss" else "no iteration time in the log"
    return EMPTY.get(diagnosis.phase, "waiting for the first iteration")


def throughput_metric(metrics: Sequence[str]) -> str:
    """The best metric of speed in the log."""
    return next((name for name in THROUGHPUT if name in metrics), "")


def loss_metric(metrics: Sequence[str]) -> str:
    return next(
        (name for name in metrics if name == LOSS),
        next((name for name in metrics if "loss" in name and "scale" not in name and OF not in name), ""),
    )


def speed_words(record: Record) -> str:
    """The text after the newest throughput."""
    words: list[str] = []
    if (ms := record.iteration_ms) is not None:
        words.append(
            f"{number(ms / 1000, digits=3)} s/iteration"
            if ms >= 1000
            else f"{number(ms, digits=3)} ms/iteration"
        )
    if (speed := record.tokens_per_second) is not None:
        words.append(f"{speed:,.0f} tokens/s")
    return "  ".join(words)


def loss_words(record: Record, marker: str) -> str:
    """The newest evaluation, for the lower edge of the loss plot."""
    for result in sorted(record.validations, key=lambda result: (result.set == "test", -result.line)):
        value = validation_loss(result)
        if value is not None:
            where = "" if result.iteration is None else f" @ {result.iteration:,}"
            return f"{'test' if result.set == 'test' else 'val'} {number(value)}{where} {marker}"
    return ""
