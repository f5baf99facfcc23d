"""The sources of the monitor: a log and its follower, the state of a run, GPU readings, the runs that it continues.

Everything here reads disks and runs in threads; each source ends when it is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from backends.errors import UserError
from backends.megatron.events import LogLine
from backends.megatron.follow import FileSource, Follower, PipeSource, Update
from backends.megatron.record import Record
from backends.runs.catalog import RunInfo, describe, find_run
from backends.runs.file_writers import written_here
from backends.runs.folder import RunFolder
from backends.runs.processes import this_machine
from backends.telemetry.history import TelemetryFile, newest_by_host
from backends.telemetry.readings import Snapshot
from backends.telemetry.timeline import Timeline
from backends.text import clean_line
from backends.tracking.event_follower import EventFollower
from backends.tracking.event_paths import is_event_path
from backends.tracking.standing import Standing, lag_of, read_standing
from backends.workspace import Workspace

LINES_WAITING = 5000  # most lines that wait to be shown; the file has the rest
LOOK = 1.0  # s between two looks at the state of a run
FAR_LOOK = 5.0  # s between two looks at what another host writes
MOST_PATIENT = 30.0  # s between two searches for the writer of a log: each asks all processes
NOT_SEEN = "The job does not run on this machine: its GPUs cannot be read from here."


@dataclass(frozen=True, slots=True)
class Watched:
    """What a monitor shows: a run (its log and its state), or a log alone (a path, or the descriptor of a pipe).

    TensorBoard's event files, or a folder with them, take the place of a log that is not there.
    """

    name: str
    log: Path | int
    run: RunFolder | None = None

    @property
    def file(self) -> Path | None:
        """The file of the log, if it has one."""
        return self.log if isinstance(self.log, Path) and not is_event_path(self.log) else None

    def follower(self) -> Follower | EventFollower:
        if isinstance(self.log, Path) and self.file is None:
            return EventFollower(self.log)
        return Follower(PipeSource(self.log) if isinstance(self.log, int) else FileSource(self.log))

    def news(self, follower: Follower | EventFollower) -> Iterator[News]:
        """The updates of `follower`, with the age of the log. Runs in a thread: the disk may be slow."""
        for update in follower.updates():
            read = follower.path if isinstance(follower, EventFollower) else self.log
            yield News.of(update, None if isinstance(read, int) else _written(read))


def watched(workspace: Workspace, run: RunFolder | None, source: Path | int | None) -> Watched | None:
    """What is asked for, else the newest run that is alive, else the newest run; None if there is no run."""
    if source is not None:
        name = "standard input" if isinstance(source, int) else clean_line(str(source), 200)
        return Watched(name, source)
    if run is None:
        try:
            run = find_run(workspace, None)
        except UserError:
            return None
    info = describe(run)
    name = f"{info.title} · {run.name}" if info.title else run.name
    return Watched(name, run.log, run)


@dataclass(frozen=True, slots=True)
class News:
    """Several updates of a follower in one. `reset`: the lines replace all that were shown before.

    `before`: lines of the files whose place the log's file took.
    """

    lines: tuple[LogLine, ...]
    record: Record
    caught_up: bool
    ended: bool
    note: str | None
    written: float | None  # s since the epoch: when the log last grew; None of a pipe
    reset: bool = False
    before: int = 0

    @classmethod
    def of(cls, update: Update, written: float | None) -> News:
        return cls(
            update.lines,
            update.record,
            update.caught_up,
            update.ended,
            update.note,
            written,
            update.reset,
            update.before,
        )

    def then(self, later: News) -> News:
        """This and `later` in one. A line that came twice is kept once, at its first place."""
        before = () if later.reset else self.lines
        lines = {line.number: line for line in (*before, *later.lines)}
        kept = tuple(lines.values())[-LINES_WAITING:]
        note, reset = later.note or self.note, self.reset or later.reset
        return replace(later, lines=kept, note=note, reset=reset)


def _written(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def states(folder: RunFolder, closed: threading.Event, look: float = LOOK) -> Iterator[RunInfo]:
    """The state of a run whenever it changes, until `closed` or the run is over."""
    shown: RunInfo | None = None
    while not closed.is_set():
        info = describe(folder)
        if info != shown:
            shown = info
            yield info
        if info.over and not info.again_due:
            return
        closed.wait(look)


def standings(
    folder: RunFolder, closed: threading.Event, look: float = FAR_LOOK
) -> Iterator[Standing | None]:
    """The state of MLflow tracking whenever it begins, ends or falls behind, until `closed` or all is sent."""
    shown: tuple[str, str] | None = None
    while not closed.is_set():
        standing = read_standing(folder)
        state = folder.state()
        over = state is not None and state.over
        lag = lag_of(standing, over=over)
        if lag != shown:
            shown = lag
            yield standing
        if over and (standing is None or standing.complete):
            return
        closed.wait(look)


class Live(Protocol):
    """Readings of this machine, until closed."""

    def snapshots(self) -> Iterator[Snapshot]: ...
    def close(self) -> None: ...


def this_machines_gpus() -> Live:
    from backends.telemetry.collector import Collector

    return Collector()


@dataclass(frozen=True, slots=True)
class Reading:
    """What the memory panel shows: the newest snapshot of each node, and a note why there are none or how old they are.

    `timeline`: what was recorded before; None: as before.
    """

    snapshots: tuple[Snapshot, ...] = ()
    note: str = ""
    timeline: Timeline | None = None


class Readings:
    """GPU readings for a log: live where the job runs on this machine, else from the file that its supervisor writes.

    For a log that is no run's, all that can be known is whether a process of this machine writes it.
    """

    def __init__(self, wanted: Watched, live: Callable[[], Live] = this_machines_gpus) -> None:
        self._wanted = wanted
        self._make = live
        self._live: Live | None = None
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()
        if self._live is not None:
            self._live.close()

    def __call__(self) -> Iterator[Reading]:
        run, log = self._wanted.run, self._wanted.log
        if run is None:
            yield from self._of_somebody(log)
            return
        file = TelemetryFile(run.telemetry)
        timeline = Timeline()
        recorded = file.history()
        timeline.add(recorded)
        yield Reading(_newest(recorded), timeline=timeline)
        state = run.state()
        if state is not None and state.over:
            yield Reading(_newest(recorded), last_seen(recorded))
        elif state is None or state.machine == this_machine():
            yield from self._now()
        else:
            yield from self._elsewhere(file, recorded)

    def _of_somebody(self, log: Path | int) -> Iterator[Reading]:
        """Readings of this machine once one of its processes writes the log; searched while the log grows."""
        seen, pause, told = None, LOOK, False
        while not self._closed.is_set():
            written = _written(log) if isinstance(log, Path) else None
            if written != seen and isinstance(log, Path) and written_here(log):
                yield from self._now()
                return
            if not told:
                told = True
                yield Reading(note=NOT_SEEN)
            if isinstance(log, int):
                return
            seen = written
            self._closed.wait(pause)
            pause = min(2 * pause, MOST_PATIENT)

    def _now(self) -> Iterator[Reading]:
        self._live = self._make()
        if not self._closed.is_set():
            for snapshot in self._live.snapshots():
                yield Reading((snapshot,))

    def _elsewhere(self, file: TelemetryFile, recorded: list[Snapshot]) -> Iterator[Reading]:
        newest = newest_by_host(recorded)
        while not self._closed.wait(FAR_LOOK):
            if fresh := file.read():
                newest |= newest_by_host(fresh)
                yield Reading(tuple(newest.values()))


def _newest(recorded: list[Snapshot]) -> tuple[Snapshot, ...]:
    return tuple(newest_by_host(recorded).values())


def last_seen(recorded: Sequence[Snapshot]) -> str:
    """The age of the newest readings, in words."""
    if not recorded:
        return "No GPU readings were recorded."
    return f"last reading {datetime.fromtimestamp(recorded[-1].time):%Y-%m-%d %H:%M}"
