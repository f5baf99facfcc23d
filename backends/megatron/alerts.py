"""What the numbers of iteration lines say is wrong: NaN and absent losses, skipped steps, a loss scale at its end.

Megatron prints a loss only when its mean is > 0 (0.17 and later: >= 0), so a NaN loss simply vanishes from the line.
The table of decisions is in `_judge`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backends.megatron.events import Alert, IterationBatch, Severity, Value

SKIPPED, NANS, SCALE, GRAD = (
    "number of skipped iterations",
    "number of nan iterations",
    "loss scale",
    "grad norm",
)
LONG_SKIPPING = 50  # iterations: fp16's loss scale finds its level within 10 to 30


@dataclass(frozen=True, slots=True)
class Trouble:
    kind: str
    severity: Severity
    message: str
    remedy: str


LOSS_IS_NAN = Trouble("nan-loss", "critical", "The loss is NaN: it vanished from the line and the gradient norm is nan, while both counters stay 0.",
                      "Stop without saving, resume from the last good checkpoint; lower the learning rate or look at the data.")  # fmt: skip
LOSS_ABSENT = Trouble("absent-loss", "error", "The loss is missing although steps were taken: it is zero, negative, or NaN on one rank.",
                      "Check the loss mask and the data; turn on --check-for-nan-in-loss-and-grad.")  # fmt: skip
LOSS_INFINITE = Trouble("infinite-loss", "critical", "The loss is infinite and the step was not skipped.", "Stop without saving, resume from the last good checkpoint with a lower learning rate.")  # fmt: skip
NAN_STEPS = Trouble("nan-iterations", "warning", "Skipped steps had a NaN or infinite loss.", "Common while fp16 looks for its loss scale; if it goes on, lower the learning rate.")  # fmt: skip
ALL_SKIPPED = Trouble("all-skipped", "info", "Every step was skipped: fp16 is looking for its loss scale.", "Normal in the first 10 to 30 iterations.")  # fmt: skip
SKIPPING_ON = Trouble("skipping", "warning", f"Every step has been skipped for more than {LONG_SKIPPING} iterations.", "The model does not learn: lower the learning rate, or use bf16.")  # fmt: skip
SCALE_AT_END = Trouble("loss-scale-minimum", "error", "The loss scale is down to 1 and steps are still skipped: fp16 has diverged.", "Lower the learning rate or use bf16; resume from an earlier checkpoint.")  # fmt: skip


class Alarm:
    """Watches the iteration lines of one log. A trouble that lasts is told once, when it begins."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._previous: int | None = None
        self._skipped_in_a_row = 0

    def check(self, batch: IterationBatch, has_nan: bool) -> Iterator[Alert]:
        """`has_nan`: whether some value of the batch may be NaN or infinite (a cheap test on the bytes)."""
        columns = batch.columns
        quiet = not has_nan and _has_loss(columns) and not _any(columns, SKIPPED) and not _any(columns, NANS)
        if quiet:
            self._open.clear()
            self._skipped_in_a_row = 0
            self._previous = batch.iterations[-1]
            return
        for i in range(len(batch)):
            yield from self._row(batch, i)

    def _row(self, batch: IterationBatch, i: int) -> Iterator[Alert]:
        iteration = batch.iterations[i]
        window = (
            iteration - self._previous if self._previous is not None and iteration > self._previous else None
        )
        self._previous = iteration
        values = {name: column[i] for name, column in batch.columns.items()}
        skipped = values.get(SKIPPED)
        all_skipped = (
            isinstance(skipped, int)
            and skipped > 0
            and (skipped >= window if window else GRAD not in values or skipped >= iteration)
        )
        self._skipped_in_a_row = (
            self._skipped_in_a_row + int(skipped) if all_skipped and isinstance(skipped, int) else 0
        )
        now = {trouble.kind: trouble for trouble in _judge(values, all_skipped, self._skipped_in_a_row)}
        for kind, trouble in now.items():
            if kind not in self._open:
                yield Alert(
                    batch.lines[i],
                    batch.ranks[i],
                    kind,
                    trouble.message,
                    trouble.remedy,
                    iteration,
                    trouble.severity,
                )
        self._open = set(now)


def _judge(values: Mapping[str, Value], all_skipped: bool, skipped_in_a_row: int) -> Iterator[Trouble]:
    losses = [value for name, value in values.items() if is_loss(name) and not isinstance(value, str)]
    gradient = values.get(GRAD)
    if any(math.isinf(loss) for loss in losses):
        yield LOSS_INFINITE
    elif any(math.isnan(loss) for loss in losses):
        yield LOSS_IS_NAN
    elif not losses and not all_skipped:
        yield LOSS_IS_NAN if isinstance(gradient, float) and math.isnan(gradient) else LOSS_ABSENT
    if _positive(values.get(NANS)):
        yield NAN_STEPS
    if all_skipped and values.get(SCALE) == 1.0:
        yield SCALE_AT_END
    elif all_skipped:
        yield SKIPPING_ON if skipped_in_a_row > LONG_SKIPPING else ALL_SKIPPED


def is_loss(name: str) -> bool:
    """Whether a key of an iteration line is a loss ("lm loss", "mtp_1 loss", "load_balancing_loss")."""
    return "loss" in name and not name.startswith("loss scale")


def _has_loss(columns: Mapping[str, Sequence[Value]]) -> bool:
    return any(is_loss(name) for name in columns)


def _any(columns: Mapping[str, Sequence[Value]], name: str) -> bool:
    return any(columns.get(name, ()))


def _positive(value: Value | None) -> bool:
    return isinstance(value, (int, float)) and value > 0
