"""The newest lines of a log, their filter and the search in them. Nothing is drawn here."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.megatron.events import LogLine

KEPT = 5000  # lines; older ones are in the file
KEPT_OF_PIPE = 20_000  # lines; older ones are nowhere
WHOLE = 4000  # lines; of a shorter log no line is dropped here, nor folded as part of a flood
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines are shown: those of one rank (None: of all), and from one level upwards."""

    rank: int | None = None
    level: str = "debug"

    def passes(self, line: LogLine) -> bool:
        if self.rank is not None and line.rank != self.rank and self.rank not in line.ranks:
            return False
        return LEVELS.index(line.level) >= LEVELS.index(self.level)

    def words(self) -> str:
        rank = "all ranks" if self.rank is None else f"rank {self.rank}"
        level = {"debug": "", "info": "info and worse", "warning": "warnings and errors", "error": "errors"}[
            self.level
        ]
        return f"{rank} · {level}" if level else rank


class LogBuffer:
    """At most `kept` lines. A line that comes again with the same number replaces itself: its count has grown."""

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self.filter = LogFilter()
        self.total = 0  # number of the newest line
        self.folded = 0  # repeats that are counted instead of shown
        self.ranks: set[int] = set()
        self._lines: dict[int, LogLine] = {}
        self._counts: dict[int, int] = {}
        self._visible: deque[int] = deque()
        # Visible lines dropped at the top so far: what a reader has to add to an old position.
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._visible)

    def add(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            known = self._counts.get(line.number)
            self.total = max(self.total, line.number)
            self.folded += line.count - (known if known is not None else 1)
            self._counts[line.number] = line.count
            self._lines[line.number] = line
            if line.rank is not None:
                self.ranks.add(line.rank)
            self.ranks |= line.ranks
            if known is None and self.filter.passes(line):
                self._visible.append(line.number)
        while len(self._lines) > self.kept:
            oldest = next(iter(self._lines))
            del self._lines[oldest], self._counts[oldest]
            if self._visible and self._visible[0] == oldest:
                self._visible.popleft()
                self.dropped += 1

    def clear(self) -> None:
        """Empty the buffer: the log was truncated or replaced."""
        self._lines.clear()
        self._counts.clear()
        self._visible.clear()
        self.total = self.folded = self.dropped = 0

    def let_through(self, wanted: LogFilter) -> None:
        self.filter = wanted
        self._visible = deque(number for number, line in self._lines.items() if wanted.passes(line))

    def window(self, start: int, count: int) -> Sequence[LogLine]:
        """Visible lines `start` … `start + count - 1`."""
        stop = min(start + count, len(self._visible))
        return [self._lines[self._visible[i]] for i in range(max(start, 0), stop)]

    def index_of(self, number: int) -> int:
        """Where line `number` is, or the visible line before it."""
        return max(bisect.bisect_right(self._visible, number) - 1, 0)

    def find(self, text: str, start: int, step: int) -> int | None:
        """The first visible line from `start` on (step 1 down, -1 up, going round) that holds `text`, upper or lower case."""
        wanted, count = text.casefold(), len(self._visible)
        for i in range(count):
            at = (start + i * step) % count
            if wanted in self._lines[self._visible[at]].text.casefold():
                return at
        return None

    def matches(self, text: str) -> int:
        """How many visible lines hold `text`."""
        wanted = text.casefold()
        return sum(wanted in self._lines[number].text.casefold() for number in self._visible)
