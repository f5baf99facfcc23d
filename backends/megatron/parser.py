"""The incremental parser: bytes of a log in, typed events out.

Whatever is not understood is ignored; no input raises an exception. It does not matter where the bytes are cut into
chunks: the events are the same, only the batches of iteration lines may end elsewhere.

`LineReader` defines what a log means, one line at a time. Everything here only makes that fast and must give the same
events (tests/unit/test_parser_fuzz.py compares the two). A block of whole lines is read in the first of these ways that
fits:

1. Columns (`columns`): the keys of a sample line make one regular expression. Splitting the block by it gives the values
   of all iteration lines of that form, and the gaps, which are the text between them. A gap is read as timers that stay
   text until somebody looks at them (`timers`), by the rules that read the last gap of the same form (`line_forms`), or
   else as lines (3.).
2. Noise (`line_forms`): if every line is known to mean nothing, apart from its digits, the lines are only counted.
3. Lines: a line without any word that a rule looks for (`triggers`) is skipped, and its form is remembered for 2. When
   an iteration line of the same form comes for the third time, it becomes the sample of a new expression, and the rest
   of the block is read as 1. `LineReader` reads all other lines.

The reader must be idle for a line to be skipped or read by its form: an open traceback, argument block, timer block or
wrapped line may continue in any line.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterator, Sequence
from io import BytesIO

from backends.megatron.columns import LinePattern, Rows, pattern_of
from backends.megatron.events import Error, Event, IterationBatch, Milestone, Timers
from backends.megatron.line_forms import LineForms, forms_of
from backends.megatron.line_reader import LineReader
from backends.megatron.lines import COLOURS, LineSplitter
from backends.megatron.timers import TimerForms, TimerTexts

BLOCK = 2**20  # bytes read at once; larger chunks are divided
PATTERNS_KEPT = 8
FORMS_KEPT = 1000
ALIKE = 3  # lines of one form after which a pattern is made
DEPTH = (
    4  # forms of iteration lines in one block that are read as columns, each in the gaps of the one before
)
# Matches what may be an iteration line or may begin another attempt.
BEGINS_ANEW = re.compile(rb"iteration[^|\n]*/[^|\n]*\||world size|\x1b")
DEPENDENT = (Error, Milestone, IterationBatch)  # events that must keep their place among iteration lines
# Lines whose last value may be cut when the newline is missing: `| lm loss: 1.06` of 1.064E+01. They are read up to the last `|`.
TORN = re.compile(rb"iteration +\d+ */|loss at |memory \((?:MB|GB)\)")


class Parser:
    """Feed it the bytes of a log in order. `feed` returns the events that are complete so far.

    `lines` counts the lines seen. Errors are held back until later lines show how many ranks report the same error;
    `pending_errors` returns them earlier, because a job that hangs prints nothing more. All other events come in the
    order of their first lines. A batch of iteration lines continues over events that do not affect it.
    """

    def __init__(self) -> None:
        self.lines = 0
        self._splitter = LineSplitter()
        self._reader = LineReader()
        self._patterns: list[LinePattern] = []
        self._current: LinePattern | None = None
        self._timers = TimerForms()
        self._forms = LineForms(self._reader)
        # For each form of possible iteration lines: how many were seen, and the last one.
        self._seen: dict[bytes, tuple[int, bytes]] = {}

    def feed(self, data: bytes) -> list[Event]:
        """The events of all lines that `data` completes."""
        events: list[Event] = []
        for start in range(0, len(data), BLOCK):
            if block := self._splitter.feed(data[start : start + BLOCK]):
                events += self._block(block)
        return events

    def finish(self) -> list[Event]:
        """The log ends here: the events of its last line and those that were held back."""
        rest = self._splitter.finish()
        if TORN.search(rest):
            rest = rest[: rest.rfind(b"|") + 1]
        events = list(self._block(rest + b"\n")) if rest else []
        return events + self._reader.finish()

    def settle(self) -> list[Event]:
        """Call it when the log pauses: the events of the last line, if it seems whole though more of it could follow."""
        block = self._splitter.settle()
        return [*(self._block(block) if block else ()), *self._reader.unwrap()]

    def pending_errors(self) -> list[Error]:
        """Errors that were seen but not yet returned: more ranks may still report them, or their line has no end yet."""
        return self._reader.pending_errors(self._splitter.rest, self.lines + 1)

    def _block(self, block: bytes) -> Iterator[Event]:
        first = self.lines + 1
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if b"\x1b" in block and b"\x1b" not in (plain := COLOURS.sub(b"", block)):
            block = plain
        if self._current is not None and (rows := self._current.read(block)) is not None:
            numbers = rows.numbers(first)
            self.lines = numbers[-1] + rows.gaps[-1].count(b"\n")
            yield from self._rows(rows, numbers, 0)
            return
        self._current = None
        if self._reader.idle and (times := self._forms.noise(block)):
            self.lines += times
            return
        lines = BytesIO(block).readlines()
        self.lines += len(lines)
        yield from self._plain(lines, first, 0)

    # Iteration lines that look alike

    def _rows(self, rows: Rows, numbers: Sequence[int], depth: int) -> Iterator[Event]:
        """The events of iteration lines and of the gaps between them. Batches end only where an event in a gap requires it."""
        if not rows.gaps[0]:
            yield from self._reader.before_rows()
        timers = self._timers_in(rows)
        between = [i for i, gap in enumerate(rows.gaps) if gap and not timers[i]]
        done, held = 0, list[Event]()
        for i, form in zip(between, forms_of([rows.gaps[i] for i in between]), strict=True):
            gap, goes_on = rows.gaps[i], i < len(rows)
            at_gap = numbers[i - 1] + 1 if i else numbers[0] - gap.count(b"\n")
            idle = goes_on and self._reader.idle
            if idle and (known := self._forms.read_text(form, gap, at_gap)) is not None:
                held += known
                held += self._reader.before_rows()
                continue
            anew = BEGINS_ANEW.search(gap)
            if anew:
                yield from self._batches(rows, numbers, timers, slice(done, i), held)
                done, held = i, []
            events = list(self._plain(BytesIO(gap).readlines(), at_gap, depth + 1))
            if goes_on:
                events += self._reader.before_rows()
            if idle and not anew:
                self._forms.learn(form, gap)
            if any(isinstance(event, DEPENDENT) for event in events):
                yield from self._batches(rows, numbers, timers, slice(done, i), held)
                yield from events
                done, held = i, []
            else:
                held += events
        yield from self._batches(rows, numbers, timers, slice(done, len(rows)), held)

    def _timers_in(self, rows: Rows) -> list[bool]:
        """For each gap whether it consists of timers. The gap before the first line counts as none."""
        gaps = rows.gaps[1:]
        for gap in itertools.islice(filter(None, gaps[:-1]), 2):
            self._timers.learn(gap)
        filled = gaps if gaps[-1] else gaps[:-1]
        if rows.step == 2 and filled and self._timers.all_alike(filled):
            return [False, *([True] * len(filled)), *([False] * (len(gaps) - len(filled)))]
        return [
            False,
            *self._timers.recognise(gaps[:-1]),
            False,
        ]  # the last block may continue in the next chunk

    def _batches(
        self, rows: Rows, numbers: Sequence[int], timers: list[bool], part: slice, held: list[Event]
    ) -> Iterator[Event]:
        """The events of a part of `rows` and those `held`, in the order of lines: one batch for each rising stretch."""
        start, stop = part.start, part.stop
        if start == stop:
            yield from held
            return
        events = list(held)
        cuts = [start, *_restarts(rows, start, stop), stop]
        for some in itertools.starmap(slice, itertools.pairwise(cuts)):
            batch = IterationBatch(
                numbers[some],
                rows.ranks[some],
                rows.times[some],
                rows.iterations[some],
                rows.train_iters[some],
                {name: column[some] for name, column in rows.values.items()},
            )
            events += self._reader.take(batch)
        after = slice(start + 1, stop + 1)
        if any(timers[after]):
            lines = array("q", [number + 1 for number in itertools.compress(numbers[part], timers[after])])
            texts = list(itertools.compress(rows.gaps[after], timers[after]))
            events.append(Timers(lines, self._timers.rank, TimerTexts(texts)))
        yield from sorted(events, key=lambda event: event.line)

    def _pattern(self, line: bytes) -> LinePattern | None:
        """The pattern that fits `line`. A new one is made when its form was seen `ALIKE` times."""
        for i, pattern in enumerate(self._patterns):
            if pattern.fits(line):
                self._patterns.insert(0, self._patterns.pop(i))
                return pattern
        form = bytes(line.translate(None, b"0123456789+-.E "))
        if len(self._seen) > FORMS_KEPT:
            self._seen.clear()
        seen, previous = self._seen.get(form, (0, line))
        self._seen[form] = (seen + 1, line)
        times, rest = divmod(seen + 1, ALIKE)
        # Some forms allow no pattern: try again after twice as many lines each time.
        if rest or times & (times - 1) or not (made := pattern_of(line[:-1], self._reader.never_wrapped)):
            return None
        if previous != line:
            made = made.of_any_rank(previous) or made
        self._patterns.insert(0, made)
        del self._patterns[PATTERNS_KEPT:]
        return made

    # All other lines

    def _plain(self, lines: list[bytes], first: int, depth: int) -> Iterator[Event]:
        """The events of lines, each with its newline. Lines that are known to mean nothing are skipped."""
        i = -1
        candidates = self._forms.candidates(lines)
        for candidate in candidates if self._reader.idle else itertools.chain([0], candidates):
            if candidate <= i:
                continue
            i = candidate
            while i < len(lines):
                line = lines[i]
                if depth < DEPTH and BEGINS_ANEW.search(line) and (pattern := self._pattern(line)):
                    rows = pattern.read(b"".join(lines[i:]))
                    if rows is not None:
                        self._current = pattern
                        yield from self._rows(rows, rows.numbers(first + i), depth + 1)
                        return
                if self._reader.idle:
                    yield from self._forms.read(line, first + i)
                else:
                    yield from self._reader.read(line[:-1], first + i)
                if self._reader.idle:
                    break
                i += 1  # the next line may belong to what is open


def _restarts(rows: Rows, start: int, stop: int) -> list[int]:
    """The rows between `start` and `stop` at which another attempt begins: the iteration of a rank does not rise."""
    found, ranks = rows.iterations, rows.ranks
    if isinstance(found, range):
        return []
    falls = [i for i in range(start + 1, stop) if found[i] <= found[i - 1]]
    return [i for i in falls if found[i] < found[i - 1] or ranks[i] == ranks[i - 1]]
