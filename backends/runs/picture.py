"""Draws several curves as one SVG picture without any library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from backends.megatron.series import Curve
from backends.ticks import drawable, nice_step, tick_labels

# Distinct on white, also for people with red-green blindness (Okabe and Ito, 2008).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
# For more curves than colours.
DASHES = ("", " stroke-dasharray='7 3'", " stroke-dasharray='2 3'")
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 44, 56  # px around the curves
LEGEND_ROW = 20  # px
FONT = "font-family='sans-serif' font-size='13' fill='#333'"


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn in one colour: a run, with one curve per attempt."""

    name: str
    curves: Sequence[Curve]


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps numbers from `low` to `high` to `size` px from `start`; upwards if `size` is negative."""

    low: float
    high: float
    step: float
    start: float
    size: float
    log: bool = False

    def place(self, value: float) -> float:
        scaled = math.log10(value) if self.log else value
        return self.start + (scaled - self.low) / (self.high - self.low) * self.size

    def ticks(self) -> list[tuple[float, str]]:
        """(px, label)."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        places = [self.step * i for i in range(first, last + 1)]
        values = [10.0**place for place in places] if self.log else places
        labels = tick_labels(values, self.step, log=self.log)
        return [(self.place(value), label) for value, label in zip(values, labels, strict=True)]


def svg(
    title: str,
    drawn: Sequence[Drawn],
    *,
    x_label: str = "iteration",
    log: bool = False,
    width: int = 900,
    height: int = 500,
) -> str:
    """`title` names the metric. A logarithmic axis leaves out values that are not positive."""
    points = [point for one in drawn for curve in one.curves for point in extremes(curve, log)]
    body: list[str] = [f"<text x='{LEFT}' y='26' {FONT} font-weight='bold'>{escape(title)}</text>"]
    bottom = height - BOTTOM
    if points:
        x = _axis([point[0] for point in points], LEFT, width - LEFT - RIGHT, 7, log=False)
        y = _axis([point[1] for point in points], bottom, TOP - bottom, 6, log=log)
        body += [*_axes(x, y, width, bottom, x_label), *_curves(drawn, x, y, log)]
    else:
        body.append(f"<text x='{width // 2}' y='{height // 2}' {FONT} text-anchor='middle'>no values</text>")
    total = height + LEGEND_ROW * len(drawn)
    body += _legend(drawn, height)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{total}' viewBox='0 0 {width} {total}'>"
        f"<rect width='{width}' height='{total}' fill='white'/>{''.join(body)}</svg>\n"
    )


def extremes(curve: Curve, log: bool) -> Iterator[tuple[float, float]]:
    """Lowest and highest of each bucket, as points of one line."""
    for x, low, high in zip(curve.xs, curve.lows, curve.highs, strict=True):
        for value in (low,) if low == high else (low, high):
            if drawable(value) and (value > 0 or not log):
                yield x, value


def _axis(values: Sequence[float], start: float, size: float, most: int, *, log: bool) -> Axis:
    low, high = min(values), max(values)
    if log:
        low, high = math.floor(math.log10(low)), math.ceil(math.log10(high))
        return Axis(low, max(high, low + 1), 1.0, start, size, log=True)
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-30):
        low, high = low - (abs(low) * 0.05 or 1), high + (abs(high) * 0.05 or 1)
    step = nice_step(high - low, most)
    return Axis(math.floor(low / step) * step, math.ceil(high / step) * step, step, start, size)


def _axes(x: Axis, y: Axis, width: int, bottom: int, x_label: str) -> Iterator[str]:
    for place, label in y.ticks():
        yield f"<line x1='{LEFT}' x2='{width - RIGHT}' y1='{place:.1f}' y2='{place:.1f}' stroke='#ddd'/>"
        yield f"<text x='{LEFT - 8}' y='{place + 4:.1f}' {FONT} text-anchor='end'>{label}</text>"
    for place, label in x.ticks():
        yield f"<line x1='{place:.1f}' x2='{place:.1f}' y1='{bottom}' y2='{bottom + 5}' stroke='#333'/>"
        yield f"<text x='{place:.1f}' y='{bottom + 20}' {FONT} text-anchor='middle'>{label}</text>"
    yield f"<text x='{(LEFT + width - RIGHT) // 2}' y='{bottom + 42}' {FONT} text-anchor='middle'>{escape(x_label)}</text>"


def _curves(drawn: Sequence[Drawn], x: Axis, y: Axis, log: bool) -> Iterator[str]:
    for number, one in enumerate(drawn):
        for curve in one.curves:
            places = " ".join(f"{x.place(a):.1f},{y.place(b):.1f}" for a, b in extremes(curve, log))
            if places:
                yield f"<polyline points='{places}' fill='none' {_stroke(number)} stroke-width='1.5'/>"


def _legend(drawn: Sequence[Drawn], top: int) -> Iterator[str]:
    for number, one in enumerate(drawn):
        y = top + LEGEND_ROW * number
        yield f"<line x1='{LEFT}' x2='{LEFT + 24}' y1='{y}' y2='{y}' {_stroke(number)} stroke-width='3'/>"
        yield f"<text x='{LEFT + 32}' y='{y + 4}' {FONT}>{escape(one.name)}</text>"


def _stroke(number: int) -> str:
    again = number // len(COLOURS)
    return f"stroke='{COLOURS[number % len(COLOURS)]}'{DASHES[again % len(DASHES)]}"
