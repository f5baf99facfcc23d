"""Compares runs and logs: the final figures of each, and the arguments in which they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from backends.errors import UserError
from backends.megatron.diagnosis import diagnose
from backends.megatron.record import Record
from backends.models.arguments import group_arguments
from backends.runs.catalog import find_log
from backends.runs.folder import RunFolder
from backends.text import clean_line
from backends.workspace import Workspace

LOSS = "lm loss"
THROUGHPUT = "throughput per GPU (TFLOP/s/GPU)"
OWN = frozenset({"rank", "local_rank"})  # arguments that say nothing about a run

Figure: TypeAlias = "float | int | str | None"


@dataclass(frozen=True, slots=True)
class Subject:
    """One run or log to compare. `planned`: the arguments it was launched with, if it is a run of ours."""

    name: str
    log: Path
    run: RunFolder | None = None
    planned: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ArgumentRow:
    """One argument and its value in each subject; None: not known."""

    name: str
    values: tuple[str | None, ...]


def subject(workspace: Workspace, name: str) -> Subject:
    """The log at the path `name`, else the run of that name. Raises UserError."""
    log, run = find_log(workspace, name)
    if run is None:
        return Subject(clean_line(name, 200), log)
    try:
        planned = planned_arguments(run.plan().arguments)
    except UserError:
        planned = None
    return Subject(run.name, log, run, planned)


def subjects(workspace: Workspace, names: Sequence[str]) -> list[Subject]:
    """The subjects that `names` mean, each once. Raises UserError, also for fewer than two."""
    found = {found.log.resolve(): found for found in (subject(workspace, name) for name in names)}
    if len(found) < 2:
        raise UserError(
            "There is nothing to compare with.",
            "Name two or more runs or logs: mdk-tui compare A B",
            status=2,
        )
    return list(found.values())


def short_names(subjects: Sequence[Subject]) -> list[str]:
    """Names for a legend: a log without folder and suffix, unless two would have the same name."""
    short = [each.name if each.run else clean_line(each.log.stem, 200) for each in subjects]
    return [name if short.count(name) == 1 else each.name for name, each in zip(short, subjects, strict=True)]


def planned_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """Arguments by the names that Megatron prints: `--num-layers 2` is num_layers 2, a flag alone is True."""
    return {
        flag.removeprefix("--").replace("-", "_"): " ".join(values) or "True"
        for flag, values in group_arguments(arguments)
        if flag
    }


def arguments_of(subject: Subject, record: Record) -> Mapping[str, str]:
    """All arguments as the log prints them, else those that the run was launched with."""
    with record.lock:
        return dict(record.arguments) or subject.planned or {}


def differing_arguments(subjects: Sequence[Subject], records: Sequence[Record]) -> list[ArgumentRow]:
    """The arguments that differ, by name; first those with two different values, then those that some subjects lack.

    A plan does not list the defaults, so an argument that it leaves out counts as unknown.
    """
    found = [arguments_of(subject, record) for subject, record in zip(subjects, records, strict=True)]
    printed = [bool(record.arguments) for record in records]
    rows: list[ArgumentRow] = []
    lonely: list[ArgumentRow] = []
    for name in sorted({name for arguments in found for name in arguments} - OWN):
        values = tuple(arguments.get(name) for arguments in found)
        known = {plain(value) for value in values if value is not None}
        missing = any(value is None and all_said for value, all_said in zip(values, printed, strict=True))
        if len(known) > 1 or (known and missing):
            (rows if len(known) > 1 else lonely).append(ArgumentRow(name, values))
    return rows + lonely


def plain(value: str) -> str:
    """The same text for the same number, however it is written."""
    try:
        return repr(float(value))
    except ValueError:
        return value.strip()


def figures(record: Record) -> dict[str, Figure]:
    """The final figures, by names that also head the columns of a table. Times in s, memory in MiB, which Megatron-LM prints as MB."""
    with record.lock:
        lowest = [curve.lows[0] for curve in record.curves(LOSS, buckets=1) if curve.lows]
        return {
            "phase": diagnose(record).phase,
            "iteration": record.iteration,
            "loss": _number(record.last.get(record.name_here(LOSS))),
            "lowest loss": min(lowest, default=None),
            "validation loss": _validation(record, test=False),
            "test loss": _validation(record, test=True),
            "tokens": record.tokens,
            "elapsed (s)": elapsed(record),
            "iteration (ms)": record.iteration_ms,
            "tokens/s": record.tokens_per_second,
            "TFLOP/s/GPU": _number(record.last.get(THROUGHPUT)),
            "memory (MiB)": _most_memory(record),
            "parameters": _number(record.parameter_count),
            "attempts": len(record.segments),
            "errors": len(record.all_errors()),
        }


def elapsed(record: Record) -> float | None:
    """Duration of all attempts in s by their time stamps, without the pauses between them."""
    spans = [s.clock.times[-1] - s.clock.times[0] for s in record.segments if s.clock.times]
    return sum(spans) if spans else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _most_memory(record: Record) -> float | None:
    """Peak allocated memory in MiB of the rank that needed most."""
    peaks = [event.values.get("max allocated") for event in record.memory.values()]
    return max((float(peak) for peak in peaks if peak is not None), default=None)


def _validation(record: Record, *, test: bool) -> float | None:
    """The loss of the newest evaluation."""
    for result in reversed(record.validations):
        if (result.set == "test") == test:
            return _number(result.values.get("lm loss value", next(iter(result.values.values()), None)))
    return None
