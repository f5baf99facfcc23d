"""Writes events as the JSON objects of `mdk-tui parse --json`, one object a line."""

from __future__ import annotations

import functools
import json
import math
import operator
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any, cast

from backends.megatron.events import Event, IterationBatch, Timers, Value
from backends.megatron.printed_columns import IsoTimes, PrintedNumbers
from backends.megatron.timers import NUMBERS, TimerTexts


def in_order(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The objects of `events`, which arrived together, in the order of the log's lines."""
    return sorted((row for event in events for row in unroll(event)), key=itemgetter("line"))


def json_lines(events: Iterable[Event]) -> list[bytes]:
    """The objects of `in_order` as text. Iteration lines and timers are written column by column, ten times as fast."""
    numbers, lines = list[int](), list[bytes]()  # of the log; of the result
    for event in gathered(events):
        if isinstance(event, IterationBatch):
            numbers += event.lines
            lines += _batch(event)
        elif isinstance(event, Timers) and (texts := _timers(event)):
            numbers += event.lines
            lines += texts
        else:
            for row in unroll(event):
                numbers.append(row["line"])
                lines.append(json.dumps(row).encode())
    if any(map(operator.gt, numbers, numbers[1:])):
        order = sorted(range(len(lines)), key=numbers.__getitem__)
        return [lines[i] for i in order]
    return lines


def gathered(events: Iterable[Event]) -> Iterator[Event]:
    """The same events, with all timers of one form and one rank joined into one event."""
    forms: dict[tuple[int | None, bytes], tuple[list[int], list[bytes]]] = {}
    for event in events:
        if not (isinstance(event, Timers) and isinstance(event.values, TimerTexts)):
            yield event
            continue
        for line, text in zip(event.lines, event.values.texts, strict=True):
            lines, texts = forms.setdefault((event.rank, text.translate(None, NUMBERS)), ([], []))
            lines.append(line)
            texts.append(text)
    for (rank, _), (lines, texts) in forms.items():
        yield Timers(lines, rank, TimerTexts(texts))


def unroll(event: Event) -> Iterator[dict[str, Any]]:
    """The objects of one event: one for each line of a batch or entry of timers, else one."""
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
    kind, names = _shape(type(event))
    yield {"event": kind, **{name: _plain(getattr(event, name)) for name in names}}


@functools.cache
def _shape(kind: type[Event]) -> tuple[str, list[str]]:
    return kind.__name__.lower(), [field.name for field in fields(kind)]


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


# One format string makes all rows of a table. Its arguments are the columns whose values differ.


def _batch(batch: IterationBatch) -> list[bytes]:
    arguments: list[Sequence[bytes]] = []
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


def _timers(event: Timers) -> list[bytes]:
    """Empty if the timers cannot be read as one table."""
    table = event.values.table() if isinstance(event.values, TimerTexts) else None
    if table is None:
        return []
    arguments: list[Sequence[bytes]] = []
    line = _field("line", event.lines, arguments)
    arguments += table.columns
    form = b'{"event": "timers", %b, "rank": %b, "values": {%b}}' % (
        line,
        _json(event.rank),
        b", ".join([_key(name) + b": [%b, %b]" for name in table.names]),
    )
    return list(map(form.__mod__, zip(*arguments)))  # noqa: B905 (equal)


def _field(name: str, column: Sequence[Value | None], arguments: list[Sequence[bytes]]) -> bytes:
    """The part of the format string for one key. A column whose values differ is added to `arguments`."""
    value, texts = _texts(column)
    if texts is not None:
        arguments.append(texts)
    return _key(name) + b": " + value


def _key(name: str) -> bytes:
    return json.dumps(name).replace("%", "%%").encode()


def _texts(column: Sequence[Value | None]) -> tuple[bytes, list[bytes] | None]:
    """The part of a format string for a value of `column`, and the texts of the values; None if all values are equal."""
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
