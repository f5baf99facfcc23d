"""Writes state.json only when something changed or a heartbeat is due."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime

from backends.runs.folder import RunFolder
from backends.runs.state import RunState

HEARTBEAT = 10.0  # s between two writings of state.json when nothing happens
NEWS = 2.0  # s; the greatest age of the iteration in state.json


def iso(moment: float) -> str:
    """Seconds since the epoch as ISO time with the zone."""
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")


class StateFile:
    """The state.json of one run. A full disk is reported once, and every write is tried again."""

    def __init__(self, folder: RunFolder, state: RunState, say: Callable[[str], None]) -> None:
        self.written = state
        self.say = say
        self._folder = folder
        self._trouble: str | None = None

    def offer(self, state: RunState) -> None:
        """Write `state` if it holds something new, or when a heartbeat is due."""
        old = self.written
        now, before = _without_clock(state), _without_clock(old)
        urgent = _without_counts(now) != _without_counts(before)
        age = state.heartbeat - old.heartbeat
        if urgent or age >= HEARTBEAT or age < 0 or (age >= NEWS and now != before):
            self.write(state)

    def write(self, state: RunState) -> bool:
        """Whether it could be written."""
        try:
            self._folder.write_state(state)
        except OSError as error:
            if self._trouble != error.strerror:
                self._trouble = error.strerror
                self.say(f"{self._folder.state_file} cannot be written: {error.strerror}. The job goes on.")
            return False
        if self._trouble:
            self.say(f"{self._folder.state_file} can be written again.")
        self._trouble, self.written = None, state
        return True


def _without_clock(state: RunState) -> RunState:
    return dataclasses.replace(state, heartbeat=0.0, signs=dataclasses.replace(state.signs, read=0))


def _without_counts(state: RunState) -> RunState:
    signs = dataclasses.replace(state.signs, iteration=None, train_iters=None, saved=None)
    return dataclasses.replace(state, iteration=None, train_iters=None, stopping=None, signs=signs)
