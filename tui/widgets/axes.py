"""Axes that rarely move: round limits with hysteresis, ticks, and their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from backends.ticks import NICE, nice_step


@dataclass(frozen=True, slots=True)
class Limits:
    """The range of an axis and the step between its ticks.

    With `log`, `low` and `high` are exponents of ten, and the ticks stand at `marks` instead.
    """

    low: float
    high: float
    step: float
    log: bool = False
    marks: tuple[float, ...] = ()

    @property
    def span(self) -> float:
        return self.high - self.low

    def place(self, value: float) -> float:
        """Where `value` lies, 0 at `low` and 1 at `high`; NaN when it cannot be shown."""
        if self.log:
            if value <= 0:
                return math.nan
            value = math.log10(value)
        return (value - self.low) / self.span

    def ticks(self) -> list[float]:
        """Values of the ticks, not exponents."""
        if self.log:
            return list(self.marks)
        return [self.low + self.step * i for i in range(math.floor(self.span / self.step + 1e-9) + 1)]


def y_limits(
    low: float, high: float, previous: Limits | None, *, log: bool = False, rows: int = 13
) -> Limits:
    """Limits around `low` … `high` for `rows` rows, with ticks a whole number of rows apart, from `low` on.

    `previous` is kept while the data fit in it and fill 40 % of it, so that the axis does not jump.
    """
    most = max(rows // 3, 1)
    if log:
        return log_limits(low, high, previous, most)
    if (
        previous is not None
        and not previous.log
        and previous.low <= low
        and high <= previous.high
        and high - low >= 0.4 * previous.span
    ):
        return previous
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-30):
        margin = abs(low) * 0.05 or 1.0
        low, high = low - margin, high + margin
    power = math.floor(math.log10((high - low) / most))
    steps = [nice * 10.0 ** (power + more) for more in (0, 1) for nice in NICE[:-1]]
    fitting = [step for step in steps if max(most / 3, 0.5) <= (high - low) / step <= max(most, 2)]
    choices = [_in_rows(low, high, step, rows) for step in fitting]
    # Two ticks at least; then the limits that the data fill the most.
    return min(choices, key=lambda limits: (len(limits.ticks()) < 2, limits.span))


def _in_rows(low: float, high: float, step: float, rows: int) -> Limits:
    """Limits from a multiple of `step` on; a step takes as many whole rows as leave room for `high`."""
    bottom = math.floor(low / step + 1e-9) * step
    apart = max(math.floor((rows - 1) * step / (high - bottom) + 1e-9), 1)
    return Limits(bottom, max(bottom + step * (rows - 1) / apart, high), step)


def log_limits(low: float, high: float, previous: Limits | None, most: int) -> Limits:
    """Logarithmic limits at 1, 2 or 5 × 10^k, with ticks there, or at powers of ten where those would be too many."""
    fits = previous is not None and previous.log and previous.place(low) >= 0 and previous.place(high) <= 1
    if previous is not None and fits and previous.place(high) - previous.place(low) >= 0.4:
        return previous
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    places = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    bottom = max(place for place in places if place <= low * (1 + 1e-9))
    top = min(place for place in places if place >= high * (1 - 1e-9) and place > bottom)
    marks = [place for place in places if bottom <= place <= top]
    if len(marks) > most + 2:
        tens = [float(f"1e{decade}") for decade in decades]
        within = [ten for ten in tens if bottom <= ten <= top]
        marks = within[:: max(-(-len(within) // (most + 1)), 1)]
    return Limits(math.log10(bottom), math.log10(top), 1.0, True, tuple(marks))


def x_limits(start: float, stop: float, previous: Limits | None, *, most: int = 6) -> Limits:
    """Limits from `start` on. The right end is rounded up, so that a growing curve rarely moves the axis."""
    if (
        previous is not None
        and previous.low == start
        and 0.7 * previous.span <= stop - start <= previous.span
    ):
        return previous
    span = max(stop - start, 1.0)
    room = nice_step(span, 2 * most)
    high = start + math.ceil(span / room - 1e-9) * room
    return Limits(start, high, whole_step(high - start, most))


def whole_step(span: float, most: int) -> float:
    """Like `nice_step`, but a whole number of iterations, tokens or seconds."""
    step = max(nice_step(span, most), 1.0)
    return step if step.is_integer() else 2 * step


def window_limits(start: float, stop: float, *, most: int = 6) -> Limits:
    """Limits of exactly `start` … `stop`, for zoom and pan."""
    return Limits(start, stop, whole_step(max(stop - start, 1.0), most))


def inner_ticks(limits: Limits) -> list[float]:
    """Multiples of the step within the limits (which need not be multiples themselves)."""
    first = math.ceil(limits.low / limits.step - 1e-9)
    last = math.floor(limits.high / limits.step + 1e-9)
    return [limits.step * i for i in range(first, last + 1)]


def clock_label(seconds: float, step: float) -> str:
    """Local wall time of `seconds` since the epoch, as exact as `step` needs."""
    moment = datetime.fromtimestamp(seconds)
    if step >= 86400:
        return moment.strftime("%m-%d")
    return moment.strftime("%H:%M" if step >= 60 else "%H:%M:%S")
