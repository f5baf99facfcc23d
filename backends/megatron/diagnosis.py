"""Tells from a log alone whether its job is starting, running, finished, failed or hanging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from backends.megatron.known_errors import ENDINGS

if TYPE_CHECKING:
    from backends.megatron.events import Error, Exit
    from backends.megatron.record import Record

LogPhase: TypeAlias = Literal["unknown", "starting", "running", "finished", "stopped", "failed"]
SURVIVED = frozenset({"rerun"})  # errors that a job may live through
ECHOES = ENDINGS | {"peer-lost"}  # errors that follow from another error
# So many iteration lines after an error or an exit show that the job continues. Other ranks may still print one or two.
LIVED_ON = 3
NOTHING = "No line of training by Megatron-LM was found: it is the output of another program, or of a job that has not begun."
ADVICE = "Iteration lines are printed by the last rank: this may be the log of another node."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`cause` is the first error of the newest attempt, which began at line `since`.

    `hanging`: an error was printed, and no line after it ends the job.
    """

    phase: LogPhase
    hanging: bool
    cause: Error | None
    advice: str = ""
    since: int = 0


def diagnose(record: Record) -> Diagnosis:
    """The state of the job as its log tells it. Only the run's own state knows whether the process lives."""
    since = record.attempt_line
    exits = [exit for exit in record.exits if exit.line >= since]
    errors = _fatal(record, since)
    if errors:
        # Prefer an error that explains the failure to one that only reports that the launcher ended the job.
        cause = min(errors, key=lambda error: (error.kind in ECHOES) + (error.kind == "rank-failed"))
        ended = any(error.kind in ENDINGS for error in errors) or any(e.line >= cause.line for e in exits)
        alone = _alone(record, cause)
        return Diagnosis("failed", not ended and not alone, cause, since=since)
    if not record.version:
        return Diagnosis("unknown", False, None, NOTHING)
    names = {milestone.name for milestone in record.milestones if milestone.line >= since}
    if "done" in names:
        return Diagnosis("finished", False, None, since=since)
    newest = record.newest_lines
    lived_on = newest[-LIVED_ON] if len(newest) >= LIVED_ON else 0
    last = [exit for exit in exits if exit.line > lived_on]  # the job continued after the others
    ends: list[LogPhase] = [phase for exit in last if (phase := _phase_of(exit)) is not None]
    if ends:
        return Diagnosis(ends[-1], False, None, since=since)
    if "ready" in names or (record.segments and record.segments[-1].line >= since):
        return Diagnosis("running", False, None, since=since)
    elsewhere = "training" in names and bool(record.memory) and not record.iterations_seen
    return Diagnosis("starting", False, None, ADVICE if elsewhere else "", since)


def _alone(record: Record, failed: Error) -> bool:
    """Whether the log shows a job of one rank, so that a failed rank leaves no other waiting."""
    if world := record.arguments.get("world_size"):
        return world == "1"
    return failed.first_rank is None and not any(m.name == "distributed" for m in record.milestones)


def _fatal(record: Record, since: int) -> list[Error]:
    """Errors of the newest attempt that it did not survive."""
    errors = [e for e in record.all_errors() if e.line >= since and e.kind not in SURVIVED]
    lived_on = record.iterations_since_error >= LIVED_ON and not record.pending
    return [e for e in errors if e.kind in ENDINGS] if lived_on else errors


def _phase_of(exit: Exit) -> LogPhase | None:
    """The phase that a line about the end implies; None if it implies none. A status of 0 does not prove success."""
    reason = exit.reason
    if exit.status or exit.signal or "missing-checkpoint" in reason:
        return "failed"
    if any(word in reason for word in ("SIGTERM", "signal", "erminat", "CANCELLED", "job killed", "TERM_")):
        return "stopped"
    return (
        "finished"
        if reason.lower().startswith("exiting") or "iteration" in reason or "minutes" in reason
        else None
    )
