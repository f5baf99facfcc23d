"""Columns of numbers in bounded memory, and thinned curves of them for plots."""

from __future__ import annotations

import bisect
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from backends.megatron.printed_columns import PrintedNumbers
from backends.megatron.pyramid import Pyramid

Piece: TypeAlias = "array[float] | array[int] | range | Repeat"


class Repeat:
    """One value, `length` times."""

    __slots__ = ("length", "value")

    def __init__(self, value: float, length: int) -> None:
        self.value, self.length = value, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> float:
        return self.value


class Column:
    """A growing column of numbers. Constant and linear stretches are kept as such, others as machine numbers (8 bytes each)."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def extend(self, values: Sequence[float]) -> None:
        if not len(values):
            return
        piece = _compact(values)
        if self._pieces and (merged := _merge(self._pieces[-1], piece)) is not None:
            self._pieces[-1] = merged
            self._ends[-1] += len(piece)
            return
        self._pieces.append(piece)
        self._ends.append(len(self) + len(piece))

    def __getitem__(self, index: int) -> float:
        if index < 0:
            index += len(self)
        at = bisect.bisect_right(self._ends, index)
        if index < 0 or at == len(self._ends):
            raise IndexError(index)
        return self._pieces[at][index - (self._ends[at - 1] if at else 0)]

    def slice(self, start: int, stop: int) -> list[float]:
        """The values of rows `start` … `stop` - 1."""
        found: list[float] = []
        at = bisect.bisect_right(self._ends, start)
        while start < stop and at < len(self._pieces):
            piece, before = self._pieces[at], self._ends[at - 1] if at else 0
            low, high = start - before, min(stop, self._ends[at]) - before
            found += [piece.value] * (high - low) if isinstance(piece, Repeat) else piece[low:high]
            start, at = self._ends[at], at + 1
        return found

    def find(self, value: float) -> int:
        """The first row that is not below `value`. The column must never fall."""
        return bisect.bisect_left(self, value)  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[float]:
        return iter(self.slice(0, len(self)))


LONG = 4096  # values; an array is not joined beyond this length
SHORT = 64  # values; shorter pieces are joined, because a live log adds one value at a time
LARGEST = 2**53  # whole numbers up to here are exact as floats


def _compact(values: Sequence[float]) -> Piece:
    if isinstance(values, range) and len(values) > 1 and values.step > 0:
        return values
    if isinstance(values, PrintedNumbers):
        values = values.numbers
    if not isinstance(values, array):
        values = _array(values)
    first = values[0]
    if first == values[-1] and values == array(values.typecode, [first]) * len(values):  # pyright: ignore[reportArgumentType]
        return Repeat(first, len(values))
    if values.typecode == "q":
        step = int(values[1] - first)
        if step > 0 and values[-1] - first == step * (len(values) - 1):
            line = range(int(first), int(values[-1]) + 1, step)
            if values == array("q", line):
                return line
    return values


def _array(values: Sequence[float]) -> array[float] | array[int]:
    """`values` as machine numbers. Whole numbers that are too large become floats, or infinite."""
    if all(isinstance(value, int) and -LARGEST <= value <= LARGEST for value in values):
        return array("q", values)  # pyright: ignore[reportArgumentType]
    return array("d", [_float(value) for value in values])


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _merge(last: Piece, piece: Piece) -> Piece | None:
    """`last` and `piece` joined, if that costs little; else None."""
    if isinstance(last, Repeat) and isinstance(piece, Repeat) and last.value == piece.value:
        return Repeat(last.value, len(last) + len(piece))
    if isinstance(last, range) and _goes_on(last, piece):
        return range(last.start, int(piece[-1]) + 1, last.step)
    if isinstance(last, Repeat) and len(last) == 1 and len(piece) == 1:
        one, two = last.value, piece[0]
        if isinstance(one, int) and isinstance(two, int) and two > one:  # two whole numbers begin a line
            return range(one, two + 1, two - one)
    if len(piece) <= SHORT and len(last) < (SHORT if isinstance(last, range) else LONG):
        joined = array("d", _values(last))  # a copy: the batch that it came from belongs to others too
        joined.extend(array("d", _values(piece)))
        return joined
    return None


def _goes_on(last: range, piece: Piece) -> bool:
    """Whether `piece` continues the linear stretch `last`."""
    alike = len(piece) == 1 or (isinstance(piece, range) and piece.step == last.step)
    return alike and piece[0] == last[-1] + last.step


def _values(piece: Piece) -> Sequence[float]:
    return [piece.value] * len(piece) if isinstance(piece, Repeat) else piece


@dataclass(frozen=True, slots=True)
class Curve:
    """A thinned stretch of one metric: the middle x, minimum, maximum and mean of each bucket. All lengths are equal."""

    xs: list[float]
    lows: list[float]
    highs: list[float]
    means: list[float]


class Series:
    """One metric of one segment: the iterations at which it was printed, and its values."""

    def __init__(self) -> None:
        self.iterations = Column()
        self.values = Column()
        self._pyramid = Pyramid(self.values)

    def extend(self, iterations: Sequence[int], values: Sequence[float]) -> None:
        self.iterations.extend(iterations)
        self.values.extend(values)

    def prepare(self, most: int) -> bool:
        """Prepare `most` rows for the first `curve`; whether some are left."""
        return self._pyramid.update(most)

    def curve(self, start: float, stop: float, buckets: int) -> Curve:
        """Iterations `start` … `stop` (both included) in at most `buckets` buckets; minima and maxima survive.

        The edges of the buckets stay where they are while rows are added, so that a live curve does not jitter.
        """
        low, high = self.iterations.find(start), self.iterations.find(math.nextafter(stop, math.inf))
        if high - low <= buckets:
            return self._rows(low, high)
        self._pyramid.update()
        step = self._pyramid.step(-(-(high - low) // max(1, buckets - 1)))
        curve = Curve([], [], [], [])
        for edge in range(low - low % step if buckets > 1 else low, high, step):
            a, b = max(low, edge), min(high, edge + step)
            found = self._pyramid.over(a, b)
            if found.count:
                curve.xs.append((self.iterations[a] + self.iterations[b - 1]) / 2)
                curve.lows.append(found.low)
                curve.highs.append(found.high)
                curve.means.append(found.total / found.count)
        return curve

    def _rows(self, low: int, high: int) -> Curve:
        """The curve of so few rows that each is a point."""
        rows = zip(self.iterations.slice(low, high), self.values.slice(low, high), strict=True)
        finite = [(x, float(value)) for x, value in rows if math.isfinite(value)]
        values = [value for _, value in finite]
        return Curve([float(x) for x, _ in finite], values, list(values), list(values))
