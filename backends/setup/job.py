"""A step's commands as a job that outlives the screen and the connection, and that any screen can watch and cancel.

`outputs/setup/STEP/` holds the newest one: `commands.json` (what it runs), `output.log` (what it printed, byte for byte),
`state.json` (its state). `python -m backends.setup.job FOLDER` is the job, in its own session; `mdk-tui setup` runs the
same in the foreground.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backends.errors import UserError
from backends.files import read_json, write_json
from backends.runs.processes import MARK, Process, find_process, is_alive, job_processes
from backends.setup.job_state import JobState, action_from_json, action_json
from backends.setup.runner import Output, run_actions
from backends.setup.step import Action
from backends.workspace import Workspace

START_LIMIT = 20.0  # s for the job to say that it runs
CANCEL_LIMIT = 15.0  # s for its commands to end before they are killed
POLL = 0.05  # s


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Where the newest job of a step is."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "output.log"

    @property
    def commands(self) -> Path:
        return self.path / "commands.json"

    @property
    def state_file(self) -> Path:
        return self.path / "state.json"

    def state(self) -> JobState | None:
        """The state of the job; None if there never was one. A running job whose process is gone was interrupted."""
        state = JobState.from_json(read_json(self.state_file))
        if state is not None and state.phase == "running" and state.here and not is_alive(state.process):
            return replace(state, phase="interrupted")
        return state

    def tell(self, state: JobState) -> None:
        """Write the state. On a full disk the old one stays, and the job goes on."""
        with contextlib.suppress(OSError):
            write_json(self.state_file, state.as_json())

    def actions(self) -> list[Action]:
        known: list[Any] = (read_json(self.commands) or {}).get("actions") or []
        return [action for value in known if (action := action_from_json(value)) is not None]


def job_folder(workspace: Workspace, step: str) -> JobFolder:
    """The folder of the newest job of `step`."""
    return JobFolder(workspace.outputs / "setup" / step)


def prepare(folder: JobFolder, actions: Sequence[Action]) -> None:
    """Make `folder` ready for `actions`, and forget the previous job. Raises UserError while that still runs."""
    refuse_second(folder)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.state_file.unlink(missing_ok=True)
        folder.log.write_bytes(b"")
        write_json(folder.commands, {"actions": [action_json(action) for action in actions]})
    except OSError as error:
        raise UserError(
            f"{error.filename or folder.path} cannot be written: {error.strerror}.",
            "Check who owns the workspace and how full it is, or choose another with -w DIR.",
        ) from None


def refuse_second(folder: JobFolder) -> None:
    """Raises UserError when a job of this step runs, or left processes behind."""
    state = folder.state()
    if state is None:
        return
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(state.started))
    if state.phase == "running":
        raise UserError(
            f"The step {folder.path.name} runs already, since {since} on {state.machine.host}.",
            f"Watch it in `mdk-tui` (key 2), or end it: mdk-tui setup {folder.path.name} --cancel.",
        )
    # The process of a job that has just ended may still be there for a moment.
    if left := [process for process in remains(state) if process != state.process]:
        pids = ", ".join(str(process.pid) for process in left[:5])
        raise UserError(
            f"Commands that the step {folder.path.name} started at {since} still run (pid {pids}).",
            f"End them: mdk-tui setup {folder.path.name} --cancel.",
        )


def remains(state: JobState) -> list[Process]:
    """The processes of a job that still exist on this machine, without the calling one."""
    found = job_processes(state.process if state.detached else None, state.mark) if state.here else []
    return [process for process in found if process.pid != os.getpid()]


def start_job(folder: JobFolder, actions: Sequence[Action], environment: Mapping[str, str]) -> None:
    """Start `actions` as a job of its own; returns when it runs. Raises UserError."""
    prepare(folder, actions)
    inherited = {name: value for name, value in environment.items() if name != MARK}
    try:
        with folder.log.open("ab") as log:
            job = subprocess.Popen(
                [sys.executable, "-m", "backends.setup.job", str(folder.path)],
                cwd=folder.path,
                env=inherited,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError as error:
        raise UserError(f"The step could not be started: {error.strerror}.", "Try again.") from None
    deadline = time.monotonic() + START_LIMIT
    while folder.state() is None:
        if job.poll() is not None or time.monotonic() > deadline:
            raise UserError("The step could not be started.", f"{folder.log} says why.")
        time.sleep(POLL)


def perform(
    folder: JobFolder,
    actions: Sequence[Action],
    environment: Mapping[str, str],
    out: Output,
    *,
    detached: bool = False,
    clock: Callable[[], float] = time.time,
) -> None:
    """Run `actions` in this process and keep the state in `folder`. Raises what `run_actions` raises."""
    mark = uuid.uuid4().hex
    state = JobState.started_by(find_process(os.getpid()), detached, mark, clock())

    def began(index: int) -> None:
        nonlocal state
        state = replace(state, action=index)
        folder.tell(state)

    def ended(**changes: Any) -> None:
        folder.tell(replace(state, ended=clock(), **changes))

    with _only_one(folder):
        folder.tell(state)
        try:
            run_actions(actions, {**environment, MARK: mark}, out, began)
        except UserError as error:
            ended(phase="failed", message=error.message, remedy=error.remedy)
            raise
        except (KeyboardInterrupt, SystemExit):
            _kill(state, CANCEL_LIMIT)  # a command that began at the moment of the signal
            ended(phase="cancelled")
            raise
        ended(phase="finished")


@contextlib.contextmanager
def _only_one(folder: JobFolder) -> Generator[None]:
    """Hold the step's lock: two starts within a moment must not both write the same files. Raises UserError."""
    with (folder.path / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"The step {folder.path.name} was started twice at once.", "One is enough."
            ) from None
        except OSError:
            pass  # a file system without locks: only the state file protects
        yield


def cancel_job(folder: JobFolder, limit: float = CANCEL_LIMIT) -> bool:
    """End the job and everything it started, by TERM, after `limit` s by KILL. Whether there was something to end."""
    state = folder.state()
    if state is None or not state.here:
        return False
    alive = state.phase == "running" and state.process is not None
    if alive and state.process is not None:
        with contextlib.suppress(ProcessLookupError):
            if state.detached:
                os.killpg(state.process.pid, signal.SIGTERM)
            else:  # it runs in a terminal: end it as Ctrl-C does
                os.kill(state.process.pid, signal.SIGINT)
        _wait(lambda: not is_alive(state.process), limit)
    ended = _kill(state, limit)
    if (now := folder.state()) is not None and now.phase in ("running", "interrupted"):
        folder.tell(replace(now, phase="cancelled", ended=time.time()))
    return alive or any(process != state.process for process in ended)


def _kill(state: JobState, limit: float) -> set[Process]:
    """KILL the processes that are left of a job, and those that they start meanwhile, for `limit` s. Returns them."""
    deadline = time.monotonic() + limit
    killed: set[Process] = set()
    while (left := remains(state)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        killed.update(left)
        time.sleep(POLL)
    return killed


def _wait(holds: Callable[[], bool], limit: float) -> None:
    deadline = time.monotonic() + limit
    while not holds() and time.monotonic() < deadline:
        time.sleep(POLL)


def end_on_signals() -> None:
    """TERM and HUP end this process as Ctrl-C does: its command is ended, and the state says so. One that is ignored
    (nohup) stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: sys.exit(128 + number))


def main(arguments: Sequence[str]) -> int:
    folder = JobFolder(Path(arguments[0]))
    end_on_signals()
    with open(sys.stdout.fileno(), "wb", buffering=0, closefd=False) as out:
        try:
            perform(folder, folder.actions(), os.environ, out, detached=True)
        except UserError as error:
            with contextlib.suppress(OSError):
                out.write(f"{error.message}\n{error.remedy}\n".encode())
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
