"""Pyramids over columns of numbers: minima, maxima and sums at several widths, for plotting any stretch at once."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Sliced(Protocol):
    """A growing column of numbers."""

    def __len__(self) -> int: ...
    def slice(self, start: int, stop: int) -> Sequence[float]:
        """The values of rows `start` … `stop` - 1."""
        ...


@dataclass(frozen=True, slots=True)
class Bucket:
    """Neighbouring rows with `count` finite values. If there are none, `low` is inf and `high` is -inf."""

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
    """Buckets of one width, kept as columns, so that `min`, `max` and `sum` join many at once."""

    def __init__(self, width: int) -> None:
        self.width = width  # rows
        self._lows, self._highs, self._totals, self._counts = array("d"), array("d"), array("d"), array("q")

    def __len__(self) -> int:
        return len(self._lows)

    def fill(self, rows: Sequence[float]) -> None:
        """Append the buckets of `rows`, which fill whole buckets."""
        groups = list(zip(*[iter(rows)] * self.width, strict=True))
        totals = list(map(sum, groups))
        if not math.isfinite(sum(totals)):
            for group in groups:
                self.append(bucket(group))
            return
        self._lows.extend(map(min, groups))
        self._highs.extend(map(max, groups))
        self._totals.extend(totals)
        self._counts.extend([self.width] * len(groups))

    def append(self, one: Bucket) -> None:
        self._lows.append(one.low)
        self._highs.append(one.high)
        self._totals.append(one.total)
        self._counts.append(one.count)

    def join(self, first: int, last: int) -> Bucket:
        """Buckets `first` … `last` - 1, at least one, joined into one."""
        part = slice(first, last)
        return Bucket(
            min(self._lows[part]), max(self._highs[part]), sum(self._totals[part]), sum(self._counts[part])
        )


class Pyramid:
    """Buckets over a column at several widths, so that a few hundred of them draw any stretch of it.

    Only whole buckets are kept; the rows after the last one are read from the column itself.
    """

    def __init__(self, column: Sliced) -> None:
        self._column = column
        self._levels = [Level(BASE)]

    def update(self, most: int | None = None) -> bool:
        """Add at most `most` of the rows that the column has gained; whether some are left."""
        base = self._levels[0]
        start, whole = len(base) * BASE, len(self._column) // BASE * BASE
        stop = whole if most is None else min(whole, start + most // BASE * BASE)
        base.fill(self._column.slice(start, stop))
        depth = 0
        while len(self._levels[depth]) >= FACTOR:
            if depth + 1 == len(self._levels):
                self._levels.append(Level(self._levels[depth].width * FACTOR))
            lower, upper = self._levels[depth], self._levels[depth + 1]
            while (len(upper) + 1) * FACTOR <= len(lower):
                upper.append(lower.join(len(upper) * FACTOR, (len(upper) + 1) * FACTOR))
            depth += 1
        return stop < whole

    def step(self, rows: int) -> int:
        """A step of `rows` or somewhat more whose multiples fall on the edges of buckets that are not much narrower."""
        width = next((level.width for level in reversed(self._levels) if 4 * level.width <= rows), 1)
        return -(-rows // width) * width

    def over(self, start: int, stop: int) -> Bucket:
        """Rows `start` … `stop` - 1 as one exact bucket: whole buckets inside and single rows at the edges."""
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
