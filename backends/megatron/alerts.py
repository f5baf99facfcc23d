"""Finds what is wrong in the numbers of iteration lines: NaN and absent losses, skipped steps, a loss scale at its minimum.

Megatron prints a loss only if its mean is > 0 (0.17 and later: >= 0), so a NaN loss is missing from the line.
`_judge` holds the decision table.
"""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from backends.megatron.events import Alert, IterationBatch, Severity, Validation, Value
from backends.megatron.printed_columns import PrintedNumbers

SKIPPED, NANS, SCALE, GRAD = (
    "number of skipped iterations",
    "number of nan iterations",
    "loss scale",
    "grad norm",
)
AUXILIARY = ("balancing", "z_loss", "z loss", "loss scale")  # in names of values other than the main losses
LM_LOSS = "lm loss"
LONG_SKIPPING = 50  # iterations; fp16 needs 10 to 30 to find its loss scale
SATURATED = 4.851652e08  # exp(20) as printed
CALM = 20  # lines without a trouble after which the trouble is over


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of the training: its kind, how severe it is, what it means and what helps."""

    kind: str
    severity: Severity
    message: str
    remedy: str


LOSS_IS_NAN = Trouble("nan-loss", "critical", "The loss is NaN: it vanished from the line and the gradient norm is nan, while both counters stay 0.",
                      "Stop without saving, resume from the last good checkpoint; lower the learning rate or look at the data.")  # fmt: skip
LOSS_PRINTED_AS_NAN = replace(LOSS_IS_NAN, message="The loss is NaN and the step was not skipped.")
LOSS_ABSENT = Trouble("absent-loss", "error", "The loss is missing although steps were taken: it is zero, negative, or NaN on one rank.",
                      "Check the loss mask and the data; turn on --check-for-nan-in-loss-and-grad.")  # fmt: skip
LOSS_INFINITE = Trouble("infinite-loss", "critical", "The loss is infinite and the step was not skipped.", "Stop without saving, resume from the last good checkpoint with a lower learning rate.")  # fmt: skip
NAN_STEPS = Trouble("nan-iterations", "warning", "Skipped steps had a NaN or infinite loss.", "Common while fp16 looks for its loss scale; if it continues, lower the learning rate.")  # fmt: skip
ALL_SKIPPED = Trouble("all-skipped", "info", "Every step was skipped: fp16 is looking for its loss scale.", "Normal in the first 10 to 30 iterations.")  # fmt: skip
SOME_SKIPPED = Trouble("some-skipped", "info", "Some steps were skipped; the loss is the mean over the others.", "Normal now and then with fp16.")  # fmt: skip
SKIPPING_ON = Trouble("skipping", "warning", f"Every step has been skipped for more than {LONG_SKIPPING} iterations.", "The model does not learn: lower the learning rate, or use bf16.")  # fmt: skip
SCALE_AT_END = Trouble("loss-scale-minimum", "error", "The loss scale is down to 1 and steps are still skipped: fp16 has diverged.", "Lower the learning rate or use bf16; resume from an earlier checkpoint.")  # fmt: skip


@dataclass(slots=True)
class _Stretch:
    """The lines with one trouble since it began."""

    trouble: Trouble
    begun: int  # iteration
    last: int  # iteration
    line: int
    rank: int | None
    count: int = 1
    calm: int = 0

    def ended(self) -> list[Alert]:
        """The alert at its end. There is none if the trouble was short or normal."""
        if self.count < 2 or self.trouble.severity == "info":
            return []
        what = self.trouble.message.split(":")[0].rstrip(".")
        message = f"{what} – in {self.count} lines, iterations {self.begun} to {self.last}."
        return [Alert(self.line, self.rank, f"{self.trouble.kind}-ended", message, "", self.last, "info")]


class Alarm:
    """Watches the iteration lines of one log. It alerts when a trouble begins, and says at its end how long it lasted."""

    def __init__(self) -> None:
        self._open: dict[str, _Stretch] = {}
        self._previous: int | None = None
        self._skipped_in_a_row = 0
        self._had_lm_loss = False

    def check(self, batch: IterationBatch) -> list[Alert]:
        """The alerts of `batch`, whose iterations rise."""
        losses = [column for name, column in batch.columns.items() if is_main_loss(name)]
        self._had_lm_loss = self._had_lm_loss or LM_LOSS in batch.columns
        absent = not losses or (self._had_lm_loss and LM_LOSS not in batch.columns)
        found: list[Alert] = []
        healthy = not absent and _finite(losses)  # then only rows with skipped or NaN steps can be troubled
        rows = _counted(batch.columns, len(batch)) if healthy else range(len(batch))
        done = 0
        for i in rows:
            if i > done:
                found += self._pass_calm(i - done)
                self._previous, self._skipped_in_a_row = batch.iterations[i - 1], 0
            found += self._row(batch, i, self._judged(batch, i, losses, absent))
            done = i + 1
        if done < len(batch):
            found += self._pass_calm(len(batch) - done)
            self._previous, self._skipped_in_a_row = batch.iterations[-1], 0
        return found

    def finish(self) -> list[Alert]:
        """The log, or this attempt, ends here."""
        found = [alert for stretch in self._open.values() for alert in stretch.ended()]
        self._open.clear()
        self._previous, self._skipped_in_a_row, self._had_lm_loss = None, 0, False
        return found

    def _judged(
        self, batch: IterationBatch, i: int, losses: list[Sequence[Value]], absent: bool
    ) -> tuple[Trouble, ...]:
        """The troubles of line `i`."""
        columns, iteration = batch.columns, batch.iterations[i]
        gradient, nans = (columns[name][i] if name in columns else None for name in (GRAD, NANS))
        skipped = columns[SKIPPED][i] if SKIPPED in columns else 0
        count = skipped if isinstance(skipped, int) else 0
        values = [loss[i] for loss in losses]
        learned = any(not isinstance(value, str) and value > 0 for value in values)  # 0 if no step was taken
        window = iteration - self._previous if self._previous is not None else 0
        whole = count >= window if window > 0 else gradient is None or count >= iteration
        all_skipped = count > 0 and whole and not learned
        self._previous = iteration
        self._skipped_in_a_row = self._skipped_in_a_row + count if all_skipped else 0
        return _judge(
            _worst(values),
            # a line without these fields does not come from training
            absent and (SKIPPED in columns or SCALE in columns),
            isinstance(gradient, float) and math.isnan(gradient),
            count > 0,
            all_skipped,
            self._skipped_in_a_row > LONG_SKIPPING,
            isinstance(nans, int) and nans > 0,
            SCALE in columns and columns[SCALE][i] == 1.0,
        )

    def _row(self, batch: IterationBatch, i: int, troubles: tuple[Trouble, ...]) -> list[Alert]:
        found = self._pass_calm(1, {trouble.kind for trouble in troubles}) if self._open else []
        line, rank, iteration = batch.lines[i], batch.ranks[i], batch.iterations[i]
        for trouble in troubles:
            stretch = self._open.get(trouble.kind)
            if stretch is None:
                self._open[trouble.kind] = _Stretch(trouble, iteration, iteration, line, rank)
                found.append(
                    Alert(
                        line, rank, trouble.kind, trouble.message, trouble.remedy, iteration, trouble.severity
                    )
                )
            else:
                stretch.last, stretch.line, stretch.rank, stretch.calm = iteration, line, rank, 0
                stretch.count += 1
        return found

    def _pass_calm(self, lines: int, troubled: set[str] | frozenset[str] = frozenset()) -> list[Alert]:
        """Count `lines` for which no trouble is seen but those `troubled`: the alerts of troubles that end."""
        found: list[Alert] = []
        for kind, stretch in list(self._open.items()):
            if kind in troubled:
                continue
            stretch.calm += lines
            if stretch.calm >= CALM:
                found += self._open.pop(kind).ended()
        return found


def check_validation(result: Validation) -> list[Alert]:
    """The alerts of an evaluation. Megatron prints exp(min(20, loss)), which is at its ceiling for a NaN loss too."""
    numbers = {name: value for name, value in result.values.items() if not isinstance(value, str)}
    where, line, rank = result.iteration, result.line, result.rank
    if bad := [name for name, value in numbers.items() if not math.isfinite(value)]:
        remedy = "Do not save over the last good checkpoint; look at the training loss before this iteration."
        return [
            Alert(
                line,
                rank,
                "nan-validation",
                f"{bad[0]} of the {result.set} set is no number.",
                remedy,
                where,
                "error",
            )
        ]
    if SATURATED in numbers.values():
        message = f"The perplexity of the {result.set} set is at its ceiling, exp(20): it measures nothing."
        return [Alert(line, rank, "perplexity-ceiling", message, "Look at the loss instead.", where, "info")]
    return []


@functools.cache
def _judge(
    worst: str,
    absent: bool,
    nan_gradient: bool,
    skipped: bool,
    all_skipped: bool,
    long: bool,
    nans: bool,
    lowest: bool,
) -> tuple[Trouble, ...]:
    """The troubles of one line. `worst` is that of its losses: "", "nan" or "inf". `lowest`: the loss scale is 1."""
    found: list[Trouble] = []
    if worst == "inf" and not all_skipped:
        found.append(LOSS_INFINITE)
    elif worst == "nan" and not all_skipped:
        found.append(LOSS_PRINTED_AS_NAN)
    elif absent and not all_skipped:
        found.append(LOSS_IS_NAN if nan_gradient else LOSS_ABSENT)
    if nans:
        found.append(NAN_STEPS)
    if skipped and lowest:
        found.append(SCALE_AT_END)
    elif all_skipped:
        found.append(SKIPPING_ON if long else ALL_SKIPPED)
    elif skipped:
        found.append(SOME_SKIPPED)
    return tuple(found)


def is_loss(name: str) -> bool:
    """Whether a key of an iteration line is a loss ("lm loss", "mtp_1 loss", "load_balancing_loss")."""
    return "loss" in name and not name.startswith("loss scale")


def is_main_loss(name: str) -> bool:
    """Whether a key is a main loss, not an auxiliary loss of a mixture of experts."""
    return "loss" in name and not any(word in name for word in AUXILIARY)


def _worst(values: Sequence[Value]) -> str:
    numbers = [value for value in values if isinstance(value, float)]
    if any(map(math.isinf, numbers)):
        return "inf"
    return "nan" if any(map(math.isnan, numbers)) else ""


def _finite(losses: list[Sequence[Value]]) -> bool:
    return all(
        isinstance(loss, PrintedNumbers)
        or (isinstance(loss, array) and math.isfinite(sum(cast("array[float]", loss))))
        for loss in losses
    )


def _counted(columns: Mapping[str, Sequence[Value]], rows: int) -> list[int]:
    """The rows in which steps were skipped or had a NaN."""
    counters = [columns[name] for name in (SKIPPED, NANS) if name in columns and any(columns[name])]
    return [i for i in range(rows) if any(counter[i] for counter in counters)] if counters else []
