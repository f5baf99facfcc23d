"""Events as the JSON objects of `mdk-tui parse --json`, one a line."""

from __future__ import annotations

import itertools
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any, cast

from backends.megatron.events import Event, IterationBatch, Timers, Value


def in_order(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The objects of `events`, which came at once, in the order of the lines."""
    return sorted((row for event in events for row in unroll(event)), key=itemgetter("line"))


def json_lines(events: Iterable[Event]) -> list[str]:
    """What `in_order` gives, as text. Batches are written column by column: that takes half the time."""
    found = [pair for event in events for pair in _numbered(event)]
    found.sort(key=itemgetter(0))
    return [text for _, text in found]


def unroll(event: Event) -> Iterator[dict[str, Any]]:
    """The objects of one event: one a line of the log for batches, else one."""
    if isinstance(event, IterationBatch):
        for i, line in enumerate(event.lines):
            yield {
                "event": "iteration",
                "line": line,
                "rank": event.ranks[i],
                "time": event.times[i],
                "iteration": event.iterations[i],
                "train_iters": event.train_iters[i],
                "values": {name: json_value(column[i]) for name, column in event.columns.items()},
            }
        return
    if isinstance(event, Timers):
        for line, values in zip(event.lines, event.values, strict=True):
            if values:
                yield {"event": "timers", "line": line, "rank": event.rank, "values": _plain(values)}
        return
    found: dict[str, Any] = {"event": type(event).__name__.lower()}
    for field in fields(event):
        value = getattr(event, field.name)
        found[field.name] = _plain(value)
    yield found


def json_value(value: Value) -> Value:
    """NaN and infinities as "nan", "inf", "-inf": JSON has no numbers for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, tuple):
        return [_plain(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    return json_value(value) if isinstance(value, (int, float, str)) else value


def _numbered(event: Event) -> Iterable[tuple[int, str]]:
    """(line, JSON) of each object of `event`."""
    if isinstance(event, IterationBatch):
        return zip(event.lines, _batch(event), strict=True)
    return [(row["line"], json.dumps(row)) for row in unroll(event)]


def _batch(batch: IterationBatch) -> Iterator[str]:
    names = ("line", "rank", "time", "iteration", "train_iters")
    columns = (batch.lines, batch.ranks, batch.times, batch.iterations, batch.train_iters)
    head, values = (
        ", ".join(f"{json.dumps(name).replace('%', '%%')}: %s" for name in some)
        for some in (names, batch.columns)
    )
    form = f'{{"event": "iteration", {head}, "values": {{{values}}}}}'
    return map(form.__mod__, zip(*map(_texts, (*columns, *batch.columns.values()))))  # noqa: B905 (equal)


def _texts(column: Sequence[Value | None]) -> Iterable[str]:
    """The JSON of each value of a column."""
    if not isinstance(column, (array, range)):
        return (json.dumps(None if value is None else json_value(value)) for value in column)
    numbers = cast("Sequence[float]", column)
    if not math.isfinite(sum(numbers)):
        return (json.dumps(json_value(number)) for number in numbers)
    if numbers.count(numbers[0]) == len(numbers):
        return itertools.repeat(repr(numbers[0]), len(numbers))
    return map(repr, numbers)
