"""The data and the view of a plot, without drawing: thinned curves, marks, smoothing, zoom and pan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from backends.ticks import drawable

XAxis: TypeAlias = Literal["iteration", "time", "tokens"]
X_AXES: tuple[XAxis, ...] = ("iteration", "time", "tokens")
SMOOTHINGS = (0.0, 0.6, 0.9, 0.97)

Point: TypeAlias = tuple[float, float]


class CurveLike(Protocol):
    """One segment of a series, thinned: for each x the lowest, highest and mean value there. All have the same length."""

    @property
    def xs(self) -> Sequence[float]: ...
    @property
    def lows(self) -> Sequence[float]: ...
    @property
    def highs(self) -> Sequence[float]: ...
    @property
    def means(self) -> Sequence[float]: ...


@dataclass(frozen=True, slots=True)
class Line:
    """A curve as a plot shows it. `style` is a colour of the palette: "curve", "past" (of a run before), or "curve-N".

    `place`: of which run it is, where those of several are shown: more than there are colours.
    """

    xs: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    means: Sequence[float]
    style: str = "curve"
    place: int = 0

    @classmethod
    def of(cls, curve: CurveLike, style: str = "curve") -> Line:
        return cls(curve.xs, curve.lows, curve.highs, curve.means, style)


class CurveSource(Protocol):
    """Where a plot gets its curves: one for each time the job was (re)started. What is drawn last lies on top."""

    def __call__(
        self, metric: str, x: XAxis, start: float | None, stop: float | None, buckets: int
    ) -> Sequence[Line]: ...


@dataclass(frozen=True, slots=True)
class Mark:
    """Something beside the curve. A mark without a y stands at the foot (checkpoint) or is a line (restart, branch),
    with a `label` at its top.

    "value" is one without neighbours, of which no line can be drawn.
    """

    kind: Literal["validation", "checkpoint", "restart", "branch", "value"]
    x: float
    y: float | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """The view of a plot; it does not change the data."""

    x: XAxis = "iteration"
    log: bool = False
    smoothing: float = 0.0
    window: tuple[float, float] | None = None  # x, when zoomed
    crosshair: float | None = None  # x

    def notes(self) -> list[str]:
        """The settings that are not the default, in words."""
        notes = [
            f"smooth {self.smoothing:g}" if self.smoothing else "",
            "log" if self.log else "",
            {"iteration": "", "time": "by wall time", "tokens": "by tokens"}[self.x],
            "zoomed" if self.window else "",
        ]
        return list(filter(None, notes))


@dataclass(frozen=True, slots=True)
class Trace:
    """A finite stretch of points, and the colour of the palette that draws it."""

    style: str
    points: tuple[Point, ...]


def zigzag(curve: CurveLike) -> list[Point]:
    """Both extremes of each bucket in one line; the one nearer to the line's end comes first, which avoids false spikes."""
    points: list[Point] = []
    for x, low, high in zip(curve.xs, curve.lows, curve.highs, strict=True):
        if low == high:
            points.append((x, low))
        elif points and abs(points[-1][1] - high) < abs(points[-1][1] - low):
            points += [(x, high), (x, low)]
        else:
            points += [(x, low), (x, high)]
    return points


def smooth(curve: CurveLike, weight: float) -> list[Point]:
    """Exponential moving average of the means, corrected for its start (as TensorBoard does); gaps stay gaps."""
    average, total = 0.0, 0.0
    points: list[Point] = []
    for x, mean in zip(curve.xs, curve.means, strict=True):
        if math.isfinite(mean):
            average = weight * average + (1 - weight) * mean
            total = weight * total + (1 - weight)
            points.append((x, average / total))
        else:
            points.append((x, math.nan))
    return points


def stretches(points: Iterable[Point], *, positive: bool) -> list[tuple[Point, ...]]:
    """`points` cut where a value is missing (or, with `positive`, cannot be shown on a logarithmic axis)."""
    result: list[list[Point]] = [[]]
    for point in points:
        if drawable(point[1]) and (not positive or point[1] > 0):
            result[-1].append(point)
        elif result[-1]:
            result.append([])
    return [tuple(part) for part in result if part]


def traces(lines: Sequence[Line], view: View) -> list[Trace]:
    """The lines to draw, in order: the raw curve, and over it the smoothed one.

    Of several runs beside each other the smoothed ones alone: their raw curves could not be told apart.
    """
    drawn: list[Trace] = []
    for line in lines:
        if not view.smoothing or line.style in ("curve", "past"):
            style = "raw" if view.smoothing else line.style
            drawn += [Trace(style, part) for part in stretches(zigzag(line), positive=view.log)]
    if view.smoothing:
        for line in lines:
            parts = stretches(smooth(line, view.smoothing), positive=view.log)
            drawn += [Trace(line.style, part) for part in parts]
    return drawn


# Looking around: each function returns the next view.


def zoomed(view: View, shown: tuple[float, float], extent: tuple[float, float], factor: float) -> View:
    """`view` with the width of what is `shown` multiplied by `factor`, about the crosshair, else about the newest point
    (first zoom) or the middle. Zooming out to all of `extent` ends the zoom; closer than two units is refused."""
    half = (shown[1] - shown[0]) * factor / 2
    if factor > 1 and 2 * half >= extent[1] - extent[0]:
        return replace(view, window=None)
    if 2 * half < 2:
        return view
    if view.crosshair is not None:
        middle = view.crosshair
    else:
        middle = (shown[0] + shown[1]) / 2 if view.window else extent[1] - half
    return replace(view, window=(middle - half, middle + half))


def panned(view: View, extent: tuple[float, float], step: int) -> View:
    """A zoomed `view` moved by a quarter of its width, not beyond `extent`."""
    if view.window is None:
        return view
    low, high = view.window
    shift = (high - low) / 4
    shift = min(shift, max(extent[1] - high, 0.0)) if step > 0 else -min(shift, max(low - extent[0], 0.0))
    return replace(view, window=(low + shift, high + shift))


def nearest(curves: Sequence[Line], at: float) -> tuple[Line, int] | None:
    """Curve and index of the point nearest to `at`; of two attempts at one iteration, the newer."""
    found = [
        (abs(x - at), -number, index)
        for number, curve in enumerate(curves)
        for index, x in enumerate(curve.xs)
    ]
    if not found:
        return None
    _, number, index = min(found)
    return curves[-number], index
