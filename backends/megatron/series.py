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
LARGEST = 2**53  # whole numbers up to here are exact as floats


def _compact(values: Sequence[float]) -> Piece:
    if isinstance(values, range) and len(values) > 1 and values.step > 0:
        return values
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
    """`values` as machine numbers; whole numbers beyond those become floats, and infinite beyond these."""
    if all(isinstance(value, int) and -LARGEST <= value <= LARGEST for value in values):
        return array("q", values)  # pyright: ignore[reportArgumentType]
    return array("d", [_float(value) for value in values])


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _merge(last: Piece, piece: Piece) -> Piece | None:
    """`last` and `piece` as one, where that costs little; None where they stay two."""
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
    """Whether `piece` continues the line `last`."""
    alike = len(piece) == 1 or (isinstance(piece, range) and piece.step == last.step)
    return alike and piece[0] == last[-1] + last.step


def _values(piece: Piece) -> Sequence[float]:
    return [piece.value] * len(piece) if isinstance(piece, Repeat) else piece


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some neighbouring rows as one: `count` finite values. Of none, `low` is inf and `high` is -inf."""

    low: float
    high: float
    total: float
    count: int


def bucket(values: Sequence[float]) -> Bucket:
    """Minimum, maximum and sum of the finite values."""
    total = sum(values)
    if not math.isfinite(total):
        values = [value for value in values if math.isfinite(value)]
        total = sum(values)
    if not values:
        return Bucket(math.inf, -math.inf, 0.0, 0)
    return Bucket(min(values), max(values), total, len(values))


BASE, FACTOR = 64, 8  # rows in a bucket of the lowest level; buckets of one level in one of the next


class Level:
    """Buckets of one width, side by side; as columns, so that many are joined by `min`, `max` and `sum`."""

    def __init__(self, width: int) -> None:
        self.width = width  # rows
        self._lows, self._highs, self._totals, self._counts = array("d"), array("d"), array("d"), array("q")

    def __len__(self) -> int:
        return len(self._lows)

    def append(self, one: Bucket) -> None:
        self._lows.append(one.low)
        self._highs.append(one.high)
        self._totals.append(one.total)
        self._counts.append(one.count)

    def join(self, first: int, last: int) -> Bucket:
        """Buckets `first` … `last` - 1, at least one, as one."""
        part = slice(first, last)
        return Bucket(
            min(self._lows[part]), max(self._highs[part]), sum(self._totals[part]), sum(self._counts[part])
        )


class Pyramid:
    """Buckets over a column at several widths, so that any stretch of it is drawn from a few hundred of them.

    Only whole buckets are kept; the rows after the last one are read from the column itself.
    """

    def __init__(self, column: Column) -> None:
        self._column = column
        self._levels = [Level(BASE)]

    def update(self) -> None:
        """Take in the rows that the column has gained."""
        base = self._levels[0]
        while (len(base) + 1) * BASE <= len(self._column):
            start = len(base) * BASE
            base.append(bucket(self._column.slice(start, start + BASE)))
        depth = 0
        while len(self._levels[depth]) >= FACTOR:
            if depth + 1 == len(self._levels):
                self._levels.append(Level(self._levels[depth].width * FACTOR))
            lower, upper = self._levels[depth], self._levels[depth + 1]
            while (len(upper) + 1) * FACTOR <= len(lower):
                upper.append(lower.join(len(upper) * FACTOR, (len(upper) + 1) * FACTOR))
            depth += 1

    def step(self, rows: int) -> int:
        """`rows`, or somewhat more, so that steps of it fall on the edges of buckets not much narrower than it."""
        width = next((level.width for level in reversed(self._levels) if 4 * level.width <= rows), 1)
        return -(-rows // width) * width

    def over(self, start: int, stop: int) -> Bucket:
        """Rows `start` … `stop` - 1 as one bucket: exact, from whole buckets inside and single rows at the edges."""
        parts: list[Bucket] = []
        self._collect(start, stop, len(self._levels) - 1, parts)
        if len(parts) == 1:
            return parts[0]
        return Bucket(
            min((part.low for part in parts), default=math.inf),
            max((part.high for part in parts), default=-math.inf),
            sum(part.total for part in parts),
            sum(part.count for part in parts),
        )

    def _collect(self, start: int, stop: int, depth: int, parts: list[Bucket]) -> None:
        while depth >= 0 and self._levels[depth].width > stop - start:
            depth -= 1
        if start >= stop:
            return
        if depth < 0:
            parts.append(bucket(self._column.slice(start, stop)))
            return
        level = self._levels[depth]
        first, last = -(-start // level.width), min(stop // level.width, len(level))
        if first >= last:
            self._collect(start, stop, depth - 1, parts)
            return
        self._collect(start, first * level.width, depth - 1, parts)
        parts.append(level.join(first, last))
        self._collect(last * level.width, stop, depth - 1, parts)


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
        """Iterations `start` … `stop` (both included) in at most `buckets` buckets; minima and maxima survive.

        The edges of the buckets stay where they are while rows come, so that a live curve does not tremble.
        """
        low, high = self.iterations.find(start), self.iterations.find(math.nextafter(stop, math.inf))
        if high - low <= buckets:
            return self._rows(low, high)
        if self._pyramid is None:
            self._pyramid = Pyramid(self.values)
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
        """Few enough to be drawn one by one."""
        rows = zip(self.iterations.slice(low, high), self.values.slice(low, high), strict=True)
        finite = [(x, float(value)) for x, value in rows if math.isfinite(value)]
        values = [value for _, value in finite]
        return Curve([float(x) for x, _ in finite], values, list(values), list(values))
