"""Slurm's controller through its own programs: submit, query, signal and cancel a job. Works without accounting."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from backends.errors import UserError
from backends.text import clean, clean_line

LIMIT = 15.0  # s for an answer of a busy controller
SUBMIT_LIMIT = 90.0  # s; sbatch retries by itself, and killing it sooner would lose the job's number
FIELD = re.compile(
    r"(?:^|\s)(JobState|Reason|ExitCode|Restarts|StdOut|StartTime|NodeList|JobName|BatchHost)=(\S*)"
)
JOB_ID = re.compile(r"\d+")
UNKNOWN_JOB = "Invalid job id"
TIMED_OUT = "timed out"  # sbatch got no answer, but the controller may have accepted the job
ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
# Why a job waits (squeue(1), "job reason codes"), in plain words.
REASONS: Mapping[str, str] = {
    "Priority": "other jobs are before it",
    "Resources": "it is next, as soon as enough nodes are free",
    "Dependency": "it waits for another job",
    "BeginTime": "its earliest start has not come; a requeued job waits two minutes",
    "JobHeldUser": "it is held: scontrol release it",
    "JobHeldAdmin": "an administrator holds it",
    "PartitionTimeLimit": "it asks for more time than the partition gives: it will never start; set time in [slurm]",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives: it will never start; set nodes in [slurm]",
    "PartitionConfig": "the partition does not have what it asks for: it will never start; set partition in [slurm]",
    "PartitionDown": "the partition is closed",
    "ReqNodeNotAvail": "nodes that it needs are down, or reserved for maintenance",
    "Reservation": "its reservation has not begun",
    "AssocGrpGRES": "the account's GPUs are all in use",
    "QOSMaxJobsPerUserLimit": "you may not run more jobs at once",
    "QOSMaxGRESPerUser": "you may not use more GPUs at once",
}


@dataclass(frozen=True, slots=True)
class SlurmState:
    """A job as the controller knows it. `state` is "" for an unknown or forgotten job."""

    state: str
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    restarts: int = 0
    log: str | None = None
    start: str | None = None  # ISO without a zone; an estimate for a waiting job
    nodes: str | None = None

    @property
    def over(self) -> bool:
        return not self.state or self.state in ENDED

    @property
    def waits(self) -> bool:
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING")

    def words(self, job: str) -> str:
        """The state in one sentence."""
        if not self.state:
            return f"Slurm does not know job {job} any more."
        if self.waits:
            why = REASONS.get(self.reason, "")
            when = f", expected to start {self.start}" if self.start else ""
            return f"Slurm job {job} waits: {self.reason}{f' ({why})' if why else ''}{when}."
        again = f", started again {self.restarts} times" if self.restarts else ""
        where = f" on {self.nodes}" if self.nodes else ""
        return f"Slurm job {job} is {self.state.lower().replace('_', ' ')}{where}{again}."


class Slurm(Protocol):
    """The part of Slurm that `SlurmJob` uses."""

    def ask(self, job: str) -> SlurmState | None:
        """None: the controller does not answer, so nothing is known of the job."""
        ...

    def submit(
        self, words: Sequence[str], script: Sequence[str], environment: Mapping[str, str], cwd: str
    ) -> str:
        """Submit `script` (a file and its arguments) by `sbatch …` and return the job id. Raises UserError with Slurm's words."""
        ...

    def signal(self, job: str, name: str, *options: str) -> bool:
        """Whether the controller took it."""
        ...

    def cancel(self, job: str) -> bool: ...


def read_state(text: str) -> SlurmState:
    """Parse the output of `scontrol show job -o`."""
    fields = {name: clean_line(value, 500) for name, value in reversed(FIELD.findall(text))}
    known = {
        name: value for name, value in fields.items() if value not in ("(null)", "None", "Unknown", "N/A", "")
    }
    code, _, signal = known.get("ExitCode", "0:0").partition(":")
    return SlurmState(
        state=known.get("JobState", ""),
        reason=known.get("Reason", ""),
        exit_code=int(code) if code.isdigit() else 0,
        signal=int(signal) if signal.isdigit() else 0,
        restarts=int(known["Restarts"]) if known.get("Restarts", "").isdigit() else 0,
        log=known.get("StdOut"),
        start=known.get("StartTime"),
        nodes=known.get("NodeList"),
    )


def read_accounting(text: str) -> SlurmState | None:
    """Parse `sacct -n -P -X -o State,ExitCode`, which knows jobs that the controller has forgotten."""
    state, bar, code = text.strip().partition("\n")[0].partition("|")
    if not bar or not state:
        return None
    return read_state(f"JobState={state.split()[0]} ExitCode={code}")


class Run(Protocol):
    """Runs a program to its end."""

    def __call__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit: float = LIMIT,
    ) -> subprocess.CompletedProcess[str]:
        """Raises OSError or, after `limit` s, subprocess.TimeoutExpired."""
        ...


def run(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    cwd: str | None = None,
    limit: float = LIMIT,
) -> subprocess.CompletedProcess[str]:
    """Run a program of Slurm to its end, with its output as text. Raises what `Run` raises."""
    return subprocess.run(
        words,
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit,
        check=False,
    )


class SlurmControl:
    """The real Slurm through `scontrol`, `sbatch`, `scancel` and, with accounting, `sacct`."""

    def __init__(self, run: Run = run) -> None:
        self._run = run

    def ask(self, job: str) -> SlurmState | None:
        try:
            done = self._run(["scontrol", "show", "job", "-o", job])
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode == 0:
            return read_state(done.stdout)
        return self._remembered(job) or SlurmState("") if UNKNOWN_JOB in done.stderr else None

    def _remembered(self, job: str) -> SlurmState | None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            return read_accounting(
                self._run(["sacct", "-n", "-P", "-X", "-j", job, "-o", "State,ExitCode"]).stdout
            )
        return None

    def submit(
        self, words: Sequence[str], script: Sequence[str], environment: Mapping[str, str], cwd: str
    ) -> str:
        try:
            done = self._run([*words, *script], environment, cwd, SUBMIT_LIMIT)
        except subprocess.TimeoutExpired:
            done = None
        except OSError as error:
            raise UserError(f"sbatch cannot be run: {error.strerror}.", "Launch where Slurm is.") from None
        found = JOB_ID.search(done.stdout) if done and not done.returncode else None  # `ID` or `ID;CLUSTER`
        if found:
            return found[0]
        if done is None or TIMED_OUT in done.stderr:
            return self._taken(script[0])
        said = " ".join(clean(done.stderr).replace("sbatch: error: ", "").split())
        remedy = (
            "Mend account, partition, time or options in [slurm] of mdk.toml. What there is: sinfo, sacctmgr."
        )
        raise UserError(f"Slurm refuses the job: {clean_line(said, 300) or 'it says nothing.'}", remedy)

    def _taken(self, script: str) -> str:
        """The id of the job of `script`, if it was accepted although the answer was lost. Raises UserError if there is none."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            for line in self._run(["squeue", "--me", "-h", "-o", "%i %o"]).stdout.splitlines():
                job, _, command = line.partition(" ")
                if f"{command} ".startswith(f"{script} "):
                    return job
        raise UserError(
            "Slurm's controller does not answer sbatch.",
            "See: sinfo; try again later. It may have taken the job all the same: squeue --me.",
        )

    def signal(self, job: str, name: str, *options: str) -> bool:
        return self._cancels(*options, f"--signal={name}", job)

    def cancel(self, job: str) -> bool:
        return self._cancels(job)

    def _cancels(self, *words: str) -> bool:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            return self._run(["scancel", *words]).returncode == 0
        return False
