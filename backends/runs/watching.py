"""Watches the runs of a workspace for the lists of runs on the screens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backends.megatron.parser import Parser
from backends.megatron.record import Record
from backends.runs.catalog import RunInfo, describe, run_folders
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import RunFolder
from backends.workspace import Workspace

LOOK = 1.0  # s between two readings
TAIL = 1 << 16  # bytes at the end of a log; they nearly always hold its newest iteration


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run. `last`: the newest numbers in the log of a training run, by their names there (empty: not known).

    `checkpoint` is the iteration that the tracker file of its save folder names; None: there is nothing to load.
    """

    info: RunInfo
    last: Mapping[str, float] = field(default_factory=dict[str, float])
    checkpoint: int | None = None


def watch_runs(
    workspace: Workspace,
    closed: threading.Event,
    look: Callable[[RunFolder], RunInfo] = describe,
    interval: float = LOOK,
) -> Iterator[tuple[SeenRun, ...]]:
    """Yields all runs, newest first, at once and then after every change, until `closed` is set.

    A run whose end is written down is read only once, unless another run saves into its folder. A run that only seems to
    be over (its host is silent, its state cannot be read) is read again.
    """
    shown: tuple[SeenRun, ...] | None = None
    over: dict[Path, SeenRun] = {}
    logs: dict[Path, tuple[int, Mapping[str, float]]] = {}
    while not closed.is_set():
        seen = tuple(over.get(folder.path) or _seen(look(folder), logs) for folder in run_folders(workspace))
        busy = {run.info.save for run in seen if not run.info.over}
        over = {
            run.info.path: run
            for run in seen
            if run.info.ended and not run.info.again_due and run.info.save not in busy
        }
        if seen != shown:
            shown = seen
            yield seen
        closed.wait(interval)


def _seen(info: RunInfo, logs: dict[Path, tuple[int, Mapping[str, float]]]) -> SeenRun:
    if info.kind != "train":
        return SeenRun(info)
    found = read_tracker(Path(info.save)).iteration if info.save else None
    checkpoint = found if isinstance(found, int) else None
    if info.over:
        return SeenRun(info, checkpoint=checkpoint)
    log = RunFolder(info.path).log
    try:
        size = log.stat().st_size
    except OSError:
        return SeenRun(info, checkpoint=checkpoint)
    if logs.get(log, (-1, {}))[0] != size:
        logs[log] = size, newest_values(log)
    return SeenRun(info, logs[log][1], checkpoint)


def newest_values(log: Path, tail: int = TAIL) -> dict[str, float]:
    """The numbers of the newest iteration in the last `tail` bytes of `log`; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, 2) - tail, 0))
            data = file.read(tail)
    except OSError:
        return {}
    parser, record = Parser(), Record()
    record.apply(parser.feed(data))
    return {name: float(value) for name, value in record.last.items() if isinstance(value, int | float)}
