"""`tracking.json` of a run folder: where its numbers are sent, and how many have arrived."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from backends.files import read_json, write_json
from backends.runs.folder import RunFolder
from backends.text import clean_line
from backends.tracking.place import Place
from backends.tracking.tracker import Progress

INTERVAL = 10.0  # s between two writings if only the counts changed


def known_run_id(folder: RunFolder, place: Place) -> str | None:
    """The MLflow run that this run already has at `place`, if any."""
    value = read_json(folder.tracking) or {}
    run_id = value.get("run_id")
    return run_id if value.get("address") == place.shown and isinstance(run_id, str) else None


class TrackingFile:
    """Written when something changes, else every `INTERVAL` s. If it cannot be written, the sending goes on."""

    def __init__(self, folder: RunFolder, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._place = place
        self._clock = clock
        self._written: tuple[Any, ...] | None = None
        self._due = 0.0

    def write(self, progress: Progress, *, complete: bool = False) -> None:
        news = (progress.run_id, progress.trouble, complete)
        if news == self._written and self._clock() < self._due:
            return
        self._written, self._due = news, self._clock() + INTERVAL
        value = {
            "run_id": progress.run_id,
            "address": self._place.shown,
            "experiment": self._place.experiment,
            "sent": progress.sent,
            "waiting": progress.waiting,
            "complete": complete,
            "trouble": clean_line(progress.trouble) if progress.trouble else None,
        }
        with contextlib.suppress(OSError):
            write_json(self._folder.tracking, value)
