"""Events as the JSON objects of `mdk-tui parse --json`, one a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from backends.megatron.events import Event, IterationBatch, Value


def unroll(event: Event) -> Iterator[dict[str, Any]]:
    """The objects of one event: one a line of the log for a batch, else one."""
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
    found: dict[str, Any] = {"event": type(event).__name__.lower()}
    for field in fields(event):
        value = getattr(event, field.name)
        found[field.name] = _plain(value)
    yield found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, tuple):
        return [_plain(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    return json_value(value) if isinstance(value, (int, float, str)) else value


def json_value(value: Value) -> Value:
    """NaN and infinities as "nan", "inf", "-inf": JSON has no numbers for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
