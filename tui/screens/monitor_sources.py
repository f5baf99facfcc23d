"""Where the monitor's data come from: a log with its follower, the state of a run. Both end when they are closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.megatron.events import LogLine
from backends.megatron.follow import FileSource, Follower, PipeSource, Update
from backends.megatron.record import Record
from backends.runs.catalog import RunInfo, describe, find_run
from backends.runs.folder import RunFolder
from backends.text import clean_line
from backends.tracking.event_follower import EventFollower, is_event_path
from backends.workspace import Workspace

LINES_WAITING = 5000  # of a flood, the lines that wait to be shown; the log has the rest
LOOK = 1.0  # s between two looks at the state of a run


@dataclass(frozen=True, slots=True)
class Watched:
    """What a monitor looks at: a run (its log, and its state), or a log alone: a path, or the descriptor of a pipe.

    TensorBoard's event files, or a folder with them, take the place of a log that is not there.
    """

    name: str
    log: Path | int
    run: RunFolder | None = None

    @property
    def live(self) -> bool:
        return self.run is not None

    def follower(self) -> Follower | EventFollower:
        if isinstance(self.log, Path) and is_event_path(self.log):
            return EventFollower(self.log)
        return Follower(PipeSource(self.log) if isinstance(self.log, int) else FileSource(self.log))

    def news(self, follower: Follower | EventFollower) -> Iterator[News]:
        """What `follower` brings, with the age of the log. Runs in a thread: the disk may be far away."""
        for update in follower.updates():
            read = follower.path if isinstance(follower, EventFollower) else self.log
            yield News.of(update, None if isinstance(read, int) else _written(read))


def watched(workspace: Workspace, run: RunFolder | None, source: Path | int | None) -> Watched | None:
    """What is asked for; without a wish the newest run that runs, else the newest; None where there is none."""
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
    """Some updates of a follower as one. `reset`: the lines take the place of all that were shown before."""

    lines: tuple[LogLine, ...]
    record: Record
    caught_up: bool
    ended: bool
    note: str | None
    written: float | None  # s since the epoch: when the log last grew; None of a pipe
    reset: bool = False

    @classmethod
    def of(cls, update: Update, written: float | None) -> News:
        return cls(
            update.lines, update.record, update.caught_up, update.ended, update.note, written, update.reset
        )

    def then(self, later: News) -> News:
        """This, and what came after it. A line that came twice stands once, where it was first."""
        before = () if later.reset else self.lines
        lines = {line.number: line for line in (*before, *later.lines)}
        kept = tuple(lines.values())[-LINES_WAITING:]
        note, reset = later.note or self.note, self.reset or later.reset
        return News(kept, later.record, later.caught_up, later.ended, note, later.written, reset)


def _written(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def states(folder: RunFolder, closed: threading.Event, look: float = LOOK) -> Iterator[RunInfo]:
    """How a run does, whenever that changed, until `closed` or over."""
    shown: RunInfo | None = None
    while not closed.is_set():
        info = describe(folder)
        if info != shown:
            shown = info
            yield info
        if info.over:
            return
        closed.wait(look)
