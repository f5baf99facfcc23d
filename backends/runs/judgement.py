"""Pure decisions about a run: how it ended, and how it does when its supervisor may be gone."""

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
HANGS_AFTER = 120.0  # s without a word after an error; ranks that end for it take some seconds
STALE_HEARTBEAT = 60.0  # s; the supervisor writes one every 10 s


@dataclass(frozen=True, slots=True)
class Ending:
    phase: Phase
    reason: str | None


def ending(
    kind: Kind, job_exit: JobExit | None, signs: Signs, *, stopped: str | None = None, reaped: bool = False
) -> Ending:
    """How a job that is gone ended. `stopped` are the words of whoever stopped it (a person, the guard), if anyone did.
    `reaped`: only its launcher was left and was ended, so that its status says nothing.

    Megatron fails with status 0 in several ways, so "finished" also needs an end mark in the log. A server has none:
    it is finished when it was told to stop, or left with status 0 after it had been able to answer; never when its log
    says that it had no checkpoint.
    """
    if job_exit is None:
        return Ending("lost", "The job is gone and nobody saw how it ended.")
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
        return Ending("failed", f"It was ended by signal {signal_name(job_exit.signal)}.")
    return Ending("failed", signs.error or f"It left with status {job_exit.exit_code}.")


def signal_name(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


@dataclass(frozen=True, slots=True)
class Observation:
    """How a run does. `orphaned`: its supervisor is gone and someone should take its place, if only to write the end."""

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
    """What `state` means now. Same host: process, start ticks and boot id decide. Another host: the heartbeat.

    `anywhere`: the job is a batch system's, so whoever looks from any host may take the supervisor's place.
    `job_lives` and `end` cost something (they read /proc and the log) and are asked only when needed.
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
    """The error after which a job that lives has said nothing for `quiet` s, if that is longer than `patience`."""
    error = signs.last_error
    return error[1] if error is not None and quiet >= patience and not signs.ended else None


def pinned_folder(place: Path, key: str, iteration: Iteration) -> Path:
    """A folder below `place` with one iteration of the save folder that `key` stands for; `wanted_iteration` knows it."""
    return place / PINNED / key / str(iteration)


def wanted_iteration(plan: RunPlan) -> int | None:
    """The one iteration that a server is to answer from; None where any that it finds will do.

    core_r0.8.0 takes `--ckpt-step` and loads what the tracker names all the same: the log has to be asked.
    """
    if (asked := int_of(plan.arguments, "--ckpt-step")) is not None:
        return asked
    folder = Path(plan.load or "")
    is_pinned = len(folder.parts) > 3 and folder.parts[-3] == PINNED and folder.name.isdecimal()
    return int(folder.name) if is_pinned else None


def not_ready(plan: RunPlan, signs: Signs) -> str | None:
    """Why a server that was to load a checkpoint must not be called ready, even if it listens; None when it may."""
    if plan.kind != "serve" or not plan.load:
        return None
    if not signs.loaded:
        return "Its log does not say that a checkpoint was loaded: answers would come from random weights."
    wanted, found = wanted_iteration(plan), signs.loaded_iteration
    if wanted and found and wanted != found:  # 0 is said with --finetune, whatever was loaded
        return f"It has loaded iteration {found}, not {wanted}: answers would come from another checkpoint."
    return None


def starts_silently(plan: RunPlan, signs: Signs, tracked: Iteration | None) -> bool:
    """Whether a run that was to go on from a checkpoint (`tracked` was named when it started) goes on from random weights.

    Its log says so; or it counts iterations that were done before, and never said that it had loaded any.
    """
    if not plan.load or signs.loaded:
        return False
    if signs.random_start or plan.kind != "train":
        return signs.random_start
    again = isinstance(tracked, int) and signs.iteration is not None and signs.iteration <= tracked
    return again and not plan.begins_anew


def withheld(plan: RunPlan, signs: Signs) -> str | None:
    """Why a graceful stop, which saves, would do harm now; None when it would not."""
    if plan.kind != "train":
        return None
    if plan.load is not None and not signs.loaded:
        return "It has not loaded its checkpoint yet: saving now could put random weights over it."
    if signs.nan_alert:
        return f"A NaN alert is open ({signs.nan_alert}): saving now would keep broken weights."
    return None
