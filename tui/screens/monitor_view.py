"""What the monitor says of a record, as values: headline, entries that want attention, marks, curves. No drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backends.megatron.diagnosis import Diagnosis
from backends.megatron.events import Alert, Checkpoint, Error, Validation
from backends.megatron.record import ITERATION_MS, Record, seconds_of
from backends.megatron.series import Curve
from tui.widgets.attention import Entry, Severity
from tui.widgets.axes import duration, number
from tui.widgets.curves import Mark, XAxis
from tui.widgets.status_line import Headline

LOSS = "lm loss"
THROUGHPUT = ("throughput per GPU (TFLOP/s/GPU)", "throughput (token/sec)", "tokens per second", ITERATION_MS)
NEWS = 200  # entries shown, the newest
FINE = 512  # buckets in which a stretch of time is looked up
STYLES = {"running": "good", "finished": "good", "failed": "error", "hanging": "error", "lost": "error"}


# --- phase ------------------------------------------------------------------------------------------------------------


def phase_word(record: Record, diagnosis: Diagnosis, run_phase: str | None) -> str:
    """One word for what happens now. What the run's state knows of the process goes before what the log says."""
    if run_phase in ("finished", "failed", "lost", "stopping"):
        return run_phase
    if diagnosis.phase == "failed":
        return "hanging" if diagnosis.hanging else "failed"
    if diagnosis.phase in ("finished", "stopped"):
        # The log is at its end, the process may take a moment more.
        return diagnosis.phase
    if diagnosis.phase == "running":
        return activity(record)
    return starting_words(record)


def activity(record: Record) -> str:
    """running, saving or evaluating: what the newest lines of a running job say."""
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
    now: float,
) -> Headline:
    """`started` and `ended` are those of the run's state (ISO); without them the log's own time stamps count.

    `written` is when the log last grew: one that says nothing for long is said to be quiet, whatever its last words were.
    """
    phase = phase_word(record, diagnosis, run_phase)
    silence = _silence(record, run_phase, written, now) if phase in QUIET_PHASES else None
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
QUIET = 120.0  # s without a word that are still no sign of trouble


def _silence(record: Record, run_phase: str | None, written: float | None, now: float) -> float | None:
    """s since the log last grew, if that is far longer than an iteration takes; None: it is not."""
    if written is None:
        return None
    usual = 20 * (record.iteration_ms or 0.0) / 1000
    patience = max(QUIET if run_phase is None else 5 * QUIET, usual)
    return now - written if now - written > patience else None


def _elapsed(record: Record, started: str | None, ended: str | None, now: float | None) -> float | None:
    first = started or next((m.time for m in record.milestones if m.time), None)
    if first is None and record.segments:
        first = record.segments[0].started
    last = None if now is not None else ended or record.last_time
    begin = seconds_of(first) if first else None
    end = now if now is not None else seconds_of(last) if last else None
    return max(end - begin, 0.0) if begin is not None and end is not None else None


# --- attention --------------------------------------------------------------------------------------------------------

SEVERITIES: Mapping[str, Severity] = {
    "critical": "error",
    "error": "error",
    "warning": "warning",
    "info": "info",
}


def entries(
    record: Record, diagnosis: Diagnosis, *, run_phase: str | None = None, reason: str | None = None
) -> list[Entry]:
    """Everything worth knowing, newest first; where a job failed, its cause before all.

    `reason`: what the run's state says of its phase.
    """
    found = [_error(e) for e in record.all_errors()[-NEWS:]] + [
        _alert(a) for a in list(record.alerts)[-NEWS:]
    ]
    found += _validations(list(record.validations)[-NEWS:]) + _checkpoints(record)
    since = record.segments[-1].line if record.segments else 0
    # An error of this attempt stays on top; everything else sinks with time.
    found.sort(key=lambda entry: (entry.severity != "error" or entry.line < since, -entry.line))
    if diagnosis.cause is not None:
        cause = _error(diagnosis.cause)
        found = [cause, *(entry for entry in found if entry != cause)]
    if diagnosis.hanging and diagnosis.cause:
        found.insert(0, Entry(
            diagnosis.cause.line, "error", "The job hangs: an error was printed, and nothing that ends the job has followed.",
            "Stop it; ranks that wait for the failed one hold their GPUs.",
        ))  # fmt: skip
    if reason:
        found.insert(0, Entry(0, "error" if run_phase in ("failed", "lost") else "info", reason))
    if diagnosis.advice:
        found.insert(0, Entry(0, "warning", diagnosis.advice))
    return found[:NEWS]


def _error(error: Error) -> Entry:
    who = "" if error.first_rank is None else f"rank {error.first_rank}: "
    others = f" ({error.ranks} ranks say so)" if error.ranks > 1 else ""
    message = f"{who}{error.explanation or error.message}{others}"
    return Entry(error.line, "error", message, error.remedy, error.message)


def _alert(alert: Alert) -> Entry:
    where = "" if alert.iteration is None else f"iteration {alert.iteration:,}: "
    return Entry(alert.line, SEVERITIES[alert.severity], where + alert.message, alert.remedy)


def _validations(results: Sequence[Validation]) -> list[Entry]:
    found: list[Entry] = []
    before: dict[str, str] = {}
    for result in results:
        value = validation_loss(result)
        if value is None:
            continue
        where = "at the end" if result.iteration is None else f"at {result.iteration:,}"
        was = f" (was {before[result.set]})" if result.set in before else ""
        severity: Severity = "info" if math.isfinite(value) else "warning"
        found.append(Entry(result.line, severity, f"{result.set} {where}: {number(value)}{was}"))
        before[result.set] = number(value)
    return found


def _checkpoints(record: Record) -> list[Entry]:
    """What happened with checkpoints; of those saved the newest (the plot marks all)."""
    saved = [event for event in record.checkpoints if event.action == "saved"]
    entries = [_checkpoint(event) for event in record.checkpoints if event.action != "saved"]
    found = [entry for entry in entries if entry is not None]
    if saved and (newest := _checkpoint(saved[-1])):
        count = f" ({len(saved)} so far)" if len(saved) > 1 else ""
        found.append(replace(newest, message=newest.message + count))
    return found


def _checkpoint(event: Checkpoint) -> Entry | None:
    where = "" if event.iteration is None else f" of iteration {event.iteration:,}"
    match event.action:
        case "saved":
            return Entry(event.line, "good", f"checkpoint{where} saved")
        case "loaded":
            return Entry(event.line, "good", f"checkpoint{where} loaded")
        case "failed":
            return Entry(
                event.line, "error", f"saving or loading the checkpoint{where} failed", details=event.path
            )
        case _:
            return None


def validation_loss(result: Validation) -> float | None:
    """The loss of an evaluation: "lm loss value", else the first number."""
    value = result.values.get("lm loss value", next(iter(result.values.values()), None))
    return float(value) if isinstance(value, int | float) else None


# --- plots ------------------------------------------------------------------------------------------------------------


EMPTY = {
    "failed": "it failed before its first iteration was logged",
    "stopped": "it was stopped before its first iteration was logged",
    "finished": "it logged no iteration",
}


def empty_words(pane: str, record: Record, diagnosis: Diagnosis) -> str:
    """What an empty plot says."""
    if record.iteration is not None:
        return "the log prints no loss so far" if pane == "loss" else "the log prints no times so far"
    return EMPTY.get(diagnosis.phase, "waiting for the first iteration")


def throughput_metric(metrics: Sequence[str]) -> str:
    """The best measure of speed that the log has."""
    return next((name for name in THROUGHPUT if name in metrics), "")


def loss_metric(metrics: Sequence[str]) -> str:
    return next(
        (name for name in metrics if name == LOSS),
        next((name for name in metrics if "loss" in name and "scale" not in name), ""),
    )


class RecordCurves:
    """A record as the source of plots: x windows in time or tokens become iterations, and nothing is read half applied."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def __call__(
        self, metric: str, x: XAxis, start: float | None, stop: float | None, buckets: int
    ) -> list[Curve]:
        with self.record.lock:
            if x == "iteration" or start is None or stop is None:
                return self.record.curves(metric, x=x, start=start, stop=stop, buckets=buckets)
            first, last = self._iterations(metric, x, start, stop)
            found = self.record.curves(metric, x=x, start=first, stop=last, buckets=buckets)
        return [_within(curve, start, stop) for curve in found]

    def _iterations(self, metric: str, x: XAxis, start: float, stop: float) -> tuple[float, float]:
        """First and last iteration of which `x` lies in the window, one bucket more on each side."""
        by_iteration = self.record.curves(metric, buckets=FINE)
        by_x = self.record.curves(metric, x=x, buckets=FINE)
        found: list[float] = []
        for plain, other in zip(by_iteration, by_x, strict=False):
            inside = [i for i, value in enumerate(other.xs) if start <= value <= stop]
            if inside:
                found += [plain.xs[max(inside[0] - 1, 0)], plain.xs[min(inside[-1] + 1, len(plain.xs) - 1)]]
        return (min(found), max(found)) if found else (math.inf, -math.inf)

    def marks(self, metric: str, x: XAxis) -> list[Mark]:
        """Evaluations (beside a loss), saved checkpoints, restarts."""
        with self.record.lock:
            record = self.record
            found = [Mark("restart", float(s.first)) for s in record.segments[1:]]
            found += [
                Mark("checkpoint", float(c.iteration))
                for c in record.checkpoints
                if c.action == "saved" and c.iteration
            ]
            if metric == LOSS:
                for result in record.validations:
                    value = validation_loss(result)
                    if result.iteration is not None and value is not None:
                        found.append(Mark("validation", float(result.iteration), value))
            if x == "iteration":
                return found
            placed = [(mark, _x_of(record, mark.x, x)) for mark in found]
        return [Mark(mark.kind, place, mark.y) for mark, place in placed if place is not None]


def _within(curve: Curve, start: float, stop: float) -> Curve:
    kept = [i for i, value in enumerate(curve.xs) if start <= value <= stop]
    return Curve(*([column[i] for i in kept] for column in (curve.xs, curve.lows, curve.highs, curve.means)))


def _x_of(record: Record, iteration: float, x: XAxis) -> float | None:
    for segment in reversed(record.segments):
        if segment.first <= iteration <= segment.last and x == "time":
            return segment.time_at(iteration)
    if x == "tokens" and record.tokens and record.iteration:
        return record.tokens * iteration / record.iteration  # even batches; a ramp-up bends it
    return None


def newest(record: Record, metric: str) -> float | None:
    """The newest value of `metric`; None when the last line had none."""
    value = record.last.get(metric)
    return float(value) if isinstance(value, int | float) else None


def speed_words(record: Record) -> str:
    """What stands beside the newest throughput."""
    words: list[str] = []
    if (ms := record.iteration_ms) is not None:
        words.append(
            f"{number(ms / 1000, digits=3)} s/iteration"
            if ms >= 1000
            else f"{number(ms, digits=3)} ms/iteration"
        )
    if (speed := record.tokens_per_second) is not None:
        words.append(f"{speed:,.0f} tokens/s")
    return "  ".join(words)


def loss_words(record: Record, marker: str) -> str:
    """The newest evaluation, for the foot of the loss plot."""
    for result in sorted(record.validations, key=lambda result: (result.set == "test", -result.line)):
        value = validation_loss(result)
        if value is not None:
            where = "" if result.iteration is None else f" @ {result.iteration:,}"
            return f"{'test' if result.set == 'test' else 'val'} {number(value)}{where} {marker}"
    return ""
