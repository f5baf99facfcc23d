"""Columns keep every number in little memory; pyramids keep every minimum and maximum."""

from __future__ import annotations

import itertools
import math
import sys
import tracemalloc
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.megatron.pyramid import BASE, FACTOR, Pyramid
from backends.megatron.series import Column, Series

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32) | st.integers(-(2**70), 2**70)
BATCHES = st.lists(
    st.lists(NUMBERS, max_size=90)
    | st.builds(lambda value, length: [value] * length, NUMBERS, st.integers(1, 90))
    | st.builds(
        lambda start, step, length: range(start, start + step * length, step),
        st.integers(0, 50),
        st.integers(1, 3),
        st.integers(1, 90),
    ),
    max_size=12,
)


def same(one: float, two: float) -> bool:
    return one == pytest.approx(two, nan_ok=True, rel=1e-15)


def column_of(batches: Sequence[Sequence[float]]) -> Column:
    column = Column()
    for values in batches:
        column.extend(values)
    return column


@given(BATCHES)
def test_a_column_returns_its_values_however_they_arrived(batches: list[Sequence[float]]) -> None:
    expected = [value for values in batches for value in values]
    column = column_of(batches)
    assert len(column) == len(expected)
    assert all(map(same, column, expected))
    assert all(same(column[i], expected[i]) for i in range(len(expected)))
    middle = len(expected) // 3
    assert all(map(same, column.slice(middle, len(expected) - 1), expected[middle:-1]))


def test_a_column_has_no_row_beyond_its_ends() -> None:
    column = column_of([[1.0, 2.0]])
    assert column[-1] == 2.0
    for row in (2, -3):
        with pytest.raises(IndexError):
            column[row]


def test_a_number_too_large_for_a_float_is_infinite() -> None:
    column = column_of([[10**400], [-(10**400), 1.5]])
    assert list(column) == [math.inf, -math.inf, 1.5]


@pytest.mark.parametrize(("piece", "rows"), [(1, 12_000), (1000, 200_000)])
def test_constant_and_linear_columns_take_no_room(piece: int, rows: int) -> None:
    linear, constant, wild = Column(), Column(), Column()
    tracemalloc.start()
    for start in range(0, rows, piece):
        linear.extend(array("q", range(start * 1024, (start + piece) * 1024, 1024)))
        constant.extend(array("d", [65536.0]) * piece)
    assert tracemalloc.get_traced_memory()[0] < 10_000
    for start in range(0, rows, piece):
        wild.extend(array("d", [math.sin(row) for row in range(start, start + piece)]))
    assert tracemalloc.get_traced_memory()[0] < 8.5 * rows + 60_000
    tracemalloc.stop()
    assert (linear[rows - 1], constant[rows - 1], wild[rows - 1]) == (
        (rows - 1) * 1024,
        65536.0,
        math.sin(rows - 1),
    )


def test_unordered_whole_numbers_share_pieces() -> None:
    column = Column()
    tracemalloc.start()
    for row in range(12_000):
        column.extend([row * 7919 % 1000])
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 8.5 * 12_000 + 60_000
    assert column[11_999] == 11_999 * 7919 % 1000


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(NUMBERS, min_size=1, max_size=40).map(
        lambda some: some * (3 * BASE * FACTOR // len(some))
    ),
    cuts=st.lists(st.integers(0, 2000), max_size=4),
    data=st.data(),
)
def test_any_stretch_of_a_pyramid_equals_a_search_through_its_rows(
    values: list[float], cuts: list[int], data: st.DataObject
) -> None:
    column = Column()
    pyramid = Pyramid(column)
    edges = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    for start, stop in itertools.pairwise(edges):
        column.extend(values[start:stop])
        pyramid.update()
    start = data.draw(st.integers(0, len(values) - 1))
    stop = data.draw(st.integers(start + 1, len(values)))
    finite = [float(value) for value in values[start:stop] if math.isfinite(value)]
    found = pyramid.over(start, stop)
    assert found.count == len(finite)
    assert found.low == min(finite, default=math.inf)
    assert found.high == max(finite, default=-math.inf)
    scale = sum(map(abs, finite))
    assert found.total == pytest.approx(sum(finite), abs=1e-9 * scale + sys.float_info.min)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 6000),
    spike=st.integers(0, 5999),
    buckets=st.integers(1, 300),
    window=st.tuples(st.integers(-10, 6100), st.integers(-10, 6100)),
)
def test_the_extremes_of_a_window_survive_the_thinning(
    rows: int, spike: int, buckets: int, window: tuple[int, int]
) -> None:
    series = Series()
    values = [math.sin(row / 50) + (9.0 if row == spike else 0.0) for row in range(rows)]
    series.extend(range(1, rows + 1), values)
    start, stop = min(window), max(window)
    curve = series.curve(start, stop, buckets)
    inside = values[max(0, start - 1) : max(0, stop)]
    assert len(curve.xs) == len(curve.lows) == len(curve.highs) == len(curve.means) <= buckets
    assert bool(curve.xs) == bool(inside)
    if inside:
        assert min(curve.lows) == min(inside)
        assert max(curve.highs) == max(inside)
        assert all(
            map(
                lambda low, mean, high: low - 1e-9 <= mean <= high + 1e-9,
                curve.lows,
                curve.means,
                curve.highs,
            )
        )
        assert curve.xs == sorted(curve.xs)
        assert max(start, 1) <= curve.xs[0] and curve.xs[-1] <= min(stop, rows)


def test_a_growing_curve_keeps_its_edges() -> None:
    """A live plot does not tremble: what is behind the newest bucket stays as it is."""
    series = Series()
    series.extend(range(1, 100_001), [math.sin(row) for row in range(100_000)])
    before = series.curve(-math.inf, math.inf, 200)
    series.extend(range(100_001, 100_051), [0.0] * 50)
    after = series.curve(-math.inf, math.inf, 200)
    shared = len(before.xs) - 1
    assert (after.xs[:shared], after.lows[:shared], after.highs[:shared]) == (
        before.xs[:shared],
        before.lows[:shared],
        before.highs[:shared],
    )


def test_nan_and_infinite_values_are_not_drawn() -> None:
    series = Series()
    series.extend([10, 20, 30, 40], [1.0, math.nan, math.inf, 2.0])
    assert series.curve(-math.inf, math.inf, 200).xs == [10.0, 40.0]
    assert series.curve(20, 30, 200).xs == []
