"""Translates TensorBoard's scalars into the events of a log, so that a run without its log can be shown.

Megatron-LM writes most numbers of an iteration line to TensorBoard, too, under other names, and a second time over samples
("lm loss vs samples"). Its arguments are texts. The names are those of core_r0.8.0 and later.
"""

from __future__ import annotations

import bisect
import datetime
import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from backends.megatron.alerts import Alarm, check_validation
from backends.megatron.events import Argument, Event, IterationBatch, Validation, Value
from backends.megatron.record import ITERATION_MS, SAMPLES
from backends.text import clean_line
from backends.tracking.event_files import Points, Text

# tag -> its name in the log, where they differ
LOG_NAMES = {
    "learning-rate": "learning rate",
    "batch-size": "global batch size",
    "loss-scale": "loss scale",
    "grad-norm": "grad norm",
    "num-zeros": "num zeros",
    "params-norm": "params norm",
    "throughput": "throughput per GPU (TFLOP/s/GPU)",
    "iteration-time": ITERATION_MS,  # there in s
}
OVER_SAMPLES = " vs samples"
VALIDATION, PERPLEXITY = " validation", " validation ppl"
TEXT = "/text_summary"  # torch's SummaryWriter adds it to the tag of a text


class Stamps(Sequence["str | None"]):
    """Times as in a log (ISO, local). Each is made when it is asked for, because a record reads only one in sixty."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._seconds)

    @overload
    def __getitem__(self, index: int) -> str | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str | None]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str | None] | None:
        if isinstance(index, slice):
            return Stamps(self._seconds[index])
        try:
            return datetime.datetime.fromtimestamp(self._seconds[index]).isoformat(timespec="milliseconds")
        except (ValueError, OverflowError, OSError):
            return None


class Translation:
    """Makes events from the scalars of one event file. The newest iteration is held back until it is complete (`settle`).

    Rows, counted from `rows` + 1, take the place of line numbers.
    """

    def __init__(self, rows: int = 0) -> None:
        self._waiting: dict[str, Points] = {}
        self._alarm = Alarm()
        self.rows = rows
        self.train_iters: int | None = None

    def add(self, scalars: Mapping[str, Points], texts: Sequence[Text]) -> list[Event]:
        for tag, points in scalars.items():
            kept = self._waiting.setdefault(tag, Points())
            kept.steps.extend(points.steps)
            kept.times.extend(points.times)
            kept.values.extend(points.values)
        events: list[Event] = [self._argument(text) for text in texts if text.tag.endswith(TEXT)]
        newest = [p.times[-1] for tag, p in self._waiting.items() if p.steps and _by_iteration(tag)]
        if newest:
            last = max(newest)
            step = max(
                p.steps[-1]
                for t, p in self._waiting.items()
                if _by_iteration(t) and p.times[-1:] == array("d", [last])
            )
            events += self._release(step)
        return events

    def settle(self) -> list[Event]:
        """The newest iteration, too: nothing has arrived for a while, or the file has ended."""
        return self._release(None)

    def _argument(self, text: Text) -> Argument:
        name, value = clean_line(text.tag.removesuffix(TEXT), 200), clean_line(text.text)
        if name == "train_iters" and value.isdecimal():
            self.train_iters = int(value)
        return Argument(0, None, name, value)

    def _release(self, held: int | None) -> list[Event]:
        """Events of all waiting points, except those of step `held` at the end of each tag."""
        ready: dict[str, Points] = {}
        for tag, points in self._waiting.items():
            if _by_iteration(tag):
                count = len(points)
                while count and points.steps[count - 1] == held:
                    count -= 1
                ready[tag] = _split(points, count)
        samples = self._samples(ready)
        events: list[Event] = []
        for part in _rising(ready):
            events += self._batches(part, samples)
            events += self._validations(part)
        self._waiting = {tag: points for tag, points in self._waiting.items() if points.steps}
        return events

    def _samples(self, ready: Mapping[str, Points]) -> dict[tuple[float, int], int]:
        """Consumed samples by (time, iteration), from the first tag that is written over samples, too."""
        found: dict[tuple[float, int], int] = {}
        for tag, over in self._waiting.items():
            plain = ready.get(tag.removesuffix(OVER_SAMPLES))
            if _by_iteration(tag) or plain is None or not plain.steps:
                continue
            # Drop what belongs to points that were already shown.
            _split(over, bisect.bisect_left(over.times, plain.times[0]))
            part = _split(over, min(len(plain), len(over)))
            if (
                part.values == plain.values
                and not found
                and not _is_validation(tag.removesuffix(OVER_SAMPLES))
            ):
                found = dict(zip(zip(plain.times, plain.steps, strict=True), part.steps, strict=True))
        return found

    def _batches(
        self, part: Mapping[str, Points], samples: Mapping[tuple[float, int], int]
    ) -> Iterator[Event]:
        columns = {tag: points for tag, points in part.items() if points.steps and not _is_validation(tag)}
        for steps, times, values in _tables(columns):
            named: dict[str, Sequence[Value]] = {
                _log_name(tag): _converted(tag, column) for tag, column in values.items()
            }
            clocks = next(iter(times.values()))
            counts = [samples.get((t, s)) for t, s in zip(clocks, steps, strict=True)] if samples else [None]
            known = [count for count in counts if count is not None]
            if len(known) == len(steps):
                named[SAMPLES] = array("q", known)
            rows = range(self.rows + 1, self.rows + len(steps) + 1)
            self.rows += len(steps)
            no_ranks = [None] * len(steps)
            batch = IterationBatch(
                rows, no_ranks, Stamps(clocks), steps, [self.train_iters or 0] * len(steps), named
            )
            yield batch
            yield from self._alarm.check(batch)

    def _validations(self, part: Mapping[str, Points]) -> Iterator[Event]:
        found: dict[int, dict[str, float]] = {}
        for tag, points in part.items():
            if _is_validation(tag):
                name = (
                    tag.removesuffix(PERPLEXITY) + " PPL"
                    if tag.endswith(PERPLEXITY)
                    else tag.removesuffix(VALIDATION) + " value"
                )
                for step, value in zip(points.steps, points.values, strict=True):
                    found.setdefault(step, {})[clean_line(name, 200)] = value
        for step, values in sorted(found.items()):
            result = Validation(self.rows, None, step, "validation", values)
            yield result
            yield from check_validation(result)


def _by_iteration(tag: str) -> bool:
    return not tag.endswith(OVER_SAMPLES)


def _is_validation(tag: str) -> bool:
    return tag.endswith((VALIDATION, PERPLEXITY))


def _log_name(tag: str) -> str:
    return LOG_NAMES.get(tag) or clean_line(tag, 200)


def _converted(tag: str, values: array[float]) -> array[float]:
    return array("d", [1000 * value for value in values]) if tag == "iteration-time" else values


def _split(points: Points, count: int) -> Points:
    """Take the first `count` points out of `points`."""
    taken = Points(points.steps[:count], points.times[:count], points.values[:count])
    del points.steps[:count], points.times[:count], points.values[:count]
    return taken


def _rising(tags: Mapping[str, Points]) -> Iterator[dict[str, Points]]:
    """`tags`, cut at the times at which a step goes back: there another attempt begins in the same file."""
    falls = {
        points.times[i + 1]
        for points in tags.values()
        if any(map(int.__gt__, points.steps, points.steps[1:]))
        for i, (a, b) in enumerate(itertools.pairwise(points.steps))
        if b < a
    }
    for fall in sorted(falls):
        yield {tag: _split(points, bisect.bisect_left(points.times, fall)) for tag, points in tags.items()}
    yield dict(tags)


Table = tuple[Sequence[int], "dict[str, Sequence[float]]", "dict[str, array[float]]"]


def _tables(columns: Mapping[str, Points]) -> Iterator[Table]:
    """(steps, times by tag, values by tag) of consecutive steps that have the same tags."""
    if not columns:
        return
    first = next(iter(columns.values())).steps
    if all(points.steps == first for points in columns.values()):
        yield first, {t: p.times for t, p in columns.items()}, {t: p.values for t, p in columns.items()}
        return
    rows: dict[int, dict[str, int]] = {}
    for tag, points in columns.items():
        for row, step in enumerate(points.steps):
            rows.setdefault(step, {})[tag] = row  # of two values at one step the later counts
    for _, group in itertools.groupby(sorted(rows.items()), lambda row: tuple(row[1])):
        steps, places = zip(*group, strict=True)
        picked: dict[str, list[int]] = {tag: [place[tag] for place in places] for tag in places[0]}
        yield (
            array("q", steps),
            {tag: [columns[tag].times[row] for row in picks] for tag, picks in picked.items()},
            {tag: array("d", [columns[tag].values[row] for row in picks]) for tag, picks in picked.items()},
        )
