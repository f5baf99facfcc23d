"""The curve of the loss as an SVG picture, drawn by hand: a few hundred bytes a curve, and no plotting library."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.sax.saxutils import escape

from backends.megatron.record import Record
from backends.megatron.series import Curve

WIDTH, HEIGHT = 800, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 40  # margins
BUCKETS = 400
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd")  # one an attempt


def loss_picture(record: Record, metric: str, title: str = "") -> str | None:
    """SVG of `metric` over iterations, one line an attempt; None where the log has no such numbers."""
    curves = [curve for curve in record.curves(metric, buckets=BUCKETS) if curve.xs]
    if not curves:
        return None
    xs = [x for curve in curves for x in curve.xs]
    lows, highs = _range(
        [y for curve in curves for y in curve.lows], [y for curve in curves for y in curve.highs]
    )
    left, right = min(xs), max(*xs, min(xs) + 1)

    def place(x: float, y: float) -> str:
        across = LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (y - lows) / (highs - lows) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{down:.1f}"

    heading = escape(" · ".join(filter(None, (title, metric))))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="14">{heading}</text>',
        *_grid(left, right, lows, highs),
        *(_line(curve, COLOURS[i % len(COLOURS)], place) for i, curve in enumerate(curves)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _range(lows: list[float], highs: list[float]) -> tuple[float, float]:
    low, high = min(lows), max(highs)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _line(curve: Curve, colour: str, place: Callable[[float, float], str]) -> str:
    points = " ".join(place(x, y) for x, y in zip(curve.xs, curve.means, strict=True))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _grid(left: float, right: float, low: float, high: float) -> list[str]:
    """Lines and numbers at round values."""
    rows: list[str] = []
    for value in _round_values(low, high):
        y = HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        rows.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        rows.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in _round_values(left, right):
        x = LEFT + (value - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        rows.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{value:g}</text>')
    return rows


def _round_values(low: float, high: float, most: int = 6) -> list[float]:
    """At most about `most` multiples of 1, 2 or 5 times a power of ten between `low` and `high`."""
    power = 10 ** math.floor(math.log10((high - low) / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (power * factor) <= most)
    first = math.ceil(low / step)
    return [round(i * step, 12) for i in range(first, math.floor(high / step) + 1)]
