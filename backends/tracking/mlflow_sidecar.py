"""Sends a run to MLflow while it runs: `python -m backends.tracking.mlflow_sidecar RUNDIR WORKSPACE`.

It is a process of its own, so that MLflow can hang, crash or be away without harm to the supervisor and the job. It ends
when the run is over and everything was sent (status 0), or when MLflow stays away after that (status 1). Then
`mdk-tui track RUN` sends the rest from the run folder.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from backends.errors import UserError
from backends.files import hold_lock
from backends.runs.catalog import RunInfo, describe
from backends.runs.folder import RunFolder
from backends.settings import read_settings
from backends.tracking.lineage import subject_of_run
from backends.tracking.mlflow_store import MlflowStore
from backends.tracking.place import Place, tracking_place
from backends.tracking.sending import Ending, send
from backends.tracking.store import Store
from backends.tracking.tracker import Progress, Tracker
from backends.tracking.tracking_file import TrackingFile, known_run_id
from backends.workspace import Workspace

LOCK = "tracking.lock"  # in the run folder; whoever holds it sends the run
LOOK = 2.0  # s between two looks at the state of the run


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="mlflow_sidecar", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("workspace", type=Path)
    options = parser.parse_args(arguments)
    folder, workspace = RunFolder(options.folder), Workspace(options.workspace)
    if not hold_lock(folder.path / LOCK):
        sys.exit(0)  # another program sends this run
    os.nice(10)  # training comes first
    stopped = stop_asked()
    try:
        settings = read_settings(workspace.settings).mlflow
        place = tracking_place(settings, workspace, os.environ)
        complete = track_run(
            folder, workspace, place, MlflowStore(place), stopped, patience=60 * settings.patience_minutes
        )
    except UserError as error:
        sys.exit(str(error))
    sys.exit(0 if complete else 1)


def stop_asked() -> threading.Event:
    """An event that TERM sets. A thread waits for TERM: a handler could interrupt `wait` while that holds the event's lock."""
    stopped = threading.Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def wait() -> None:
        signal.sigwait([signal.SIGTERM])
        stopped.set()

    threading.Thread(target=wait, name="stop-signal", daemon=True).start()
    return stopped


def track_run(
    folder: RunFolder,
    workspace: Workspace,
    place: Place,
    store: Store,
    stopped: threading.Event,
    *,
    patience: float,
    tell: Callable[[Progress], None] = lambda progress: None,
    ended: Callable[[], Ending | None] | None = None,
) -> bool:
    """Send a run while it goes on, to its end. Returns whether everything arrived. The caller holds its lock.

    `ended` says when to stop following (default: when the run is over). Raises UserError for a run that cannot be tracked.
    """
    file = TrackingFile(folder, place)
    tracker = Tracker(subject_of_run(folder, workspace, known_run_id(folder, place)), store)

    def told(progress: Progress) -> None:
        file.write(progress)
        tell(progress)

    complete = send(tracker, ended or Watch(folder).ending, stopped, told, patience=patience)
    if complete:
        file.write(tracker.progress(), complete=True)
    return complete


class Watch:
    """Looks at the state of a run, at most every `LOOK` s."""

    def __init__(self, folder: RunFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._due = 0.0

    def ending(self) -> Ending | None:
        if self._clock() < self._due:
            return None
        self._due = self._clock() + LOOK
        info = describe(self._folder)
        if not info.over:
            return None
        self._due = 0.0  # the next call may read the state at once
        return ending_of(info)


def ending_of(info: RunInfo) -> Ending:
    """MLflow's status for the state of a run."""
    if not info.over:
        return Ending("RUNNING")
    try:
        ended = datetime.fromisoformat(info.ended).timestamp() if info.ended else None
    except ValueError:
        ended = None
    return Ending("FINISHED" if info.phase == "finished" else "FAILED", ended)


if __name__ == "__main__":
    main()
