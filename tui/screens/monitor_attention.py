"""What the monitor's attention pane lists: errors and alerts with their remedies, evaluations, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backends.megatron.diagnosis import Diagnosis
from backends.megatron.events import Alert, Checkpoint, Error, Validation
from backends.megatron.record import Record
from backends.ticks import number
from tui.widgets.attention import Entry, Severity

HOW_TO_END = "Key S ends it, after asking."
NEWS = 200  # entries shown, the newest
OVER = ("finished", "failed", "lost")  # a run that has ended does not hang
SEVERITIES: Mapping[str, Severity] = {
    "critical": "error",
    "error": "error",
    "warning": "warning",
    "info": "info",
}


def entries(
    record: Record, diagnosis: Diagnosis, *, run_phase: str | None = None, reason: str | None = None
) -> list[Entry]:
    """All entries, newest first; the cause of a failure comes before all others.

    `reason`: what the run's state says of its phase.
    """
    found = [_error(e) for e in record.all_errors()[-NEWS:]] + [
        _alert(a) for a in list(record.alerts)[-NEWS:]
    ]
    found += _validations(list(record.validations)[-NEWS:]) + _checkpoints(record)
    since = record.segments[-1].line if record.segments else 0
    # Errors since the last restart stay on top; the rest is sorted by time.
    found.sort(key=lambda entry: (entry.severity != "error" or entry.line < since, -entry.line))
    if diagnosis.cause is not None:
        cause = _error(diagnosis.cause)
        found = [cause, *(entry for entry in found if entry != cause)]
    if diagnosis.hanging and diagnosis.cause and run_phase not in OVER:
        found.insert(0, Entry(
            diagnosis.cause.line, "error", f"The job hangs: {diagnosis.cause.explanation}",
            f"The job printed nothing after the error; ranks that wait for the failed one still hold their GPUs. {HOW_TO_END if run_phase else 'End it.'}",
        ))  # fmt: skip
    if reason:
        found.insert(0, Entry(0, "error" if run_phase in ("failed", "lost") else "info", reason))
    # The state of a run that mdk-tui started says more than the advice on a log whose phase is unknown.
    if diagnosis.advice and not (run_phase and diagnosis.phase == "unknown"):
        found.insert(0, Entry(0, "warning", diagnosis.advice))
    return found[:NEWS]


def _error(error: Error) -> Entry:
    who = "" if error.first_rank is None else f"rank {error.first_rank}: "
    others = f" (reported by {error.ranks} ranks)" if error.ranks > 1 else ""
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
    """Events of checkpoints; of the saved ones only the newest (the plot marks all of them)."""
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
