"""Events as the JSON objects of `mdk-tui parse --json`, one a line."""

from __future__ import annotations

import bisect
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any, cast

from backends.megatron.events import Event, IterationBatch, Timers, Value
from backends.megatron.printed_columns import IsoTimes, PrintedNumbers


def in_order(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The objects of `events`, which came at once, in the order of the lines."""
    return sorted((row for event in events for row in unroll(event)), key=itemgetter("line"))


def json_lines(events: Iterable[Event]) -> list[bytes]:
    """What `in_order` gives, as text. Batches are written column by column: that takes a tenth of the time."""
    numbers, lines, others = list[int](), list[bytes](), list[tuple[int, int, bytes]]()
    for event in events:
        if isinstance(event, IterationBatch) and (not numbers or numbers[-1] < event.line):
            numbers += event.lines
            lines += _batch(event)
        else:
            others += [(row["line"], len(lines), json.dumps(row).encode()) for row in unroll(event)]
    found, done = list[bytes](), 0
    for number, before, line in sorted(others, key=itemgetter(0)):
        # Of one line, what came first is first.
        at = bisect.bisect_right(numbers, number, 0, before)
        at = at if at < before else bisect.bisect_left(numbers, number, before)
        found += lines[done:at]
        found.append(line)
        done = at
    return found + lines[done:]


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


def _batch(batch: IterationBatch) -> list[bytes]:
    """The JSON of each row: one format string, whose arguments are what differs between the rows."""
    arguments: list[list[bytes]] = []
    head = {
        "line": batch.lines,
        "rank": batch.ranks,
        "time": batch.times,
        "iteration": batch.iterations,
        "train_iters": batch.train_iters,
    }
    form = b'{"event": "iteration", %b, "values": {%b}}' % (
        b", ".join([_field(name, column, arguments) for name, column in head.items()]),
        b", ".join([_field(name, column, arguments) for name, column in batch.columns.items()]),
    )
    return list(map(form.__mod__, zip(*arguments))) if arguments else [form % ()] * len(batch)  # noqa: B905 (equal)


def _field(name: str, column: Sequence[Value | None], arguments: list[list[bytes]]) -> bytes:
    """The part of the format string for one key. What differs between the rows is added to its `arguments`."""
    value, texts = _texts(column)
    if texts is not None:
        arguments.append(texts)
    return json.dumps(name).replace("%", "%%").encode() + b": " + value


def _texts(column: Sequence[Value | None]) -> tuple[bytes, list[bytes] | None]:
    """What stands in a format string for a value of `column`, and its arguments, unless all values are one."""
    if isinstance(column, PrintedNumbers):
        return b"%b", column.texts
    if isinstance(column, IsoTimes):
        return b'"%b"', column.texts()
    if isinstance(column, array):
        kinds = {int if column.typecode == "q" else float}
    else:
        kinds = {int} if isinstance(column, range) else set(map(type, column))
    values = cast("Sequence[Value | None]", column)
    if len(kinds) == 1 and not isinstance(column, range) and values.count(values[0]) == len(values):
        return _json(values[0]).replace(b"%", b"%%"), None
    if kinds == {int}:
        return b"%b", (b" %d" * len(values) % tuple(values)).split()
    return b"%b", list(map(_json, values))


def _json(value: Value | None) -> bytes:
    return json.dumps(None if value is None else json_value(value)).encode()
