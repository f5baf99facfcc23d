"""Recognises jobs that never end by themselves: ranks that hang after an error, mpirun that hangs after its ranks have
ended, a server that waits for a checkpoint which will not come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backends.launch.job import RunningJob
from backends.models.arguments import value_of
from backends.runs.catalog import describe
from backends.runs.checkpoints import read_tracker
from backends.runs.judgement import hanging
from backends.runs.plan import RunPlan
from backends.runs.planning import writers_of
from backends.runs.processes import PROC, Process
from backends.runs.signs import Signs
from backends.workspace import Workspace

# Open MPI's own programs, which are left when all ranks have ended. Names as the kernel has them (15 letters).
LAUNCHERS = frozenset({"mpirun", "mpiexec", "prterun", "prted", "orterun", "orted", "ssh"})
QUIET = 30.0  # s without a line in the log before the processes are looked at
QUIET_ELSEWHERE = 15 * 60.0  # s; ranks on other nodes are seen only through the log
LOOK = 5.0  # s between two looks
AFTER_END = "Training was done, but mpirun did not exit: it was ended."
AFTER_ERROR = "It hung after an error and was ended: {error}"
AFTER_RANKS = "All ranks had ended, but mpirun did not exit: it was ended."


class HangCheck(Protocol):
    """One way in which a job can hang."""

    def look(self, signs: Signs, quiet: float, now: float) -> str | None:
        """Why the job has to be ended now, or None. `quiet`: s since the log last grew; `now`: s of a monotonic clock."""
        ...


@dataclass(slots=True)
class HungLauncher:
    """mpirun that does not exit after every rank has ended: seen in one of ten short jobs. `processes`: the job's that live."""

    job: RunningJob
    remote: bool
    processes: Callable[[], list[Process]]
    name: Callable[[int], str]
    _looked: float = float("-inf")

    def look(self, signs: Signs, quiet: float, now: float) -> str | None:
        if quiet < QUIET or now < self._looked + LOOK:
            return None
        self._looked = now
        names = {self.name(process.pid) for process in self.processes() if process != self.job.leader}
        if names - LAUNCHERS:
            return None
        if self.remote or "ssh" in names:  # a hostfile of the site may have led mpirun to other nodes
            return AFTER_END if signs.ended and quiet >= QUIET_ELSEWHERE else None
        return AFTER_END if signs.ended else AFTER_RANKS


@dataclass(frozen=True, slots=True)
class HungRanks:
    """Ranks that wait for a failed rank and hold their GPUs. They are ended after `limit` s of silence."""

    job: RunningJob
    limit: float

    def look(self, signs: Signs, quiet: float, now: float) -> str | None:
        error = None if self.job.waits else hanging(signs, quiet, self.limit)
        return AFTER_ERROR.format(error=error) if error is not None else None


@dataclass(slots=True)
class VainWait:
    """A server that waits for the first checkpoint of a training run that has ended without one."""

    plan: RunPlan
    workspace: Workspace
    _looked: float = float("-inf")

    def look(self, signs: Signs, quiet: float, now: float) -> str | None:
        if signs.working or now < self._looked + LOOK:
            return None
        self._looked = now
        save = Path(self.plan.load or "")
        if read_tracker(save).problem is None:
            return None
        infos = [describe(folder) for folder in writers_of(self.workspace, save)]
        if not infos or any(not info.over or info.again_due for info in infos):
            return None
        return f"{infos[0].run} {infos[0].phase} before its first checkpoint: there is nothing to serve."


def command_name(pid: int, proc: Path = PROC) -> str:
    """The kernel's name for the program of `pid`; "" when the process is gone."""
    try:
        return (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def hang_checks_of(
    plan: RunPlan, job: RunningJob, workspace: Workspace, hang_limit: float = 0.0
) -> list[HangCheck]:
    """The checks for a run of `plan`. `hang_limit`: s of silence after an error until the job is ended; 0: never."""
    found: list[HangCheck] = [HungRanks(job, hang_limit)] if hang_limit > 0 else []
    if plan.launcher == "mpirun":
        found.append(HungLauncher(job, bool(plan.hosts), job.processes, command_name))
    if plan.kind == "serve" and plan.load and value_of(plan.arguments, "--wait-for-checkpoint") is not None:
        found.append(VainWait(plan, workspace))
    return found
