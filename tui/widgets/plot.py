"""A line plot in the terminal: one metric over iterations, time or tokens, and the keys to look around in it.

The source thins a series to minima and maxima first, so a redraw costs the same at any length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual.binding import Binding, BindingType

from backends.ticks import drawable, number, tick_labels
from tui.widgets import axes, plot_drawing
from tui.widgets.axes import Limits
from tui.widgets.curves import (
    SMOOTHINGS,
    X_AXES,
    CurveSource,
    Line,
    Mark,
    View,
    XAxis,
    nearest,
    panned,
    traces,
    zoomed,
)
from tui.widgets.panel import Panel, Span

# Most buckets that are asked for: more cannot be told apart and cost time.
COLUMNS_AT_MOST = 160
UNSEEN_AT_MOST = 20  # most updates in a row that change only the readings, since one of them may bring a mark


@dataclass(slots=True)
class _Picture:
    """The state of the last redraw, for the readings and the crosshair."""

    curves: Sequence[Line] = ()
    x: Limits | None = None
    y: Limits | None = None
    gutter: int = 5


class Plot(Panel):
    """One metric over iterations, time or tokens. `source` gives the curves; `update` says that there may be more."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "smooth", "smooth", id="plot.smooth", tooltip="Smooth the curve: off, 0.6, 0.9, 0.97"),
        Binding("l", "log", "log", id="plot.log", tooltip="Switch the y axis between linear and logarithmic"),
        Binding("x", "axis", "axis", id="plot.axis", tooltip="Switch the x axis: iteration, time, tokens"),
        Binding("left", "crosshair(-1)", "value", id="plot.left", key_display="←→", tooltip="Read values with the crosshair"),
        Binding("right", "crosshair(1)", "value", id="plot.right", key_display="←→", show=False, tooltip="Read values with the crosshair"),
        Binding("plus,equals_sign", "zoom(0.5)", "zoom", id="plot.in", key_display="+-", tooltip="Zoom in or out along the x axis"),
        Binding("minus", "zoom(2.0)", "zoom", id="plot.out", key_display="+-", show=False, tooltip="Zoom in or out along the x axis"),
        Binding("comma,shift+left", "pan(-1)", "pan", id="plot.pan_left", key_display=", .", show=False, tooltip="Pan to the left or right"),
        Binding("full_stop,shift+right", "pan(1)", "pan", id="plot.pan_right", key_display=", .", show=False, tooltip="Pan to the left or right"),
        Binding("r", "whole", "whole", id="plot.whole", tooltip="Show the whole curve again, without the crosshair"),
    ]  # fmt: skip

    def __init__(
        self,
        source: CurveSource,
        metric: str = "",
        *,
        view: View | None = None,
        id: str | None = None,
        ascii_only: bool = False,
        empty: str = "waiting for the first iteration",
    ) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self.source = source
        self.metric = metric
        self.view = view or View()
        self.marks: Callable[[XAxis], Sequence[Mark]] = lambda x: ()
        self.readout: Callable[[], str] = lambda: ""
        self.empty = empty
        self.time_label: Callable[[float, float], str] = axes.clock_label  # of an x, and the step between two
        self.newest: Callable[[str], float | None] = lambda metric: None
        # Replaces the readings, if given.
        self.legend: Callable[[Sequence[Line], float | None], Sequence[Span]] | None = None
        self._picture = _Picture()
        # The inputs of the last drawing, and its rows.
        self._body: tuple[object, Sequence[Sequence[Span]]] = (None, ())
        self._reads = 0
        self._upto: float | None = None
        self._unseen = 0

    def update(self, upto: float | None = None) -> None:
        """The data may have changed: ask the source and redraw what differs.

        `upto` is the newest iteration: a step too small to be seen changes the readings only, twenty times at most.
        """
        if upto is None or not self._too_small(upto):
            self._read()
            self._upto, self._unseen = upto, 0
        self.show()

    def _too_small(self, upto: float) -> bool:
        x, view = self._picture.x, self.view
        if self._upto is None or x is None or view.window is not None or view.x != "iteration":
            return False
        self._unseen += 1
        columns = 2 * max(self.body_size[0] - self._picture.gutter, 1)
        return 0 <= upto - self._upto < x.span / columns and self._unseen < UNSEEN_AT_MOST

    def choose(self, metric: str) -> None:
        """Show another metric."""
        self.metric = metric
        self._picture = _Picture(gutter=self._picture.gutter)
        self.update()

    # Reading and drawing.

    def _read(self) -> None:
        picture, view = self._picture, self.view
        self._reads += 1
        start, stop = view.window or (None, None)
        buckets = max(min(self.body_size[0] - picture.gutter, COLUMNS_AT_MOST), 16)
        curves = (
            [c for c in self.source(self.metric, view.x, start, stop, buckets) if len(c.xs)]
            if self.metric
            else []
        )
        picture.curves = curves
        if not curves:
            return
        if view.window:
            picture.x = axes.window_limits(*view.window)
        else:
            first, last = min(c.xs[0] for c in curves), max(c.xs[-1] for c in curves)
            if view.x != "time" and (0 < first <= 0.3 * last or first == last):
                first = 0.0
            picture.x = axes.x_limits(first, last, picture.x)

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        drawn_from = (width, height, self._reads, self.empty)
        if self._body[0] != drawn_from:
            self._body = (drawn_from, self._draw(width, height))
        return self._body[1]

    def _draw(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        if height < 1 or width < 12:
            return ()
        if not self._picture.curves or self._picture.x is None:
            return self._say(self.empty, width, height)
        drawn = traces(self._picture.curves, self.view)
        values = [value for trace in drawn for _, value in trace.points]
        if not values:
            return self._say(f"no finite value of {self.metric} in view", width, height)
        rows = height - 1
        marks = list(self.marks(self.view.x))
        values += [m.y for m in marks if m.y is not None and drawable(m.y) and (m.y > 0 or not self.view.log)]
        y = axes.y_limits(min(values), max(values), self._picture.y, log=self.view.log, rows=rows)
        self._picture.y = y
        labels = tick_labels(y.ticks(), y.step, log=y.log)
        gutter = max(self._picture.gutter, *(len(label) + 1 for label in labels))
        self._picture.gutter = gutter
        canvas = max(width - gutter, 4)
        x = self._picture.x
        lines = [trace for trace in drawn if len(trace.points) > 1]
        cells = plot_drawing.draw(lines, x, y, canvas, rows, ascii_only=self.ascii_only)
        marks += [Mark("value", *trace.points[0]) for trace in drawn if len(trace.points) == 1]
        plot_drawing.overlay(cells, marks, self.view.crosshair, x, y, ascii_only=self.ascii_only)
        body = plot_drawing.with_y_axis(cells, labels, y, gutter)
        return [*body, plot_drawing.x_axis(x, self._x_labels(x), gutter, canvas)]

    def _x_labels(self, x: Limits) -> list[str]:
        inner = axes.inner_ticks(x)
        if self.view.x == "time":
            return [self.time_label(tick, x.step) for tick in inner]
        return tick_labels(inner, x.step)

    def _say(self, words: str, width: int, height: int) -> list[list[Span]]:
        row: list[Span] = [(words.center(width), "dim")]
        return [[("", "dim")]] * (height // 2) + [row]

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        dot, notes = " - " if self.ascii_only else " · ", self.view.notes()
        return [(self.metric or self.id or "no metric", "title")], [(dot.join(notes), "dim")] if notes else []

    def foot(self) -> Sequence[Span]:
        from statistics import median  # importing it takes 10 ms, which the first paint does not need

        curves = self._picture.curves
        if not curves:
            return ()
        if self.legend is not None:
            where: list[Span] = []
            if self.view.crosshair is not None:
                where = [(f"{self.view.x} {self._place_words(self.view.crosshair)}", "info")]
            return [*where, *self.legend(curves, self.view.crosshair)]
        if self.view.crosshair is not None:
            return [(self._crosshair_words(), "info")]
        lows = [v for c in curves for v in c.lows if math.isfinite(v)]
        means = [v for c in curves for v in c.means if math.isfinite(v)]
        newest = self.newest(self.metric)
        if newest is None:
            newest = curves[-1].means[-1]
        words: list[Span] = [(number(newest), "title" if math.isfinite(newest) else "error")]
        # The most important first: spans without room are left out from the end.
        words += [(f"  min {number(min(lows))}", "dim")] if lows else []
        words += [(f"  {more}", "dim")] if (more := self.readout()) else []
        words += [(f"  median {number(median(means))}", "dim")] if means else []
        return words

    def _crosshair_words(self) -> str:
        position = nearest(self._picture.curves, self.view.crosshair or 0.0)
        if position is None:
            return ""
        curve, index = position
        x, low, high = curve.xs[index], curve.lows[index], curve.highs[index]
        spread = f"  {number(low)} to {number(high)}" if low != high else ""
        return f"{self.view.x} {self._place_words(x)}  {number(curve.means[index])}{spread}"

    def _place_words(self, x: float) -> str:
        return self.time_label(x, 1) if self.view.x == "time" else f"{x:,.0f}"

    # Keys.

    def look(self, view: View) -> None:
        """Change the view."""
        if view.x != self.view.x or view.log != self.view.log:
            self._picture = _Picture()
        if view.window != self.view.window:
            self._picture.y = None
        shown = self.view.window, self.view.crosshair
        self.view = view
        if shown != (view.window, view.crosshair):
            self.refresh_bindings()
        self.update()

    def on_resize(self, event: object) -> None:
        self._picture.x = self._picture.y = None  # the number of ticks depends on the size
        self.update()

    def action_crosshair(self, step: int) -> None:
        xs = sorted({x for curve in self._picture.curves for x in curve.xs})
        if not xs:
            return
        at = self.view.crosshair
        if at is None:
            self.look(replace(self.view, crosshair=xs[-1]))
            return
        index = min(range(len(xs)), key=lambda i: abs(xs[i] - at))
        if self.view.window and not 0 <= index + step < len(xs):
            self.action_pan(step)
            return
        self.look(replace(self.view, crosshair=xs[min(max(index + step, 0), len(xs) - 1)]))

    def action_zoom(self, factor: float) -> None:
        if self._picture.x is not None:
            shown = self.view.window or (self._picture.x.low, self._picture.x.high)
            self.look(zoomed(self.view, shown, self._extent(), factor))

    def action_pan(self, step: int) -> None:
        self.look(panned(self.view, self._extent(), step))

    def _extent(self) -> tuple[float, float]:
        """First and last x of all data, whatever the window."""
        curves = [c for c in self.source(self.metric, self.view.x, None, None, 16) if len(c.xs)]
        if not curves:
            return 0.0, 1.0
        return min(c.xs[0] for c in curves), max(c.xs[-1] for c in curves)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "whole":
            return self.view.window is not None or self.view.crosshair is not None
        return True

    def action_whole(self) -> None:
        self.look(replace(self.view, window=None, crosshair=None))

    def action_smooth(self) -> None:
        following = SMOOTHINGS.index(self.view.smoothing) + 1
        self.look(replace(self.view, smoothing=SMOOTHINGS[following % len(SMOOTHINGS)]))

    def action_log(self) -> None:
        self.look(replace(self.view, log=not self.view.log))

    def action_axis(self) -> None:
        """Switch to the next x axis for which there are data."""
        start = X_AXES.index(self.view.x)
        for turn in range(1, len(X_AXES)):
            x = X_AXES[(start + turn) % len(X_AXES)]
            if any(len(curve.xs) for curve in self.source(self.metric, x, None, None, 16)):
                self.look(replace(self.view, x=x, window=None, crosshair=None))
                return
        self.app.notify(
            "The log has neither times nor token counts, so only iterations can be the x axis.", markup=False
        )
