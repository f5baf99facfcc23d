"""One look at a whole log: last values, totals, alerts, diagnosis."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from backends.megatron.diagnosis import diagnose
from backends.megatron.event_json import json_value, unroll
from backends.megatron.parser import Parser
from backends.megatron.record import Record

CHUNK = 2**20  # bytes


def read_record(file: BinaryIO) -> Record:
    """Read a log to its end."""
    record, parser = Record(), Parser()
    while data := file.read(CHUNK):
        record.apply(parser.feed(data))
    record.apply(parser.finish())
    return record


def read_log(path: Path) -> Record:
    """The record of the log at `path`. Raises OSError."""
    with path.open("rb") as file:
        return read_record(file)


def summary(record: Record) -> dict[str, Any]:
    """The object of `mdk-tui summary --json`. NaN and infinities are strings."""
    found = diagnose(record)
    return {
        "phase": found.phase,
        "hanging": found.hanging,
        "iteration": record.iteration,
        "train_iters": record.train_iters,
        "time": record.last_time,
        "last": {name: json_value(value) for name, value in record.last.items()},
        "tokens": record.tokens,
        "tokens_per_second": record.tokens_per_second,
        "seconds_left": record.seconds_left(),
        "iterations_logged": record.iterations_seen,
        "segments": [
            {"line": s.line, "first": s.first, "last": s.last, "started": s.started, "ended": s.ended}
            for s in record.segments
        ],
        "alerts": [_trouble(event) for event in record.alerts],
        "errors": [_trouble(event) for event in record.all_errors()],
        "cause": _trouble(found.cause) if found.cause else None,
        "advice": found.advice or None,
        "parameters": dict(record.parameters),
        "memory": [
            {"rank": m.rank, "iteration": m.iteration, "values": dict(m.values)}
            for m in record.memory.values()
        ],
        "validations": [row for event in list(record.validations)[-20:] for row in unroll(event)],
        "checkpoints": [row for event in list(record.checkpoints)[-20:] for row in unroll(event)],
        "exits": [row for event in record.exits for row in unroll(event)],
    }


def _trouble(event: Any) -> dict[str, Any]:
    (row,) = unroll(event)
    return row
