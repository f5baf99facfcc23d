"""Summarises a whole log: last values, totals, alerts, diagnosis."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backends.megatron.diagnosis import Diagnosis, diagnose
from backends.megatron.event_json import json_value, unroll
from backends.megatron.events import Event, Memory
from backends.megatron.log_file import open_log, read_chunks
from backends.megatron.parser import Parser
from backends.megatron.record import Record

LISTED = 20  # newest validations and checkpoints that are shown
GRAVE = frozenset({"error", "critical"})  # severities of alerts that call for attention


def read_record(chunks: Iterable[bytes], curves: bool = True) -> Record:
    """The record of a whole log."""
    record, parser = Record(curves), Parser()
    for data in chunks:
        record.apply(parser.feed(data))
    record.apply(parser.finish())
    return record


def read_log(path: Path) -> Record:
    """The record of the log at `path`. Raises UserError."""
    with open_log(path) as file:
        return read_record(read_chunks(file, str(path)))


def summary(record: Record) -> dict[str, Any]:
    """The object of `mdk-tui summary --json`. NaN and infinities are strings.

    `attention` lists the kinds of what needs a look: why the newest attempt failed, and its grave alerts.
    """
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
        "seconds_left": record.seconds_left() if found.phase == "running" else None,
        "iterations_logged": record.iterations_seen,
        "segments": [
            {"line": s.line, "first": s.first, "last": s.last, "started": s.started, "ended": s.ended}
            for s in record.segments
        ],
        "attention": attention(record, found),
        "cause": row_of(found.cause) if found.cause else None,
        "advice": found.advice or None,
        "alerts": [row_of(event) for event in record.alerts],
        "errors": [row_of(event) for event in record.all_errors()],
        "parameter_count": record.parameter_count,
        "parameters": dict(record.parameters),
        "memory": [memory_of(event) for event in record.memory.values()],
        "theoretical_memory": memory_of(record.theoretical)["values"] if record.theoretical else None,
        "validations": [row_of(event) for event in list(record.validations)[-LISTED:]],
        "checkpoints": [row_of(event) for event in list(record.checkpoints)[-LISTED:]],
        "exits": [row_of(event) for event in record.exits],
    }


def attention(record: Record, found: Diagnosis) -> list[str]:
    """Kinds of what needs attention in the newest attempt; empty if all is well."""
    kinds = (
        [found.cause.kind] if found.cause else [found.phase] if found.phase in ("failed", "unknown") else []
    )
    grave = [a.kind for a in record.alerts if a.severity in GRAVE and a.line >= found.since]
    return list(dict.fromkeys([*kinds, *(["hanging"] if found.hanging else []), *grave]))


def memory_of(event: Memory) -> dict[str, Any]:
    """MiB by rank."""
    values = {name: json_value(value) for name, value in event.values.items()}
    return {"rank": event.rank, "iteration": event.iteration, "values": values}


def row_of(event: Event) -> dict[str, Any]:
    """A single event as `parse --json` prints it."""
    (row,) = unroll(event)
    return row
