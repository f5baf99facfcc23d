"""Stops a run and waits until no process of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from backends.errors import UserError
from backends.launch.adoption import looked_after
from backends.runs.catalog import RunInfo, describe
from backends.runs.folder import RunFolder
from backends.runs.processes import marked_processes, this_machine
from backends.runs.requests import DEFAULT_LIMIT, StopRequest, StopWithheld, request_stop
from backends.workspace import Workspace

POLL = 0.1  # s
ANSWER_LIMIT = 30.0  # s for a supervisor to answer a request


def stop_run(
    folder: RunFolder,
    workspace: Workspace,
    *,
    now: bool = False,
    force: bool = False,
    hung: bool = False,
    limit: float = DEFAULT_LIMIT,
    look: Callable[[RunFolder, Workspace], RunInfo] = looked_after,
) -> Iterator[RunInfo]:
    """Stop a run, or call off its automatic resume. Yields the run after each change; the last one has ended.

    `limit`: s to save and exit before TERM and KILL follow. The other arguments are those of a `StopRequest`. Raises
    StopWithheld when saving would do harm, UserError when no supervisor answers. The stop goes on when the caller leaves
    the iteration early.
    """

    def awaited(info: RunInfo) -> bool:
        return not info.over or (info.again_due and not hung)  # a run that hung may be resumed automatically

    info = look(folder, workspace)
    if awaited(info):
        request_stop(folder, StopRequest(now, force, hung, limit))
    asked = time.monotonic()
    shown: RunInfo | None = None
    while awaited(info):
        if info != shown:
            shown = info
            yield info
        if info.phase != "stopping" and (not info.over or time.monotonic() - asked > ANSWER_LIMIT):
            _check_answer(folder, info, time.monotonic() - asked)
        time.sleep(POLL)
        info = describe(folder)
        if info.orphaned:
            info = look(folder, workspace)
    _wait_for_the_last(folder)
    yield info


def _check_answer(folder: RunFolder, info: RunInfo, waited: float) -> None:
    if info.reason and not folder.request_file.exists():
        raise StopWithheld(f"{folder.name} was not stopped. {info.reason}", "End it without saving: --now.")
    if waited > ANSWER_LIMIT:
        raise UserError(
            f"The supervisor of {folder.name} does not answer.",
            f"Look into {folder.supervisor_log}; the job's process is {info.pid} on {info.host}.",
        )


def _wait_for_the_last(folder: RunFolder) -> None:
    """Wait until no process of this machine carries the run's mark: the supervisor's last KILL may still be on its way."""
    state = folder.state()
    if state is None or state.machine != this_machine():
        return
    deadline = time.monotonic() + ANSWER_LIMIT
    while marked_processes(state.mark) and time.monotonic() < deadline:
        time.sleep(POLL)
