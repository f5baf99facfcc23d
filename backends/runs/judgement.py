"""Pure decisions about a run: how it ended, and what its state is if its supervisor may be gone."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backends.models.arguments import int_of
from backends.runs.checkpoints import Iteration
from backends.runs.plan import Kind, RunPlan
from backends.runs.processes import Machine, Process
from backends.runs.signs import Signs
from backends.runs.state import JobExit, Phase, RunState

PINNED = "pinned"  # the folder of all pinned folders
HANGS_AFTER = 120.0  # s without output after an error; ranks that end because of it take some seconds
STALE_HEARTBEAT = 60.0  # s; the supervisor writes one every 10 s


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: its last phase, and why."""

    phase: Phase
    reason: str | None


def ending(
    kind: Kind, job_exit: JobExit | None, signs: Signs, *, stopped: str | None = None, reaped: bool = False
) -> Ending:
    """How a job ended. `stopped` says why a person or the guard stopped it, if one did. `reaped`: only its launcher was
    left and was killed, so the exit status means nothing.

    Megatron fails with status 0 in several ways, so "finished" also needs an end mark in the log. A server writes none:
    it is finished if it was told to stop, or exited with status 0 after it could answer, but not if its log says that it
    had no checkpoint.
    """
    if job_exit is None:
        return Ending("lost", "The job is gone and its exit status is not known.")
    if kind == "serve" and signs.random_start and not signs.loaded:
        return Ending("failed", stopped or "Its log says that no checkpoint was loaded.")
    if kind == "serve" and (stopped or (job_exit.exit_code == 0 and signs.address)):
        return Ending("finished", stopped)
    if signs.ended and (reaped or job_exit.exit_code == 0):
        return Ending("finished", stopped)
    if job_exit.exit_code == 0:  # mpirun's, too, when it lost a node while the ranks were to save
        missing = "training was done" if kind == "train" else "it could answer"
        said = signs.error or f"The log does not say that {missing}."
        return Ending("failed", f"{stopped or 'It left with status 0 before its end.'} {said}")
    if stopped:
        return Ending("failed", stopped)
    if job_exit.signal is not None:
        return Ending("failed", f"It was killed by signal {signal_name(job_exit.signal)}.")
    return Ending("failed", signs.error or f"It left with status {job_exit.exit_code}.")


def signal_name(number: int) -> str:
    """Number and name of a signal: "9 (SIGKILL)"."""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a run. `orphaned`: its supervisor is gone and needs a successor, if only to write down the end."""

    phase: Phase
    orphaned: bool = False
    note: str | None = None


def observe(
    state: RunState,
    here: Machine,
    now: float,
    alive: Callable[[Process | None], bool],
    job_lives: Callable[[RunState], bool],
    end: Callable[[], Ending],
    anywhere: bool = False,
) -> Observation:
    """What `state` means now. On the same host process, start ticks and boot id decide, on another host the heartbeat.

    `anywhere`: the job belongs to a batch system, so a process on any host may succeed the supervisor. `job_lives` and
    `end` are expensive (they read /proc and the log) and are only called if needed.
    """
    if state.over:
        waits = state.again is not None and state.again.due and state.machine.host == here.host
        waited_for = state.machine.boot_id == here.boot_id and alive(state.supervisor)
        return Observation(state.phase, orphaned=waits and not waited_for)
    age = now - state.heartbeat
    if state.machine.host != here.host:
        if age <= STALE_HEARTBEAT:
            return Observation(state.phase)
        if anywhere:
            return Observation(
                state.phase, orphaned=True, note=f"Its supervisor on {state.machine.host} is silent."
            )
        return Observation("lost", note=f"No sign of life from {state.machine.host} for {round(age)} s.")
    if state.machine.boot_id != here.boot_id:
        if age <= STALE_HEARTBEAT:
            return Observation(state.phase)  # no machine starts so fast: it is another one of the same name
        if anywhere and job_lives(state):
            return Observation("running", orphaned=True, note=f"{state.machine.host} was restarted.")
    else:
        if alive(state.supervisor):
            stale = f"state.json is {round(age)} s old: can it be written?" if age > STALE_HEARTBEAT else None
            return Observation(state.phase, note=stale)
        if job_lives(state):
            return Observation("running", orphaned=True, note="Its supervisor is gone; the job goes on.")
    return Observation(end().phase, orphaned=True)


def hanging(signs: Signs, quiet: float, patience: float = HANGS_AFTER) -> str | None:
    """The error after which a living job has been silent for `quiet` s, if that is at least `patience`."""
    error = signs.last_error
    return error[1] if error is not None and quiet >= patience and not signs.ended else None


def pinned_folder(place: Path, key: str, iteration: Iteration) -> Path:
    """A folder below `place` for one iteration of the save folder with the hash `key`; `wanted_iteration` recognises it."""
    return place / PINNED / key / str(iteration)


def wanted_iteration(plan: RunPlan) -> int | None:
    """The iteration that a server must answer from; None if any will do.

    core_r0.8.0 accepts `--ckpt-step` but loads what the tracker names, so the log must be checked.
    """
    if (asked := int_of(plan.arguments, "--ckpt-step")) is not None:
        return asked
    folder = Path(plan.load or "")
    is_pinned = len(folder.parts) > 3 and folder.parts[-3] == PINNED and folder.name.isdecimal()
    return int(folder.name) if is_pinned else None


def not_ready(plan: RunPlan, signs: Signs) -> str | None:
    """Why a server that listens is not ready, because it has not loaded its checkpoint; None if it is."""
    if plan.kind != "serve" or not plan.load:
        return None
    if not signs.loaded:
        return "Its log does not say that a checkpoint was loaded: answers would come from random weights."
    wanted, found = wanted_iteration(plan), signs.loaded_iteration
    if wanted and found and wanted != found:  # with --finetune the log says 0, whatever was loaded
        return f"It has loaded iteration {found}, not {wanted}: answers would come from another checkpoint."
    return None


def starts_silently(plan: RunPlan, signs: Signs, tracked: Iteration | None) -> bool:
    """Whether a run that should load a checkpoint (the tracker named `tracked` at its start) trains random weights.

    Its log says so, or it counts iterations again that are done already without having loaded a checkpoint.
    """
    if not plan.load or signs.loaded:
        return False
    if signs.random_start or plan.kind != "train":
        return signs.random_start
    again = isinstance(tracked, int) and signs.iteration is not None and signs.iteration <= tracked
    return again and not plan.begins_anew


def withheld(plan: RunPlan, signs: Signs) -> str | None:
    """Why a graceful stop, which saves, would do harm now; None if it would not."""
    if plan.kind != "train":
        return None
    if plan.load is not None and not signs.loaded:
        return "It has not loaded its checkpoint yet: saving now could put random weights over it."
    if signs.nan_alert:
        return f"A NaN alert is open ({signs.nan_alert}): saving now would keep broken weights."
    return None
