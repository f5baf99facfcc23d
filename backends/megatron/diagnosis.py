"""What a log, taken by itself, says of its job: starting, running, finished, failed, hanging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from backends.megatron.events import Error
from backends.megatron.record import Record

LogPhase: TypeAlias = Literal["starting", "running", "finished", "stopped", "failed"]
SURVIVED = frozenset({"rerun"})  # errors that a job may live through
ENDINGS = frozenset(
    {
        "rank-failed",
        "rank-killed",
        "mpi-abort",
        "container",
        "not-enough-slots",
        "no-executable",
        "daemon-lost",
    }
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`cause` is the first error of the last attempt; `hanging`: nothing that ends the job has followed it."""

    phase: LogPhase
    hanging: bool
    cause: Error | None
    advice: str = ""


def diagnose(record: Record) -> Diagnosis:
    """The state that the lines alone tell. Whether the process lives is for the run's state to say."""
    since = _last_attempt(record)
    errors = [e for e in record.all_errors() if e.line >= since and e.kind not in SURVIVED]
    exits = [e for e in record.exits if e.line >= since]
    if errors:
        cause = next((e for e in errors if e.kind not in ENDINGS), errors[0])
        ended = any(e.line > cause.line for e in exits) or any(e.kind in ENDINGS for e in errors)
        return Diagnosis("failed", not ended, cause)
    if any(m.name == "done" and m.line >= since for m in record.milestones):
        return Diagnosis("finished", False, None)
    for event in reversed(exits):
        if event.status or event.signal:
            return Diagnosis("failed", False, None)
        if "SIGTERM" in event.reason or "signal" in event.reason:
            return Diagnosis("stopped", False, None)
        if "without" not in event.reason:
            return Diagnosis("finished", False, None)
    serving = any(m.name == "ready" and m.line >= since for m in record.milestones)
    if serving or (record.segments and record.segments[-1].line >= since):
        return Diagnosis("running", False, None)
    started = any(m.name == "training" and m.line >= since for m in record.milestones)
    advice = ""
    if started and record.memory and not record.iterations_seen:
        advice = "Iteration lines are printed by the last rank: this may be the log of another node."
    return Diagnosis("starting", False, None, advice)


def _last_attempt(record: Record) -> int:
    """The line at which the newest attempt began."""
    starts = [m.line for m in record.milestones if m.name == "distributed"]
    return starts[-1] if starts else 0
