"""Axes that keep still: nice limits with hysteresis, ticks, and how numbers are written beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one axis shows, and the distance of its ticks.

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
        return [self.low + self.step * i for i in range(round(self.span / self.step) + 1)]


def nice_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 2.5, 5 × 10^k that cuts `span` into at most `most` pieces."""
    rough = span / max(most, 1)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    return next(nice * magnitude for nice in NICE if nice * magnitude >= rough * (1 - 1e-9))


def y_limits(low: float, high: float, previous: Limits | None, *, log: bool = False, most: int = 4) -> Limits:
    """Limits around `low` … `high`. `previous` is kept while the data fit in it and fill 40 % of it: nothing jumps."""
    if log:
        return log_limits(low, high, previous, most)
    if (
        previous is not None
        and not previous.log
        and previous.low <= low
        and high <= previous.high
        and high - low >= 0.4 * previous.span
        and most / 2 <= round(previous.span / previous.step) <= most + 2
    ):
        return previous
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-30):
        margin = abs(low) * 0.05 or 1.0
        low, high = low - margin, high + margin
    step = nice_step(high - low, most)
    bottom, top = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Limits(bottom, top, step)


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
    """Limits from `start` on. The right end is rounded up, so that a growing curve seldom moves what is already drawn."""
    if (
        previous is not None
        and previous.low == start
        and 0.7 * previous.span <= stop - start <= previous.span
    ):
        return previous
    span = max(stop - start, 1.0)
    room = nice_step(span, 2 * most)
    high = start + math.ceil(span / room - 1e-9) * room
    return Limits(start, high, nice_step(high - start, most))


def window_limits(start: float, stop: float, *, most: int = 6) -> Limits:
    """Limits of exactly `start` … `stop`: what zoom and pan ask for."""
    return Limits(start, stop, nice_step(max(stop - start, 1.0), most))


def inner_ticks(limits: Limits) -> list[float]:
    """Multiples of the step within the limits (which need not be multiples themselves)."""
    first = math.ceil(limits.low / limits.step - 1e-9)
    last = math.floor(limits.high / limits.step + 1e-9)
    return [limits.step * i for i in range(first, last + 1)]


def number(value: float, *, digits: int = 4) -> str:
    """A reading: four digits that matter, thousands with commas, always as many decimals; exponents only for the very small and very large."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if size != 0 and (size < 1e-3 or size >= 1e12):
        return f"{value:.2e}"
    decimals = max(digits - 1 - math.floor(math.log10(size)), 0) if size > 0 else 0
    return f"{value:,.{min(decimals, digits)}f}"


def compact(value: float) -> str:
    """A count for a narrow place: 950, 12 k, 1.5 M, 3.2 B."""
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:.3g}{unit}"
    return f"{value:,.0f}"


def tick_labels(ticks: Sequence[float], step: float, *, log: bool = False) -> list[str]:
    """Labels with as many decimals as the step needs, the same for all of them."""
    if log:
        return [f"{tick:.0e}" if tick < 1e-3 or tick >= 1e5 else f"{tick:,g}" for tick in ticks]
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if largest >= 1e5:
        return [compact(tick) for tick in ticks]
    if largest and largest < 1e-2:
        return [f"{tick:.1e}" if abs(tick) > step / 1e3 else "0" for tick in ticks]
    decimals = 0
    while decimals < 6 and abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def clock_label(seconds: float, step: float) -> str:
    """Local wall time of `seconds` since the epoch, as exact as `step` asks for."""
    moment = datetime.fromtimestamp(seconds)
    if step >= 86400:
        return moment.strftime("%m-%d")
    return moment.strftime("%H:%M" if step >= 60 else "%H:%M:%S")


def duration(seconds: float) -> str:
    """ "41 s", "2 h 13 m", "69 d 10 h"."""
    seconds = max(int(seconds), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60 % 60, seconds // 3600 % 24, seconds // 86400
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {seconds % 60} s"
