"""The monitor's first line: the phase of the job, its progress and the time left."""

from __future__ import annotations

from backends.megatron.diagnosis import Diagnosis
from backends.megatron.record import Record
from backends.megatron.segment import seconds_of
from backends.ticks import duration
from tui.widgets.status_line import Headline

NO_TRAINING = "no training found"
STYLES = {"running": "good", "finished": "good", "failed": "error", "hanging": "error", "lost": "error"}


def phase_word(record: Record, diagnosis: Diagnosis, run_phase: str | None) -> str:
    """The phase in a word or a few. The state of the run's process takes precedence over the log."""
    if run_phase in ("finished", "failed", "lost", "stopping"):
        return run_phase
    if diagnosis.phase == "failed":
        return "hanging" if diagnosis.hanging else "failed"
    if diagnosis.phase in ("finished", "stopped"):
        # The log has ended; the process may need a moment more.
        return diagnosis.phase
    if diagnosis.phase == "running":
        return activity(record)
    if diagnosis.phase == "unknown" and run_phase is None:
        return NO_TRAINING
    return starting_words(record)


def activity(record: Record) -> str:
    """running, saving, evaluating or serving, by the newest lines of the log."""
    newest = record.checkpoints[-1] if record.checkpoints else None
    if newest and newest.action == "saving" and newest.iteration == record.iteration:
        return "saving"
    if any(m.name == "ready" for m in record.milestones) and not record.segments:
        return "serving"
    interval = record.arguments.get("eval_interval", "")
    due = (
        interval.isdigit()
        and int(interval) > 0
        and record.iteration
        and record.iteration % int(interval) == 0
    )
    validated = record.validations[-1].iteration if record.validations else None
    if due and validated != record.iteration and record.arguments.get("eval_iters") not in (None, "0"):
        return "evaluating"
    return "running"


STARTING = {
    "distributed": "starting: ranks join",
    "torch distributed": "starting: ranks join",
    "parallel groups": "starting: ranks have joined",
    "compiling": "starting: compiling kernels",
    "initialized": "starting: initialized",
    "initialized in": "starting: initialized",
    "built": "starting: model built",
    "datasets": "starting: building data sets",
    "data": "starting: data ready",
    "set up": "starting: set up",
    "loop": "starting: first iterations",
    "training": "starting: first iterations",
}


def starting_words(record: Record) -> str:
    for milestone in reversed(record.milestones):
        if milestone.name in STARTING:
            return STARTING[milestone.name]
    return "starting"


def headline(
    record: Record,
    diagnosis: Diagnosis,
    name: str,
    *,
    run_phase: str | None,
    started: str | None,
    ended: str | None,
    written: float | None,
    caught_up: bool,
    now: float,
) -> Headline:
    """`started` and `ended` are those of the run's state (ISO); without them the log's own time stamps count.

    `written` is when the log last grew: a log without a new line for long is quiet, whatever its last line says.
    `caught_up`: the log has been read to its end.
    """
    phase = phase_word(record, diagnosis, run_phase)
    if run_phase is None and not caught_up and diagnosis.phase != "failed":
        phase = "reading the log"
    may_be_quiet = phase in QUIET_PHASES or (phase.startswith("starting") and run_phase is None)
    silence = _silence(record, run_phase, written, now) if may_be_quiet else None
    live = run_phase in ("starting", "running", "stopping") and phase not in ("finished", "failed")
    moving = phase in ("running", "saving", "evaluating") and silence is None
    return Headline(
        name=name,
        phase=phase if silence is None else f"quiet: no line for {duration(silence)}",
        style=STYLES.get(phase, "info") if silence is None else "warning",
        iteration=record.iteration,
        train_iters=record.train_iters,
        left=record.seconds_left() if moving else None,
        elapsed=_elapsed(record, started, ended, now if live else None),
        tokens=record.tokens,
        tokens_per_second=record.tokens_per_second if moving else None,
    )


QUIET_PHASES = ("running", "saving", "evaluating")
QUIET = 120.0  # s without a new line that are still normal


def _silence(record: Record, run_phase: str | None, written: float | None, now: float) -> float | None:
    """Seconds since the log last grew, if that is far longer than an iteration takes, else None."""
    if written is None:
        return None
    usual = 20 * (record.iteration_ms or 0.0) / 1000
    known = run_phase is None and record.iteration is not None
    patience = max(QUIET if known else 5 * QUIET, usual)  # the first iteration may take long
    return now - written if now - written > patience else None


def _elapsed(record: Record, started: str | None, ended: str | None, now: float | None) -> float | None:
    first = started or next((m.time for m in record.milestones if m.time), None)
    if first is None and record.segments:
        first = record.segments[0].started
    last = None if now is not None else ended or record.last_time
    begin = seconds_of(first) if first else None
    end = now if now is not None else seconds_of(last) if last else None
    return max(end - begin, 0.0) if begin is not None and end is not None else None
