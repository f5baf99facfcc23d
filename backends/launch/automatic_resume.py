"""Waits until the automatic resume of a crashed run is due, then starts it. Runs in the crashed run's supervisor."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from backends.errors import UserError
from backends.launch.resume import start_resumption
from backends.runs.automatic import Again
from backends.runs.catalog import describe
from backends.runs.folder import RunFolder
from backends.runs.planning import writers_of
from backends.runs.requests import drop_request, waiting_request
from backends.runs.resuming import resumption
from backends.runs.state import RunState
from backends.workspace import Workspace

POLL = 0.5  # s
ON_REQUEST = "it was called off."


class AutomaticResume:
    """The automatic resume that a run's state.json announces. Every change is written there."""

    def __init__(
        self, folder: RunFolder, workspace: Workspace, program: Sequence[str], say: Callable[[str], None]
    ) -> None:
        self._folder, self._workspace, self._program, self._say = folder, workspace, program, say

    def run(self) -> None:
        """Returns when the resume was started or called off, or when none is due."""
        while (state := self._folder.state()) is not None and state.again is not None and state.again.due:
            if why := self._why_not():
                self._write(state, dataclasses.replace(state.again, dropped=why))
                drop_request(self._folder)
            elif time.time() >= state.again.at:
                self._write(state, self._start(state.again))
            else:
                time.sleep(min(POLL, max(0.0, state.again.at - time.time())))

    def _why_not(self) -> str | None:
        """Why it is called off: on request, or because another run has continued already."""
        if waiting_request(self._folder) is not None:
            return ON_REQUEST
        plan = self._folder.plan()
        for folder in writers_of(self._workspace, Path(plan.save or "")):
            if folder == self._folder:
                return None
            if not describe(folder).over:
                return f"{folder.name} continues from it already."
        return None

    def _start(self, again: Again) -> Again:
        save = self._folder.plan().save or ""
        try:
            found = resumption(self._workspace, Path(save), None, (), datetime.now())
            plan = dataclasses.replace(found.plan, attempt=again.attempt)
            started = start_resumption(dataclasses.replace(found, plan=plan), self._workspace, self._program)
        except UserError as error:
            self._say(f"the automatic resume failed: {error}")
            return dataclasses.replace(again, dropped=error.message)
        return dataclasses.replace(again, run=started.name)

    def _write(self, state: RunState, again: Again) -> None:
        """Try again while the disk is full: an unwritten start would be resumed a second time."""
        while True:
            try:
                self._folder.write_state(dataclasses.replace(state, again=again))
            except OSError as error:
                self._say(f"{self._folder.state_file} cannot be written: {error.strerror}")
                time.sleep(POLL)
            else:
                return
