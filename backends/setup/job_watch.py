"""Watching the jobs of the steps: their state, how far they are, the newest lines they printed. By polling files."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from backends.setup.job import JobFolder, job_folder
from backends.setup.job_state import JobState
from backends.setup.progress import Progress, read_progress
from backends.setup.step import Action
from backends.text import clean_line
from backends.workspace import Workspace

KEPT = 500  # lines
CHUNK = 2**20  # bytes at a time; of a long log only the end is read
LINE = 4000  # characters of a line that are kept
INTERVAL = 0.4  # s
STEADY = 2.0  # s before a rate is believed


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at one moment. `left` is in seconds, of the present command, None while it cannot be told."""

    state: JobState
    actions: tuple[Action, ...]
    progress: Progress | None
    left: float | None
    lines: tuple[str, ...]

    @property
    def title(self) -> str:
        """Of the present command, or of the last one."""
        at = self.state.action
        return self.actions[at].title if 0 <= at < len(self.actions) else ""


class JobWatch:
    """Follows the job of one step. `look` costs a stat while nothing changes."""

    def __init__(self, folder: JobFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._started = -1.0
        self._seen: int | None = None  # when the state was written that was read last
        self._view: JobView | None = None
        self._forget()

    def _forget(self) -> None:
        self._offset = 0
        self._actions: tuple[Action, ...] = ()
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._rest = ""
        self._rewritten = False  # the newest line ended with \r: the next takes its place
        self._progress: Progress | None = None
        self._first: tuple[float, float] | None = None  # when, and how far then
        self._documents = 0

    def look(self) -> JobView | None:
        """None when the step never had a job."""
        stamp = self._stamp()
        if self._view is not None and self._view.state.phase != "running" and stamp == self._seen:
            return self._view
        self._seen = stamp
        state = self._folder.state()
        if state is None:
            return None
        if state.started != self._started:
            self._forget()
            self._started = state.started
            self._actions = tuple(self._folder.actions())
        self._read()
        running = state.phase == "running"
        left = self._left() if running else None
        progress = self._progress if running else None
        self._view = JobView(state, self._actions, progress, left, tuple(self._lines))
        return self._view

    def _stamp(self) -> int | None:
        try:
            return self._folder.state_file.stat().st_mtime_ns
        except OSError:
            return None

    def _read(self) -> None:
        try:
            with self._folder.log.open("rb") as file:
                size = file.seek(0, 2)
                if size < self._offset:
                    self._offset = 0
                if size - self._offset > CHUNK:
                    self._offset, self._rest = size - CHUNK, ""
                file.seek(self._offset)
                data = file.read(CHUNK)
        except OSError:
            return
        self._offset += len(data)
        text = self._rest + data.decode(errors="replace")
        *pieces, self._rest = text.replace("\r\n", "\n").replace("\r", "\r\n").split("\n")
        self._rest = self._rest[-LINE:]
        for piece in pieces:
            self._line(piece)

    def _line(self, piece: str) -> None:
        line = clean_line(piece.rstrip("\r"), LINE)
        if self._rewritten and not line:  # the rest of a \r\n that came in two pieces
            self._rewritten = False
            return
        if self._rewritten and self._lines:
            self._lines.pop()
        self._lines.append(line)
        self._rewritten = piece.endswith("\r")
        for action in self._actions:
            if line == f"# {action.title}":
                self._progress, self._first, self._documents = None, None, action.documents
        if found := read_progress(line, self._documents or None):
            self._told(found)

    def _told(self, found: Progress) -> None:
        before = self._progress.fraction if self._progress else None
        if found.fraction is not None and (self._first is None or found.fraction < (before or 0)):
            self._first = self._clock(), found.fraction
        self._progress = found

    def _left(self) -> float | None:
        """The time left, from the mean rate since the first reading: what a resumed download found does not count."""
        if self._first is None or self._progress is None or self._progress.fraction is None:
            return None
        when, fraction = self._first
        passed, done = self._clock() - when, self._progress.fraction - fraction
        if passed < STEADY or done <= 0:
            return None
        return passed * (1 - self._progress.fraction) / done


def watch_jobs(
    workspace: Workspace, steps: Sequence[str], ended: threading.Event, interval: float = INTERVAL
) -> Iterator[Mapping[str, JobView]]:
    """The jobs of `steps` by name, whenever something about them changed, until `ended` is set."""
    watches = {name: JobWatch(job_folder(workspace, name)) for name in steps}
    shown: dict[str, JobView] | None = None
    while not ended.is_set():
        seen = {name: view for name, watch in watches.items() if (view := watch.look()) is not None}
        if seen != shown:
            shown = seen
            yield seen
        ended.wait(interval)
