"""Sends until everything has arrived. A store that is away is tried again after growing pauses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from backends.tracking.feed import MOST
from backends.tracking.store import Status, StoreError
from backends.tracking.tracker import Progress, Tracker

INTERVAL = 2.0  # s between two batches of a log that grows slowly
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # s before the store is asked again


@dataclass(frozen=True, slots=True)
class Ending:
    """How the tracked run ended. `time`: s since the epoch. "RUNNING": it goes on beyond the end of its files."""

    status: Status
    time: float | None = None


def send(
    tracker: Tracker,
    ended: Callable[[], Ending | None],
    stopped: threading.Event,
    tell: Callable[[Progress], None],
    *,
    patience: float,
    interval: float = INTERVAL,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Send until `ended` returns how the run ended. Returns whether everything arrived.

    It gives up if the store stays away for `patience` s after the end, or if `stopped` is set.
    """
    pause, given_up = FIRST_PAUSE, None
    while not stopped.is_set():
        ending = ended()  # asked before reading, so that everything written before the end is read
        try:
            count = tracker.step()
            tell(tracker.progress())
            if ending is not None and not count:
                return _finish(tracker, ending, tell)
        except StoreError as error:
            tell(tracker.progress(str(error)))
            now = clock()
            given_up = given_up or (now + patience if ending is not None else None)
            if given_up is not None and now >= given_up:
                return False
            stopped.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            continue
        pause = FIRST_PAUSE
        if count < MOST // 2 and ending is None:
            stopped.wait(interval)
    return False


def _finish(tracker: Tracker, ending: Ending, tell: Callable[[Progress], None]) -> bool:
    """Raises StoreError."""
    if ending.status != "RUNNING":
        tracker.finish_reading()
        while tracker.step():
            tell(tracker.progress())
    tracker.end(ending.status, ending.time)
    tell(tracker.progress())
    return True
