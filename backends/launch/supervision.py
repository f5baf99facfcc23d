"""The loop that supervises one job, and how supervision works.

    whoever starts a run ── start.py ──▶ supervisor.py (its own session)    Supervision: this loop, twice a second
                                             │  job.py                      ├ reads output.log: signs of how the job does
                                             ▼                              ├ writes state.json, obeys request.json
                                         wrapper.py (the job's session)     ├ guards a resume, ends what hangs
                                             └▶ trainer, mpirun, …          └ calls the sidecars

* The job needs no supervisor. Its output goes straight to output.log, and the wrapper writes its exit code to exit.json.
* A supervisor that was killed is replaced by the next command that looks at the run (adoption.py). It finds the job by
  the ids in state.json, or by the mark that every process of the run carries in its environment.
* A stop is a request.json. `Stop` (stop_steps.py) decides the steps, the loop carries them out: ask to save, TERM, KILL.
* When the job has ended, whatever it left behind is ended too, the last state is written, and `AutomaticResume` may
  start the next run.
* A Slurm job is no process of this machine: `SlurmJob` asks Slurm instead of /proc, and any host can adopt the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Generator, Sequence

from backends.launch.false_start import announce, next_try
from backends.launch.hang_checks import HangCheck
from backends.launch.job import Job, RunningJob
from backends.launch.launcher import Launcher
from backends.launch.sidecars import Sidecar
from backends.launch.state_file import StateFile, iso
from backends.launch.stop_steps import Deed, Stop
from backends.megatron.parser import Parser
from backends.runs.automatic import Again
from backends.runs.checkpoints import Iteration
from backends.runs.folder import RunFolder
from backends.runs.judgement import ending, hanging, not_ready, starts_silently, withheld
from backends.runs.plan import RunPlan
from backends.runs.requests import StopRequest, drop_request, waiting_request
from backends.runs.signs import SignReader, Signs
from backends.runs.state import Phase, RunState

POLL = 0.5  # s
SWEEP_LIMIT = 5.0  # s between TERM and KILL for what a job leaves behind
FULL_DISK_PAUSE = 10.0  # s between two attempts to write the last state
WITHOUT_SAVING = "Stopped on request, without saving."
UNKILLABLE = (
    "The job has ended, but KILL does not end what it left ({pids}): a driver or a disk hangs. See dmesg."
)
HUNG = "It hung and was ended on request, without saving."
HANGS = "It hangs: the log is silent after an error, and the ranks keep their GPUs until the run is ended. {error}"
GUARDS = {
    "train": "It should resume, but its log says that it starts from random weights: stopped before it could save.",
    "serve": "Its log says that no checkpoint was loaded: answers would come from random weights.",
}


class Supervision:
    """Supervises one job until it has ended, no process of it is left, and the end is in state.json."""

    def __init__(
        self,
        folder: RunFolder,
        plan: RunPlan,
        launcher: Launcher,
        job: RunningJob,
        state_file: StateFile,
        sidecars: Sequence[Sidecar] = (),
        checks: Sequence[HangCheck] = (),
        after: Callable[[RunState], Again | None] = lambda final: None,
        tracked: Iteration | None = None,
    ) -> None:
        """`after`: the automatic resume for a run that crashed. `tracked`: the iteration that the run resumes from."""
        self._folder, self._plan, self._launcher, self._job = folder, plan, launcher, job
        self._state_file, self._sidecars = state_file, sidecars
        self._checks, self._after = checks, after
        self._tracked: Iteration | None = tracked
        self._seen_alive = self._reaped = False
        self._grew = time.monotonic()
        self._first = state_file.written
        self._reader = SignReader(dataclasses.replace(self._first.signs), Parser())
        self._request: StopRequest | None = None
        self._stop: Stop | None = None
        self._reason: str | None = None
        self._fault: str | None = None
        self._retried: str | None = None

    def run(self) -> None:
        self._wait_for_the_end()
        while self._start_again():
            self._wait_for_the_end()
        while self._read():
            pass
        with self._surviving():
            self._reader.finish()
        final = self._final()
        for sidecar in self._sidecars:
            with self._surviving("a sidecar failed at the end"):
                sidecar.close(final)
        while not self._state_file.write(final) and self._folder.path.is_dir():
            time.sleep(FULL_DISK_PAUSE)  # someone will make room, and then wants to know the end
        drop_request(self._folder)

    def _wait_for_the_end(self) -> None:
        while self._job.lives():
            self._seen_alive = True
            self._look(time.monotonic())
            self._job.wait(POLL)
        self._sweep()

    def _start_again(self) -> bool:
        """Start the job once more if mpirun failed before any rank ran. Whether it was started."""
        job, number = self._job, self._next_try()
        if number is None or not isinstance(job, Job):
            return False
        with self._surviving("mpirun was not started again"):
            self._retried = announce(self._folder.log, number)
            self._state_file.say(self._retried)
            # Whoever adopts the run now finds its processes by the mark, not by ids that are gone.
            self._first = dataclasses.replace(self._first, job=None, leader=None)
            self._folder.write_state(self._present(time.monotonic()))
            job.start()
            self._first = dataclasses.replace(self._first, job=job.main, leader=job.leader)
            return True
        return False

    def _next_try(self) -> int | None:
        job = self._job
        if self._stop is not None or not isinstance(job, Job) or job.command is None:
            return None
        return next_try(job.exit(), self._folder.log)

    @property
    def over(self) -> bool:
        """Whether only the end is left to be written."""
        return not self._job.lives() and self._next_try() is None

    @property
    def _signs(self) -> Signs:
        return self._reader.signs

    def _look(self, now: float) -> None:
        if self._read():
            self._grew = now
        self._obey(waiting_request(self._folder), now)
        guard = GUARDS[self._plan.kind]
        if self._reason != guard and starts_silently(self._plan, self._signs, self._tracked):
            self._begin_stop(guard, graceful=False, limit=0, now=now)
        self._end_what_hangs(now)
        if self._stop is None and self._reason and withheld(self._plan, self._signs) is None:
            self._reason = None  # the reason for which a stop was withheld is gone
        if self._stop and (deed := self._stop.due(now)):
            self._act(deed)
        present = self._present(now)
        for sidecar in self._sidecars:
            with self._surviving("a sidecar failed"):
                sidecar.look(present)
        self._state_file.offer(present)

    def _read(self) -> int:
        with self._surviving():
            return self._reader.read_from(self._folder.log)
        return 1  # this piece of the log raised an error; the next may be readable

    @contextlib.contextmanager
    def _surviving(self, what: str = "the log is not understood") -> Generator[None, None, None]:
        """Report an exception instead of ending the supervisor: without it nobody can stop the job."""
        try:
            yield
        except Exception as error:
            # The same words twice a second would fill the disk.
            if (words := f"{what}: {error!r}") != self._fault:
                self._state_file.say(words)
            self._fault = words

    def _obey(self, request: StopRequest | None, now: float) -> None:
        if request is None or request == self._request:
            return
        at_once = request.now or request.hung
        why = None if at_once or request.force else withheld(self._plan, self._signs)
        if why is not None:
            self._reason = f"The stop was withheld. {why}"
            drop_request(self._folder)
        elif at_once or self._stop is None:
            self._request, self._reaped = request, request.hung
            graceful = self._plan.kind == "train" and not at_once
            words = HUNG if request.hung else WITHOUT_SAVING if request.now else "Stopped on request."
            self._begin_stop(words, graceful=graceful, limit=request.limit, now=now)

    def _begin_stop(self, why: str, *, graceful: bool, limit: float, now: float) -> None:
        self._reason = why
        self._stop = Stop(why, graceful, limit, self._launcher.term_saves(self._plan), now)

    def _end_what_hangs(self, now: float) -> None:
        for check in self._checks:
            with self._surviving("a check for a job that hangs failed"):
                why = check.look(self._signs, now - self._grew, now) if self._stop is None else None
                if why is not None:
                    self._reaped = True
                    self._begin_stop(why, graceful=False, limit=0, now=now)

    def _act(self, deed: Deed) -> None:
        if deed == "ask":
            self._job.ask_to_save()
        else:
            self._job.signal_all(signal.SIGTERM if deed == "term" else signal.SIGKILL)

    def _sweep(self) -> None:
        """End what the job left behind: ranks outlive an mpirun that was killed."""
        began = time.monotonic()
        while left := self._job.processes():
            waited = time.monotonic() - began
            late = self._stop is not None or waited > SWEEP_LIMIT
            self._job.signal_all(signal.SIGKILL if late else signal.SIGTERM)
            if waited > 2 * SWEEP_LIMIT:  # the kernel holds processes whose driver or file system hangs
                words = UNKILLABLE.format(pids=", ".join(str(process.pid) for process in left[:5]))
                self._state_file.offer(dataclasses.replace(self._present(time.monotonic()), note=words))
            time.sleep(0.05 if waited < SWEEP_LIMIT else POLL)

    def _present(self, now: float) -> RunState:
        signs = self._signs
        unsure = not_ready(self._plan, signs)
        working = signs.working and unsure is None and not self._job.waits
        phase: Phase = "stopping" if self._stop else "running" if working else "starting"
        return dataclasses.replace(
            self._first,
            phase=phase,
            heartbeat=time.time(),
            address=None if unsure else signs.address,
            iteration=signs.loaded_iteration if self._plan.kind == "serve" else signs.iteration,
            train_iters=signs.train_iters,
            reason=self._reason or (unsure if signs.address else None) or self._hangs(now),
            note=self._job.note or (None if working else self._retried),
            stopping=self._stop.progress(now, self._saved_since_stop()) if self._stop else None,
            signs=dataclasses.replace(signs),
        )

    def _hangs(self, now: float) -> str | None:
        """The sentence about a job that hangs after an error, None for one that does not."""
        quiet = now - self._grew
        error = hanging(self._signs, quiet) if self._stop is None and not self._job.waits else None
        return HANGS.format(error=error) if error is not None else None

    def _saved_since_stop(self) -> int | None:
        signs = self._signs
        return signs.saved if signs.saved is not None and signs.saved == signs.iteration else None

    def _final(self) -> RunState:
        job_exit = self._job.exit()
        stopped = self._stop.why if self._stop else None
        end = ending(self._plan.kind, job_exit, self._signs, stopped=stopped, reaped=self._reaped)
        moment = job_exit.time if job_exit and job_exit.time else time.time()
        final = dataclasses.replace(
            self._present(time.monotonic()),
            phase=end.phase,
            reason=end.reason if end.phase == "finished" or stopped else self._job.note or end.reason,
            note=None,
            stopping=None,
            ended=iso(moment),
            exit_code=job_exit.exit_code if job_exit else None,
            signal=job_exit.signal if job_exit else None,
        )
        crashed = end.phase == "failed" and self._seen_alive and (self._stop is None or self._reaped)
        with self._surviving("no automatic resume"):
            final = dataclasses.replace(final, again=self._after(final)) if crashed else final
        return final
