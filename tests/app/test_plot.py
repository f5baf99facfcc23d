"""Plots: axes that rarely move, curves that keep their extremes, keys that zoom and pan, and few redrawn rows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region

from backends.ticks import duration, number
from tui.widgets import axes
from tui.widgets.curves import Line, Mark, View, XAxis, nearest, panned, smooth, stretches, zigzag, zoomed
from tui.widgets.plot import Plot


def line(*values: float, start: float = 0, step: float = 10) -> Line:
    numbers = list(values)
    return Line([start + step * i for i in range(len(numbers))], numbers, numbers, numbers)


# Axes


@pytest.mark.parametrize("huge", [1.7e308, -1.7e308, math.inf])
def test_values_near_the_largest_float_are_gaps(huge: float):
    points = smooth(line(huge, 4.0, huge), 0.0)
    assert stretches(points, positive=False) == [((10, 4.0),)]


def test_limits_are_nice_and_hold_the_data():
    limits = axes.y_limits(2.871, 10.6, None)
    assert limits.step in (2.0, 2.5, 5.0)
    assert limits.low <= 2.871 and limits.high >= 10.6


@pytest.mark.parametrize("rows", [5, 9, 12, 17, 33])
@pytest.mark.parametrize(("low", "high"), [(3.05, 6.5), (87, 580), (871, 876.3), (0, 1e-4), (-3, 40)])
def test_ticks_are_whole_rows_apart_and_the_data_fill_the_plot(low: float, high: float, rows: int):
    limits = axes.y_limits(low, high, None, rows=rows)
    apart = limits.step / limits.span * (rows - 1)
    assert apart == pytest.approx(round(apart)) and len(limits.ticks()) > 1
    assert limits.low <= low and high <= limits.high and high - low >= 0.4 * limits.span


def test_limits_stay_while_the_data_fit():
    before = axes.y_limits(2.9, 10.6, None)
    assert axes.y_limits(2.5, 10.4, before) is before


def test_limits_move_when_the_data_leave_or_shrink():
    before = axes.y_limits(2.9, 10.6, None)
    assert axes.y_limits(2.9, 14.0, before).high >= 14
    assert axes.y_limits(2.9, 3.1, before).span < 1


def test_a_constant_has_limits_too():
    limits = axes.y_limits(5.0, 5.0, None)
    assert limits.low < 5.0 < limits.high
    assert axes.y_limits(0.0, 0.0, None).span > 0


def test_logarithmic_limits_are_exponents_and_refuse_what_is_not_positive():
    limits = axes.y_limits(1e-5, 1e-3, None, log=True)
    assert axes.y_limits(2.9, 10.6, None, log=True).ticks() == [2.0, 5.0, 10.0, 20.0]
    assert axes.y_limits(2.9, 9.0, axes.y_limits(2.9, 10.6, None, log=True), log=True).high == pytest.approx(
        math.log10(20)
    )
    assert limits.place(1e-4) == pytest.approx(0.5)
    assert math.isnan(limits.place(0.0)) and math.isnan(limits.place(-1.0))


def test_a_growing_curve_seldom_moves_the_x_axis():
    limits: axes.Limits | None = None
    moves = 0
    for stop in range(1000, 2000, 10):
        after = axes.x_limits(0, stop, limits)
        moves += after is not limits
        limits = after
    assert moves <= 12


def test_numbers_keep_their_width_as_they_change():
    assert {len(number(value)) for value in (875.0, 875.3, 812.55)} == {5}
    assert number(346_600.0) == "346,600"
    assert number(1.03e-5) == "1.03e-05"
    assert number(math.nan) == "NaN" and number(-math.inf) == "-inf"


def test_durations_read_as_people_say_them():
    assert duration(41) == "41 s"
    assert duration(2 * 3600 + 13 * 60) == "2 h 13 m"
    assert duration(69 * 86400 + 10 * 3600) == "69 d 10 h"


# Curves


def test_both_extremes_of_each_bucket_are_drawn():
    curve = Line([0, 1], [1.0, 2.0], [9.0, 3.0], [5.0, 2.5])
    assert {y for _, y in zigzag(curve)} == {1.0, 9.0, 2.0, 3.0}


def test_smoothing_of_a_constant_is_that_constant():
    assert [y for _, y in smooth(line(4.0, 4.0, 4.0), 0.9)] == pytest.approx([4.0, 4.0, 4.0])


def test_gaps_stay_gaps():
    points = smooth(line(4.0, math.nan, 2.0), 0.5)
    assert [len(part) for part in stretches(points, positive=False)] == [1, 1]
    assert len(stretches([(0, 1.0), (1, -1.0), (2, 1.0)], positive=True)) == 2


def test_zooming_in_keeps_the_newest_in_sight_and_out_again_ends_it():
    view = zoomed(View(), (0, 1000), (0, 1000), 0.5)
    assert view.window == (500, 1000)
    assert zoomed(view, (500, 1000), (0, 1000), 2.0).window is None


def test_zooming_is_about_the_crosshair():
    view = zoomed(View(crosshair=200), (0, 1000), (0, 1000), 0.5)
    assert view.window == (-50, 450)


def test_panning_stops_at_the_ends():
    view = View(window=(500, 1000))
    assert panned(view, (0, 1000), 1).window == (500, 1000)
    assert panned(view, (0, 1000), -1).window == (375, 875)
    assert panned(View(), (0, 1000), 1) == View()


def test_of_two_attempts_the_newer_is_read():
    old, new = line(1.0, 1.0), line(2.0, 2.0)
    found = nearest([old, new], 10)
    assert found is not None and found[0] is new
    assert nearest([], 10) is None


# The widget


class Source:
    """Curves that a test changes."""

    def __init__(self, *curves: Line) -> None:
        self.curves = list(curves)

    def __call__(
        self, metric: str, x: XAxis, start: float | None, stop: float | None, buckets: int
    ) -> list[Line]:
        if x == "tokens":
            return []
        kept = []
        for curve in self.curves:
            inside = [
                i
                for i, at in enumerate(curve.xs)
                if (start is None or at >= start) and (stop is None or at <= stop)
            ]
            kept.append(
                Line(
                    xs=[curve.xs[i] for i in inside],
                    lows=[curve.lows[i] for i in inside],
                    highs=[curve.highs[i] for i in inside],
                    means=[curve.means[i] for i in inside],
                )
            )
        return kept


class PlotApp(App[None]):
    def __init__(self, source: Source, *, ascii_only: bool = False) -> None:
        super().__init__()
        self.source = source
        self.plot = Plot(source, "lm loss", ascii_only=ascii_only)

    def compose(self) -> ComposeResult:
        yield self.plot

    def picture(self) -> list[str]:
        return [
            "".join(segment.text for segment in self.plot.render_line(y))
            for y in range(self.plot.size.height)
        ]


FALLING = line(*(3 + 8 * math.exp(-i / 10) for i in range(60)))


async def test_a_plot_shows_title_axes_curve_and_reading():
    app = PlotApp(Source(FALLING))
    async with app.run_test(size=(60, 14)):
        rows = app.picture()
    assert "lm loss" in rows[0]
    assert "min 3.0" in rows[-1]
    assert "200" in rows[-2] and "400" in rows[-2]
    assert sum(any("⠀" < c <= "⣿" for c in row) for row in rows) > 6


async def test_one_more_value_writes_few_rows():
    app = PlotApp(Source(line(*([5.0] * 50 + [4.0, 6.0] + [5.0] * 40))))
    async with app.run_test(size=(60, 20)) as pilot:
        written: list[Region] = []
        app.plot.refresh = lambda *regions, **_: written.extend(regions)  # type: ignore[method-assign, assignment]
        app.plot.update()
        assert written == []  # nothing changed
        app.source.curves = [line(*([5.0] * 50 + [4.0, 6.0] + [5.0] * 40 + [5.5]))]
        app.plot.update()
        await pilot.pause()
    assert 0 < len(written) < 10
    assert all(region.height == 1 for region in written)


async def test_plain_ascii_is_plain_ascii():
    app = PlotApp(Source(FALLING), ascii_only=True)
    app.plot.marks = lambda x: [Mark("validation", 200, 4.0), Mark("checkpoint", 300), Mark("restart", 400)]
    async with app.run_test(size=(60, 14)) as pilot:
        await pilot.press("s", "left")
        text = "".join(app.picture())
    assert text.isascii()
    assert "o" in text and "^" in text and ":" in text and "*" in text


async def test_marks_and_crosshair_stand_where_they_belong():
    app = PlotApp(Source(FALLING))
    app.plot.marks = lambda x: [Mark("validation", 300, 8.0), Mark("checkpoint", 300)]
    async with app.run_test(size=(70, 14)) as pilot:
        rows = app.picture()
        (diamond,) = [row.index("◇") for row in rows if "◇" in row]
        (triangle,) = [row.index("▴") for row in rows if "▴" in row]
        app.plot.focus()
        await pilot.press("left", "left", "left")
        assert app.plot.view.crosshair == 570
        assert "iteration 570" in app.picture()[-1]
    assert diamond == triangle


async def test_keys_change_the_view_and_r_brings_all_back():
    app = PlotApp(Source(FALLING))
    async with app.run_test(size=(70, 14)) as pilot:
        app.plot.focus()
        await pilot.press("l", "s", "plus", "plus", "comma")
        assert app.plot.view.log and app.plot.view.smoothing == 0.6 and app.plot.view.window is not None
        assert "zoomed" in app.picture()[0]
        await pilot.press("r", "l")
        assert app.plot.view == View(smoothing=0.6)
        await pilot.press("x")
        assert app.plot.view.x == "time"
        await pilot.press("x")  # no tokens in this log: back to iterations
        assert app.plot.view.x == "iteration"


@pytest.mark.parametrize(
    "curve",
    [Line([], [], [], []), line(math.nan), line(5.0), line(-1.0, -2.0), line(0.0, 0.0), line(1e-30, 1e30)],
)
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("size", [(60, 14), (14, 4), (12, 1), (200, 50)])
async def test_no_curve_and_no_size_breaks_it(curve: Line, log: bool, size: tuple[int, int]):
    app = PlotApp(Source(curve))
    async with app.run_test(size=size) as pilot:
        app.plot.look(replace(app.plot.view, log=log, smoothing=0.9))
        await pilot.pause()
        assert len(app.picture()) == size[1]
