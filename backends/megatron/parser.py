"""The incremental parser: bytes of a log in, typed events out.

Whatever is not understood is ignored, never an exception. Cutting the bytes at any other place gives the same events
(only the batches of iteration lines are cut elsewhere). `LineReader` says what a line means; here is only what makes it
quick: iteration lines that look alike are read as columns, and lines that meant nothing are known when they come again.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO

from backends.megatron.columns import DIGITS_TO_0, LinePattern, Rows, pattern_of
from backends.megatron.events import Error, Event, IterationBatch, Timers
from backends.megatron.line_reader import LineReader
from backends.megatron.lines import LineSplitter
from backends.megatron.timers import TimerLine

BLOCK = 2**20  # bytes read at once, whatever is fed
PATTERNS_KEPT = 8
ALIKE = 3  # lines of one form that are worth a pattern
DEPTH = 4  # forms of iteration lines that may interleave in one block
KNOWN = 20_000  # forms of lines without meaning that are remembered
NUMBERS_MATTER = (b"iteration", b"loss scale")  # lines that mean something or nothing by their numbers
SHORT = 400  # bytes; longer lines are not remembered


class Parser:
    """Feed it the log's bytes in order; it returns the events that are complete so far.

    `lines` counts the lines seen. Errors are held back until what follows them shows how many ranks report the same;
    `pending_errors` shows them before that, since a job may hang and print nothing more. Apart from them events come in
    the order of their (first) lines.
    """

    def __init__(self) -> None:
        self.lines = 0
        self._splitter = LineSplitter()
        self._reader = LineReader()
        self._patterns: list[LinePattern] = []
        self._current: LinePattern | None = None
        self._timer_line: TimerLine | None = None
        self._forms: Counter[bytes] = Counter()
        self._meaningless: set[bytes] = set()

    def feed(self, data: bytes) -> list[Event]:
        """The events of all lines that `data` completes."""
        events: list[Event] = []
        for start in range(0, len(data), BLOCK):
            if block := self._splitter.feed(data[start : start + BLOCK]):
                events += self._block(block)
        return events

    def finish(self) -> list[Event]:
        """The events of the last line and of what was held back. The log ends here."""
        rest = self._splitter.finish()
        events = list(self._block(rest + b"\n")) if rest else []
        return events + self._reader.finish()

    def pending_errors(self) -> list[Error]:
        """Errors that were seen but not yet returned: more ranks may still report them."""
        return self._reader.pending_errors()

    def _block(self, block: bytes) -> Iterator[Event]:
        first = self.lines + 1
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if self._current is not None and (rows := self._current.read(block)) is not None:
            self.lines += len(rows) + sum(gap.count(b"\n") for gap in rows.gaps if gap)
            yield from self._rows(rows, first, 0)
            return
        self._current = None
        if times := self._flood(block):
            self.lines += times
            return
        lines = BytesIO(block).readlines()
        self.lines += len(lines)
        yield from self._plain(lines, first, 0)

    # Iteration lines that look alike

    def _rows(self, rows: Rows, first: int, depth: int) -> Iterator[Event]:
        """`rows` as batches that end only where something happens between two lines; then what stands in the gaps."""
        if not rows.gaps[0]:
            yield from self._reader.before_rows()
        breaks = [i for i, gap in enumerate(rows.gaps) if gap] if any(rows.gaps) else []
        numbers = _numbers(rows.gaps, breaks, len(rows), first)
        done, held = 0, list[Event]()
        for i in breaks:
            gap = rows.gaps[i]
            if b"iteration" in gap or b"world size" in gap:
                yield from self._batches(rows, numbers, done, i, held)
                done, held = i, []
            at_gap = numbers[i] - gap.count(b"\n") if i < len(rows) else numbers[-1] + 1
            if i and self._timer_line and (timers := self._timer_line.read(gap, at_gap)):
                held.append(timers)
                continue
            events = list(self._plain(BytesIO(gap).readlines(), at_gap, depth + 1))
            if i < len(rows):
                events += self._reader.before_rows()
            if all(isinstance(event, Timers) for event in events):
                held += events
            else:
                yield from self._batches(rows, numbers, done, i, held)
                yield from events
                done, held = i, []
        yield from self._batches(rows, numbers, done, len(rows), held)

    def _batches(
        self, rows: Rows, numbers: Sequence[int], start: int, stop: int, held: list[Event]
    ) -> Iterator[Event]:
        """Lines `start` … `stop` - 1 of `rows`, one batch as long as the iteration rises, `held` sorted in between."""
        events: list[Event] = []
        if start < stop:
            cuts = [start, *_restarts(rows.iterations, start, stop), stop]
            for part in itertools.starmap(slice, itertools.pairwise(cuts)):
                columns = {name: column[part] for name, column in rows.values.items()}
                batch = IterationBatch(
                    numbers[part],
                    [rows.rank] * (part.stop - part.start),
                    rows.times[part],
                    rows.iterations[part],
                    rows.train_iters[part],
                    columns,
                )
                events += self._reader.take(batch)
        yield from sorted(events + held, key=lambda event: event.line) if held else events

    def _pattern(self, line: bytes) -> LinePattern | None:
        """The pattern that fits `line`, most recently used first; one is made of a form that was seen some times."""
        for i, pattern in enumerate(self._patterns):
            if pattern.fits(line):
                self._patterns.insert(0, self._patterns.pop(i))
                return pattern
        form = bytes(line.translate(None, b"0123456789+-.E "))
        if len(self._forms) > KNOWN:
            self._forms.clear()
        self._forms[form] += 1
        if self._forms[form] % ALIKE or not (made := pattern_of(line[:-1])):
            return None
        self._patterns.insert(0, made)
        del self._patterns[PATTERNS_KEPT:]
        return made

    # All other lines

    def _plain(self, lines: list[bytes], first: int, depth: int) -> Iterator[Event]:
        """The events of lines, each with its newline; what means nothing, and has been seen before, is passed by."""
        i = -1
        for candidate in self._candidates(lines):
            if candidate <= i:
                continue
            i = candidate
            while i < len(lines):
                line = lines[i]
                if depth < DEPTH and b"iteration" in line and (pattern := self._pattern(line)):
                    rows = pattern.read(b"".join(lines[i:]))
                    if rows is not None:
                        self._current = pattern
                        yield from self._rows(rows, first + i, depth + 1)
                        return
                events = self._reader.read(line[:-1], first + i)
                yield from events
                if b"time (ms) |" in line and len(events) == 1 and isinstance(events[0], Timers):
                    self._timer_line = TimerLine(line, events[0])
                if self._reader.idle:
                    if self._reader.meant_nothing:
                        self._remember(line)
                    break
                i += 1  # whatever comes next may belong to what is open

    def _candidates(self, lines: Sequence[bytes]) -> Iterator[int]:
        """Which lines may mean something by themselves."""
        known = self._meaningless
        if not self._reader.idle:
            yield 0
        if len(lines) > 1 and known.issuperset(lines):
            return
        for i in [i for i, line in enumerate(lines) if line not in known]:
            line = lines[i]
            if line not in known and line.translate(DIGITS_TO_0) not in known:
                yield i

    def _flood(self, block: bytes) -> int:
        """How often `block` says one line that means nothing; 0 when it says anything else."""
        line = block[: block.index(b"\n") + 1]
        times, rest = divmod(len(block), len(line))
        is_flood = not rest and line in self._meaningless and self._reader.idle and block == line * times
        return times if is_flood else 0

    def _remember(self, line: bytes) -> None:
        """Lines like this, whatever their numbers, mean nothing."""
        if len(line) > SHORT or any(word in line for word in NUMBERS_MATTER):
            return
        if len(self._meaningless) > KNOWN:
            self._meaningless.clear()
        self._meaningless.add(line)
        self._meaningless.add(line.translate(DIGITS_TO_0))


def _numbers(gaps: Sequence[bytes], breaks: Sequence[int], rows: int, first: int) -> Sequence[int]:
    """The line numbers of `rows` iteration lines with `gaps` before them."""
    if not breaks or breaks[0] == rows:
        return range(first, first + rows)
    numbers, done = array("q"), 0
    for i in [*breaks, rows]:
        if i > rows or (i == rows and done == rows):
            continue
        numbers.extend(range(first, first + i - done))
        first += i - done
        if i < rows:
            first += gaps[i].count(b"\n")
        done = i
    return numbers


def _restarts(iterations: Sequence[int], start: int, stop: int) -> list[int]:
    """Where, between `start` and `stop`, the iteration does not rise: another attempt begins there."""
    if isinstance(iterations, range):
        return []
    return [i for i in range(start + 1, stop) if iterations[i] <= iterations[i - 1]]
