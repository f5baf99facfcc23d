"""A job of Slurm, which is no process of this machine. `slurm.json` in the run folder holds its number.

Slurm writes its output to output.log and the batch script its exit code to exit.json, so both are known without a
supervisor. If the script was killed before it could write, Slurm's own state counts.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping

from backends.errors import UserError
from backends.files import write_json
from backends.launch.launcher import Command
from backends.launch.slurm_control import Slurm, SlurmState
from backends.runs.folder import RunFolder
from backends.runs.processes import MARK, Process
from backends.runs.state import JobExit

SOON = 1.0  # s between two questions after the script has written exit.json
# States in which Slurm ended the job, not the program: why, and what helps.
BY_SLURM: Mapping[str, str] = {
    "TIMEOUT": "its time limit came before it had saved; give it more time or save_minutes in [slurm]",
    "CANCELLED": "somebody cancelled it",
    "NODE_FAIL": "a node failed",
    "PREEMPTED": "a job of higher priority took its nodes",
    "OUT_OF_MEMORY": "it used more host memory than it had asked for; give --mem=0 in [slurm] options",
    "BOOT_FAIL": "its nodes did not start",
    "DEADLINE": "its deadline came",
}


QUIET = ("RUNNING", "COMPLETING", "COMPLETED")  # states that need no note


class SlurmJob:
    """Asks Slurm every `interval` s, and sooner once exit.json is there. Without an answer of the controller the job is taken
    to live."""

    main: Process | None = None
    leader: Process | None = None

    def __init__(
        self,
        folder: RunFolder,
        job: str,
        slurm: Slurm,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._job, self._slurm = folder, job, slurm
        self._interval, self._clock = interval, clock
        self._state: SlurmState | None = None
        self._asked: float | None = None
        self._silent = False
        self._exited = False
        self._to_save = False  # asked to save, and the controller has not taken it yet

    def lives(self) -> bool:
        exited = self._folder.exit_file.exists()
        due = SOON if exited else self._interval
        if self._asked is None or exited != self._exited or self._clock() - self._asked >= due:
            self._look()
        self._exited = exited
        return self._state is None or not self._state.over

    def _look(self) -> None:
        self._asked = self._clock()
        answer = self._slurm.ask(self._job)
        self._silent = answer is None
        if answer is not None and (answer.state or self._state is None or not self._state.over):
            self._state = answer
        if self._to_save and not self._silent:
            self.ask_to_save()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # the end of a job on another machine wakes nobody here

    @property
    def waits(self) -> bool:
        return self._state is not None and self._state.waits

    @property
    def note(self) -> str | None:
        """What a reader should know while it lives; why Slurm ended it, if it did."""
        if self._silent:
            return f"Slurm does not answer; job {self._job} may well go on."
        if self._state is None:
            return None
        if self._state.over:
            why = BY_SLURM.get(self._state.state)
            return f"Slurm ended job {self._job}: {self._state.state} ({why})." if why else None
        return None if self._state.state in QUIET else self._state.words(self._job)

    def exit(self) -> JobExit | None:
        written = self._folder.job_exit()
        state = self._state
        if written is not None or state is None or not state.state:
            return written
        if state.signal or (state.state == "CANCELLED" and not state.exit_code):
            return JobExit(None, state.signal or signal.SIGTERM)
        if state.exit_code or state.state == "COMPLETED":
            return JobExit(state.exit_code, None)
        return JobExit(1, None)

    def processes(self) -> list[Process]:
        return []

    def ask_to_save(self) -> None:
        """Send USR1 to the batch script, which passes it on; a job that has not started is cancelled.

        While the controller does not take it, it is sent again after each answer.
        """
        taken = (
            self._slurm.cancel(self._job) if self.waits else self._slurm.signal(self._job, "USR1", "--batch")
        )
        self._to_save = not taken

    def signal_all(self, number: int) -> None:
        """KILL goes to all processes of the job at once. Any other signal cancels it: TERM, and KILL after Slurm's KillWait."""
        if number == signal.SIGKILL:
            self._slurm.signal(self._job, "KILL", "--full")
        self._slurm.cancel(self._job)


def submit(
    folder: RunFolder,
    command: Command,
    mark: str,
    environment: Mapping[str, str],
    slurm: Slurm,
    interval: float,
) -> SlurmJob:
    """Hand `command` (an sbatch script, in command.sh) to Slurm. Raises UserError with its words, OSError."""
    log = str(folder.log).replace("%", "%%")  # sbatch replaces %j and the like
    script = (str(folder.command), str(folder.path))
    job = slurm.submit((*command.argv, f"--output={log}"), script, {**environment, MARK: mark}, command.cwd)
    try:
        write_json(folder.batch_file, {"job_id": job})
    except OSError:
        slurm.cancel(job)  # without the file nobody could find it again
        raise
    return SlurmJob(folder, job, slurm, interval)


def adopt(folder: RunFolder, slurm: Slurm, interval: float) -> SlurmJob:
    """The job that was submitted for `folder`. Raises UserError if its number is unknown."""
    job = folder.batch_job()
    if job is None:
        raise UserError(
            f"It is not known which Slurm job belongs to {folder.name}.",
            f"See squeue --me, and cancel it by hand if it is there; {folder.batch_file} names it otherwise.",
        )
    return SlurmJob(folder, job, slurm, interval)
