"""The incremental parser: bytes of a log in, typed events out.

Whatever is not understood is ignored, never an exception. Cutting the bytes at any other place gives the same events
(only the batches of iteration lines are cut elsewhere).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence

from backends.megatron.alerts import Alarm
from backends.megatron.errors import ErrorCollector
from backends.megatron.events import Argument, Error, Event, IterationBatch, Milestone, Value
from backends.megatron.iteration import IterationLine, LinePattern, pattern_of, read_iteration
from backends.megatron.lines import LineSplitter, decode, strip_prefixes
from backends.megatron.plain_events import read_plain
from backends.megatron.timers import TimerReader

# A line without any of these words holds no event. Most blocks of a noisy log hold few of them, so the words are looked
# for in the whole block first and then only those that it holds in each line.
WORDS = (
    b"iteration", b"heckpoint", b"rror", b"xception", b"Interrupt", b"datetime", b"oss at ", b"memory", b"billions", b"world size",
    b" ...", b"(ms)", b"FATAL", b"signal ", b"noticed that", b"detected that", b"xit code", b"Traceback", b"Running on http",
    b"Serving Flask", b"parameters on", b"metadata", b"Watchdog", b"slots", b"Duplicate", b"ABORT", b" rank ", b"random", b"NaN",
    b"Unexpected result", b"No space", b"quota", b"requires", b"Address", b"terminat", b"mmap", b"client socket", b"setup",
    b"raining", b"program exit", b"--- ",
)  # fmt: skip
INFINITE_OR_NAN = (b": nan", b": NAN", b": NaN", b": inf", b": INF", b": -inf", b": -INF")
PATTERNS_KEPT = 8


class Parser:
    """Feed it the log's bytes in order; it returns the events that are complete so far.

    `lines` counts the lines seen. Errors are held back until what follows them shows how many ranks report the same;
    `pending_errors` shows them before that, since a job may hang and print nothing more.
    """

    def __init__(self) -> None:
        self.lines = 0
        self._splitter = LineSplitter()
        self._patterns: list[LinePattern] = []
        self._alarm = Alarm()
        self._errors = ErrorCollector()
        self._timers = TimerReader()
        self._in_arguments = False
        self._iteration = -1

    def feed(self, data: bytes) -> list[Event]:
        """The events of all lines that `data` completes, in the order of their lines."""
        block = self._splitter.feed(data)
        return list(self._block(block)) if block else []

    def finish(self) -> list[Event]:
        """The events of the last line and of what was held back. The log ends here."""
        rest = self._splitter.finish()
        events = list(self._block(rest)) if rest else []
        events += self._timers.finish()
        events += self._errors.flush()
        return events

    def pending_errors(self) -> list[Error]:
        """Errors that were seen but not yet returned: more ranks may still report them."""
        return self._errors.pending()

    def _block(self, block: bytes) -> Iterator[Event]:
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        first, self.lines = self.lines + 1, self.lines + len(lines)
        wanted = range(len(lines)) if _all_iterations(lines) else _with_words(block, lines)
        run: list[int] = []
        for i in wanted:
            if b"iteration" in lines[i] and b"|" in lines[i] and b"loss at" not in lines[i]:
                run.append(i)
                continue
            if run:
                yield from self._run(lines, run, first)
                run = []
            yield from self._line(lines[i], first + i)
        if run:
            yield from self._run(lines, run, first)

    # Iteration lines

    def _run(self, lines: Sequence[bytes], run: Sequence[int], first: int) -> Iterator[Event]:
        """Consecutive candidates for iteration lines: as columns where they look alike, else one by one."""
        raw = [lines[i] for i in run]
        numbers: Sequence[int] = (
            range(first + run[0], first + run[-1] + 1)
            if run[-1] - run[0] + 1 == len(run)
            else [first + i for i in run]
        )
        done = 0
        while done < len(raw):
            taken = yield from self._columns(raw[done:] if done else raw, numbers[done:])
            if not taken:
                yield from self._line(raw[done], numbers[done])
                taken = 1
            done += taken

    def _columns(self, raw: Sequence[bytes], numbers: Sequence[int]) -> Generator[Event, None, int]:
        """Read as many lines from the front as look like a known sample; returns how many (0: the first is unlike all)."""
        pattern = self._pattern(raw[0])
        columns = pattern.read(raw) if pattern else None
        if pattern and columns is None:
            count = next((i for i, line in enumerate(raw) if not pattern.fits(line)), len(raw))
            raw = raw[:count]
            columns = pattern.read(raw) if raw else None
        if columns is None:
            return 0
        _, rank = strip_prefixes(decode(raw[0][:200]))
        has_nan = _may_be_nan(raw)
        cuts = [0, *_restarts(columns.iterations, self._iteration), len(raw)]
        for start, stop in itertools.pairwise(cuts):
            part = slice(start, stop)
            batch = IterationBatch(
                numbers[part],
                [rank] * (stop - start),
                columns.times[part],
                columns.iterations[part],
                columns.train_iters[part],
                {name: column[part] for name, column in columns.values.items()},
            )
            yield from self._batch(batch, has_nan)
        return len(raw)

    def _pattern(self, line: bytes) -> LinePattern | None:
        """The pattern that fits `line`, most recently used first; a new one is made of the line itself."""
        for i, pattern in enumerate(self._patterns):
            if pattern.fits(line):
                if i:
                    self._patterns.insert(0, self._patterns.pop(i))
                return pattern
        made = pattern_of(line)
        if made is not None:
            self._patterns.insert(0, made)
            del self._patterns[PATTERNS_KEPT:]
        return made

    def _batch(self, batch: IterationBatch, has_nan: bool) -> Iterator[Event]:
        yield from self._timers.finish()
        yield from self._errors.flush()
        self._iteration = batch.iterations[-1]
        yield batch
        yield from self._alarm.check(batch, has_nan)

    # Other lines

    def _line(self, raw: bytes, number: int) -> Iterator[Event]:
        text, rank = strip_prefixes(decode(raw))
        yield from self._text(text, number, rank)

    def _text(self, text: str, number: int, rank: int | None) -> Iterator[Event]:
        while text:
            found = read_iteration(text)
            if found is None:
                yield from self._other(text, number, rank)
                return
            yield from self._batch(_one(found, number, rank), has_nan=True)
            text = found.rest

    def _other(self, text: str, number: int, rank: int | None) -> Iterator[Event]:
        timers = self._timers.read(text, number, rank)
        if timers is not None:
            yield from timers
            return
        yield from self._timers.finish()
        if self._errors.read(text, number, rank):
            return
        event = read_plain(text, number, rank)
        if event is None or (isinstance(event, Argument) and not self._in_arguments):
            return
        if isinstance(event, Milestone):
            if event.name in ("arguments", "arguments end"):
                self._in_arguments = event.name == "arguments"
                if not self._in_arguments:
                    return
            elif event.name == "distributed":
                yield from self._errors.flush()
                self._iteration = -1
        yield event


def _all_iterations(lines: Sequence[bytes]) -> bool:
    """Whether a big block holds nothing but candidates for iteration lines, so that the gate need not be asked."""
    return len(lines) > 64 and all(b" iteration " in line for line in lines)


def _with_words(block: bytes, lines: Sequence[bytes]) -> list[int]:
    """Which lines may hold an event."""
    words = [word for word in WORDS if word in block]
    return [i for i, line in enumerate(lines) if any(word in line for word in words)] if words else []


def _may_be_nan(raw: Sequence[bytes]) -> bool:
    joined = b"\n".join(raw)
    return any(word in joined for word in INFINITE_OR_NAN)


def _one(found: IterationLine, number: int, rank: int | None) -> IterationBatch:
    columns: dict[str, Sequence[Value]] = {name: [value] for name, value in found.values.items()}
    return IterationBatch([number], [rank], [found.time], [found.iteration], [found.train_iters], columns)


def _restarts(iterations: Sequence[int], previous: int) -> list[int]:
    """Where the iteration goes back: a new attempt begins there."""
    if iterations[0] > previous and all(map(int.__lt__, iterations[:-1], iterations[1:])):
        return []
    cuts: list[int] = []
    for i, iteration in enumerate(iterations):
        if i and iteration <= previous:
            cuts.append(i)
        previous = iteration
    return cuts
