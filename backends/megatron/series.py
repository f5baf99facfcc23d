"""Columns of numbers in bounded memory, and pyramids over them that keep minima and maxima for plotting."""

from __future__ import annotations

import bisect
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
    """A growing column of numbers. What is constant or linear is kept as such, the rest as machine numbers (8 bytes each)."""

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
        """The first row that is not below `value`, in a column that never falls."""
        return bisect.bisect_left(self, value)  # pyright: ignore[reportArgumentType]

    def __iter__(self) -> Iterator[float]:
        return iter(self.slice(0, len(self)))


LONG = 4096  # values; an array is not joined beyond this length
SHORT = 64  # values; shorter pieces are joined into one array, or a live log would make a piece an iteration


def _compact(values: Sequence[float]) -> Piece:
    first = values[0]
    if first == first and all_equal(values):
        return Repeat(first, len(values))
    if isinstance(values, range):
        return values
    if isinstance(first, int):
        step = int(values[1]) - first
        if step > 0 and values[-1] - first == step * (len(values) - 1):
            line = range(first, first + step * len(values), step)
            if array("q", values) == array("q", line):  # pyright: ignore[reportArgumentType]
                return line
    if isinstance(values, array):
        return values
    return array("d", values)


def all_equal(values: Sequence[float]) -> bool:
    return (
        values.count(values[0]) == len(values)
        if isinstance(values, (array, list, tuple))
        else len(values) == 1
    )


def _merge(last: Piece, piece: Piece) -> Piece | None:
    """`last` and `piece` as one, where that costs little; None where they stay two."""
    if isinstance(last, Repeat) and isinstance(piece, Repeat) and last.value == piece.value:
        return Repeat(last.value, len(last) + len(piece))
    if isinstance(last, range) and piece[0] == last.stop:
        if isinstance(piece, range) and piece.step == last.step:
            return range(last.start, piece.stop, last.step)
        if len(piece) == 1:
            return range(last.start, last.stop + last.step, last.step)
    if isinstance(last, Repeat) and len(last) == 1 and len(piece) == 1:
        one, two = last.value, piece[0]
        if isinstance(one, int) and isinstance(two, int) and two > one:  # two whole numbers begin a line
            return range(one, 2 * two - one, two - one)
    if len(piece) <= SHORT and len(last) < LONG and not isinstance(last, range):
        joined = array("d", _values(last))  # a copy: the batch that it came from belongs to others too
        joined.extend(array("d", _values(piece)))
        return joined
    return None


def _values(piece: Piece) -> Sequence[float]:
    return [piece.value] * len(piece) if isinstance(piece, Repeat) else piece


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some neighbouring rows as one: `count` finite values."""

    low: float
    high: float
    total: float
    count: int


def bucket(values: Sequence[float]) -> Bucket | None:
    """Minimum, maximum and sum of the finite values; None when there are none."""
    total = sum(values)
    if not math.isfinite(total):
        values = [value for value in values if math.isfinite(value)]
        total = sum(values)
    if not values:
        return None
    return Bucket(min(values), max(values), total, len(values))


BASE, FACTOR = 64, 8  # rows in a bucket of the lowest level; buckets of one level in one of the next


class Pyramid:
    """Buckets over a column at several widths, so that any stretch of it is drawn from a few hundred of them.

    Only whole buckets are kept; the rows after the last one are read from the column itself.
    """

    def __init__(self, column: Column) -> None:
        self._column = column
        self._levels: list[list[Bucket | None]] = [[]]

    def update(self) -> None:
        """Take in the rows that the column has gained."""
        base = self._levels[0]
        while (len(base) + 1) * BASE <= len(self._column):
            start = len(base) * BASE
            base.append(bucket(self._column.slice(start, start + BASE)))
        level = 0
        while len(self._levels[level]) >= FACTOR:
            if level + 1 == len(self._levels):
                self._levels.append([])
            lower, upper = self._levels[level], self._levels[level + 1]
            while (len(upper) + 1) * FACTOR <= len(lower):
                upper.append(join(lower[len(upper) * FACTOR : (len(upper) + 1) * FACTOR]))
            level += 1

    def over(self, start: int, stop: int) -> Bucket | None:
        """Rows `start` … `stop` - 1 as one bucket: exact, from whole buckets inside and single rows at the edges."""
        parts: list[Bucket | None] = []
        self._collect(start, stop, len(self._levels) - 1, parts)
        return join(parts)

    def _collect(self, start: int, stop: int, level: int, parts: list[Bucket | None]) -> None:
        if start >= stop:
            return
        if level < 0:
            parts.append(bucket(self._column.slice(start, stop)))
            return
        width = BASE * FACTOR**level
        buckets = self._levels[level]
        first, last = -(-start // width), min(stop // width, len(buckets))
        if first >= last:
            self._collect(start, stop, level - 1, parts)
            return
        self._collect(start, first * width, level - 1, parts)
        parts += buckets[first:last]
        self._collect(last * width, stop, level - 1, parts)


def join(parts: Sequence[Bucket | None]) -> Bucket | None:
    there = [part for part in parts if part is not None]
    if not there:
        return None
    if len(there) == 1:
        return there[0]
    return Bucket(
        min(p.low for p in there),
        max(p.high for p in there),
        sum(p.total for p in there),
        sum(p.count for p in there),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """A stretch of one metric, thinned: of each bucket its middle x, its minimum, maximum and mean. Equal lengths."""

    xs: list[float]
    lows: list[float]
    highs: list[float]
    means: list[float]


class Series:
    """One metric of one segment: the iterations at which it was printed, and its values."""

    def __init__(self) -> None:
        self.iterations = Column()
        self.values = Column()
        self._pyramid: Pyramid | None = None

    def extend(self, iterations: Sequence[int], values: Sequence[float]) -> None:
        self.iterations.extend(iterations)
        self.values.extend(values)

    def curve(self, start: float, stop: float, buckets: int) -> Curve:
        """Iterations `start` … `stop` (both included) in at most `buckets` buckets; minima and maxima survive."""
        if self._pyramid is None:
            self._pyramid = Pyramid(self.values)
        self._pyramid.update()
        low, high = self.iterations.find(start), self.iterations.find(math.nextafter(stop, math.inf))
        rows = high - low
        curve = Curve([], [], [], [])
        for i in range(min(buckets, rows)):
            a, b = low + rows * i // min(buckets, rows), low + rows * (i + 1) // min(buckets, rows)
            found = self._pyramid.over(a, b)
            if found is not None:
                curve.xs.append((self.iterations[a] + self.iterations[b - 1]) / 2)
                curve.lows.append(found.low)
                curve.highs.append(found.high)
                curve.means.append(found.total / found.count)
        return curve
