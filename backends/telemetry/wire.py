"""Snapshots as JSON, between the probe and its reader and in telemetry.jsonl (one object a node and interval).

The keys are the fields of `readings`. The input is not trusted: wrong types become None, and text is cleaned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar, cast

from backends.telemetry.readings import GpuProcess, GpuReading, HostReading, Snapshot
from backends.text import clean_line

T = TypeVar("T")
TEXT_LIMIT = 200  # characters of a name
MAX_PROCESSES = 1000


def encode(snapshot: Snapshot) -> dict[str, Any]:
    """One line of telemetry.jsonl, as a dict."""
    return asdict(snapshot)


def decode(value: object) -> Snapshot | None:
    """The snapshot in `value` (parsed JSON), or None."""
    fields = _mapping(value)
    time = _number(fields.get("time"))
    host = _mapping(fields.get("host"))
    name = _text(host.get("host"))
    if time is None or name is None:
        return None
    reading = HostReading(
        host=name,
        cores=_count(host.get("cores")),
        cpu_percent=_number(host.get("cpu_percent")),
        load=_number(host.get("load")),
        memory_used=_count(host.get("memory_used")),
        memory_total=_count(host.get("memory_total")),
    )
    return Snapshot(time, reading, decode_gpus(fields.get("gpus")), _text(fields.get("gpu_note")))


def decode_line(line: bytes | str) -> Snapshot | None:
    """`decode` of one line; None if it is no JSON."""
    return decode(parse_json(line))


def parse_json(line: bytes | str) -> object:
    """The JSON value of one line; None for invalid or too deeply nested JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def decode_gpus(value: object) -> tuple[GpuReading, ...]:
    """The GPUs in a list of parsed JSON. Entries without an index are ignored."""
    return tuple(gpu for entry in _list(value) if (gpu := _gpu(_mapping(entry))) is not None)


def _gpu(fields: Mapping[str, object]) -> GpuReading | None:
    index = _count(fields.get("index"))
    if index is None:
        return None
    return GpuReading(
        index=index,
        name=_text(fields.get("name")),
        memory_used=_count(fields.get("memory_used")),
        memory_total=_count(fields.get("memory_total")),
        utilization=_number(fields.get("utilization")),
        power=_number(fields.get("power")),
        power_limit=_number(fields.get("power_limit")),
        temperature=_number(fields.get("temperature")),
        sm_clock=_number(fields.get("sm_clock")),
        processes=_maybe(fields.get("processes"), _processes),
        throttling=_maybe(fields.get("throttling"), _words),
        ecc_errors=_count(fields.get("ecc_errors")),
        note=_text(fields.get("note")),
    )


def _processes(values: list[object]) -> tuple[GpuProcess, ...]:
    found: list[GpuProcess] = []
    for fields in map(_mapping, values[:MAX_PROCESSES]):
        pid = _count(fields.get("pid"))
        if pid is not None:
            memory, name, user = (fields.get(key) for key in ("memory", "name", "user"))
            found.append(GpuProcess(pid, _count(memory), _text(name), _text(user)))
    return tuple(found)


def _words(values: list[object]) -> tuple[str, ...]:
    return tuple(word for value in values[:20] if (word := _text(value)) is not None)


def _maybe(value: object, read: Callable[[list[object]], T]) -> T | None:
    return read(cast("list[object]", value)) if isinstance(value, list) else None


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return clean_line(value, TEXT_LIMIT) if isinstance(value, str) else None


def _number(value: object) -> float | None:
    """A finite number (Python's JSON may contain NaN and infinities)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
        return None
    return value


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 else None
