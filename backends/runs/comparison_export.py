"""A comparison of runs as files: all values as CSV, figures and thinned curves as JSON, the curves as SVG."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias

from backends.megatron.record import SAMPLES, Axis, Record
from backends.megatron.segment import Segment
from backends.runs.picture import Drawn, svg
from backends.runs.side_by_side import Subject, differing_arguments, figures, short_names

Kind: TypeAlias = Literal["csv", "json", "svg"]

HEAD = ("run", "attempt", "iteration", "time", "tokens")
POINTS = 500  # of a curve in JSON


def write_csv(file: TextIO, subjects: Sequence[Subject], records: Sequence[Record]) -> None:
    """One row per iteration line: run, attempt, iteration, time (s since 1970), tokens, then all metrics. Raises OSError."""
    metrics = list(dict.fromkeys(name for record in records for name in record.metrics()))
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*HEAD, *metrics])
    for subject, record in zip(subjects, records, strict=True):
        with record.lock:
            segments = list(record.segments)
        for number, segment in enumerate(segments, 1):
            for row in _rows(record, segment, metrics):
                writer.writerow([subject.name, number, *row])


def _rows(record: Record, segment: Segment, metrics: Sequence[str]) -> Iterator[list[object]]:
    with record.lock:  # the log may still be growing
        columns: dict[str, dict[float, float]] = {
            name: dict(zip(series.iterations, series.values, strict=True))
            for name in metrics
            if (series := segment.series.get(name)) is not None
        }
    length = record.sequence_length
    samples = columns.get(SAMPLES, {})
    for iteration in sorted(set[float]().union(*columns.values())):
        time = segment.time_at(iteration)
        tokens = samples[iteration] * length if length and iteration in samples else None
        yield [
            int(iteration),
            "" if time is None else f"{time:.3f}",
            "" if tokens is None else int(tokens),
            *(_number(columns.get(name, {}).get(iteration)) for name in metrics),
        ]


def _number(value: float | None) -> object:
    if value is None:
        return ""
    return value if isinstance(value, int) else f"{value:.10g}"


def comparison_json(subjects: Sequence[Subject], records: Sequence[Record], metric: str) -> dict[str, Any]:
    """The object of `mdk-tui compare --json`."""
    return {
        "metric": metric,
        "runs": [
            {
                "name": subject.name,
                "log": str(subject.log),
                "run": subject.run.name if subject.run else None,
                "figures": figures(record),
                "curves": _curves(record, metric),
            }
            for subject, record in zip(subjects, records, strict=True)
        ],
        "arguments": [
            {"name": row.name, "values": list(row.values)} for row in differing_arguments(subjects, records)
        ],
    }


def _curves(record: Record, metric: str) -> list[dict[str, list[float]]]:
    """One curve per attempt, thinned; minima and maxima are kept."""
    with record.lock:
        found = record.curves(metric, buckets=POINTS)
    return [{"iteration": c.xs, "min": c.lows, "max": c.highs, "mean": c.means} for c in found]


def export(
    kind: Kind,
    folder: Path,
    subjects: Sequence[Subject],
    records: Sequence[Record],
    metric: str,
    *,
    x: Axis = "iteration",
    log: bool = False,
) -> Path:
    """Write a new file into `folder`: compare.csv, .json or .svg, with a number if the name is taken. Raises OSError.

    `x` and `log` are the axes of the picture.
    """
    path, file = _new_file(folder, kind)
    with file:
        if kind == "csv":
            write_csv(file, subjects, records)
        elif kind == "json":
            json.dump(comparison_json(subjects, records, metric), file, indent=1)
        else:
            file.write(comparison_svg(subjects, records, metric, x=x, log=log))
    return path


def comparison_svg(
    subjects: Sequence[Subject],
    records: Sequence[Record],
    metric: str,
    *,
    x: Axis = "iteration",
    log: bool = False,
) -> str:
    """The curves of `metric`, one colour per subject. Times are s since the first point of each subject."""
    drawn: list[Drawn] = []
    for name, record in zip(short_names(subjects), records, strict=True):
        with record.lock:
            curves = record.curves(metric, x=x, buckets=2 * POINTS)
        if x == "time":
            begun = min((curve.xs[0] for curve in curves if curve.xs), default=0.0)
            curves = [replace(curve, xs=[time - begun for time in curve.xs]) for curve in curves]
        drawn.append(Drawn(name, curves))
    return svg(metric, drawn, x_label="time (s)" if x == "time" else x, log=log)


def _new_file(folder: Path, kind: Kind) -> tuple[Path, TextIO]:
    for number in range(1, 10_000):
        path = folder / f"compare{'' if number == 1 else f'-{number}'}.{kind}"
        try:
            return path, path.open("x", encoding="utf-8")
        except FileExistsError:
            continue
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder / f"compare.{kind}"))
