"""The pages of a log's file that are shown. Threads read, search and count, some pages at a time."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from textual.message_pump import MessagePump

from tui.bridge import Bridge

if TYPE_CHECKING:
    from backends.megatron.events import LogLine
    from backends.megatron.pages import LogPages, Page, Wanted
    from tui.widgets.log_buffer import LogFilter

AHEAD = 200  # lines that are read ahead of the view
KEPT = 5000  # lines in memory; pages far from the view are dropped
PATIENCE = 0.4  # s after which the progress of a job is shown


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive pages. `mark`: the line that was asked for; `above`: how many lines are above what was there before."""

    pages: tuple[Page, ...] = ()
    mark: int | None = None
    above: int = 0

    def lines(self) -> list[LogLine]:
        return [line for page in self.pages for line in page.lines]

    def grown(self, fresh: Sequence[Page], step: int) -> Stretch:
        """With `fresh` at its upper end (step -1), or in place of its last page (1)."""
        if step < 0:
            pages, above = [*reversed(fresh), *self.pages], sum(len(page.lines) for page in fresh)
        else:
            pages, above = [*self.pages[:-1], *fresh], 0
        count = sum(len(page.lines) for page in pages)
        while len(pages) > len(fresh) + 1 and count > KEPT:
            gone = len(pages.pop(-1 if step < 0 else 0).lines)
            count -= gone
            above -= gone if step > 0 else 0
        return Stretch(tuple(pages), None, above)


Job: TypeAlias = Iterator["float | Stretch | None"]  # progress from 0 to 1; at last the result


class Onlooker(Protocol):
    """A widget that shows a `LogPast`."""

    def past_came(self, stretch: Stretch) -> None:
        """Other lines are there."""

    def past_missed(self) -> None:
        """There are no such lines."""

    def past_failed(self, error: Exception) -> None:
        """The file cannot be read (OSError), or was cut (EOFError)."""

    def show(self) -> None:
        """A job has made progress."""


class LogPast:
    """Results go to `onlooker`, a widget, in the event loop."""

    def __init__(self, onlooker: Onlooker) -> None:
        self.lines: Sequence[LogLine] = ()
        self.path: Path | None = None
        self.before = 0  # lines of the files that this one replaced
        self.progress: float | None = None  # of a job that takes a while, 0 to 1
        self.matches = 0  # lines of the file that hold the searched text, as far as they were counted
        self.counting = False
        self._onlooker = onlooker
        self._node = cast("MessagePump", onlooker)
        self._pages: LogPages | None = None
        self._stretch = Stretch()
        self._counted = ("", 0, 0)  # text, the page last counted (it may grow), matches before it
        self._job: Bridge[Any] | None = None
        self._count: Bridge[Any] | None = None

    # As a buffer is read.

    def __len__(self) -> int:
        return len(self.lines)

    def window(self, start: int, count: int) -> Sequence[LogLine]:
        return self.lines[max(start, 0) : start + count]

    # What is wanted of the file.

    def look_into(self, path: Path | None, before: int = 0) -> None:
        """Another file from now on; None: there is none."""
        self.leave()
        self.path, self.before, self._pages = path, before, None

    def leave(self) -> None:
        """The end of the log is looked at again."""
        self.stop()
        self.lines, self._stretch = (), Stretch()
        if self._pages is not None and self._pages.before != self.before:
            self._pages = None

    def stop(self) -> None:
        """Stop reading, searching and counting."""
        for bridge in (self._job, self._count):
            if bridge is not None:
                bridge.close()
        self._job = self._count = self.progress = None
        self.counting = False

    def enter(self, number: int | None, wanted: LogFilter) -> None:
        """The lines around line `number`, or at the end."""
        self._start(lambda pages: around(pages, number, _wanted(wanted)))

    def extend(self, step: int, wanted: LogFilter) -> None:
        """More lines above (-1) or below (1)."""
        stretch = self._stretch
        if self._job is None and stretch.pages and not (step < 0 and stretch.pages[0].place == 0):
            self._start(lambda pages: further(pages, stretch, step, _wanted(wanted)))

    def find(self, text: str, number: int | None, step: int, wanted: LogFilter) -> None:
        """The line after (1) or before (-1) line `number`, or the end, that holds `text`; beside that all are counted."""

        def found(pages: LogPages) -> Job:
            yield from pages.index()
            start, which = pages.total + 1 if number is None else number, _wanted(wanted)
            for done, page in enumerate(pages.seek(start, step, which.holding(text))):
                yield done / len(pages)
                if page.lines:
                    yield from around(pages, page.lines[0 if step > 0 else -1].number, which)
                    return
            yield None

        self._start(found)
        if self._count is not None and self._counted[0] != text:
            self._count.close()
            self._count = None
        if self._count is None:
            self._start_count(text)

    # Threads.

    def _open(self) -> LogPages:
        from backends.megatron.pages import LogPages

        if self._pages is None and self.path is not None:
            self._pages = LogPages(self.path, self.before)
        assert self._pages is not None, "asked for only where there is a file"
        return self._pages

    def _start(self, job: Callable[[LogPages], Job]) -> None:
        if self._job is not None:
            self._job.close()
        started = time.monotonic()

        def deliver(item: float | Stretch | None) -> None:
            if isinstance(item, float | int):
                if time.monotonic() - started > PATIENCE:
                    self.progress = item
                    self._onlooker.show()
                return
            self._job = self.progress = None
            if item is None or not (item.pages and (lines := item.lines())):
                self._onlooker.past_missed()
                return
            self._stretch, self.lines = item, lines
            self._onlooker.past_came(item)

        self._job = Bridge(self._node, lambda: job(self._open()), deliver, failed=self._fail).start()

    def _start_count(self, text: str) -> None:
        """Count the lines that hold `text`; what was counted before is not read again."""
        if self._counted[0] != text:
            self._counted, self.matches = (text, 0, 0), 0
        _, place, before = self._counted

        def counted() -> Iterator[tuple[int, int, int, bool]]:
            from backends.megatron.pages import Needle

            pages, needle = self._open(), Needle(text)
            for _ in pages.index():
                yield place, before, before, False
            last, earlier, total = place, before, before
            for last, lines in pages.count(needle, place):
                earlier, total = total, total + lines
                yield last, earlier, total, False
            yield last, earlier, total, True

        def deliver(news: tuple[int, int, int, bool]) -> None:
            self._counted, self.matches, self.counting = (text, news[0], news[1]), news[2], not news[3]
            if not self.counting:
                self._count = None
            self._onlooker.show()

        self.counting = True
        self._count = Bridge(self._node, counted, deliver, failed=self._fail, interval=PATIENCE).start()

    def _fail(self, error: Exception) -> None:
        self._pages = None
        self.leave()
        self._onlooker.past_failed(error)


def _wanted(wanted: LogFilter) -> Wanted:
    from backends.megatron.folding import may_hold_level
    from backends.megatron.pages import Wanted

    return Wanted(wanted.passes, lambda block: may_hold_level(block, wanted.level))


def around(pages: LogPages, number: int | None, wanted: Wanted) -> Job:
    """The page with line `number` (None: the last), and enough before and after it."""
    yield from pages.index(number)
    place = pages.place_of(pages.total if number is None else number)
    above: list[Page] = []
    for page in pages.onward(place - 1, -1, wanted, AHEAD):
        above.append(page)
        yield len(above) / len(pages)
    below: list[Page] = []
    for page in pages.onward(place, 1, wanted, AHEAD):
        below.append(page)
        yield len(below) / len(pages)
    found = Stretch((*reversed(above), *below))
    numbers = [line.number for line in found.lines()]
    mark = len(numbers) - 1 if number is None else max(bisect_right(numbers, number) - 1, 0)
    yield replace(found, mark=mark)


def further(pages: LogPages, stretch: Stretch, step: int, wanted: Wanted) -> Job:
    """`stretch` with more lines at one end. Its last page is read once more: it may have grown."""
    if step > 0:
        yield from pages.index(pages.total + 1)
    start = stretch.pages[0].place - 1 if step < 0 else stretch.pages[-1].place
    enough = AHEAD if step < 0 else AHEAD + len(stretch.pages[-1].lines)
    fresh: list[Page] = []
    for page in pages.onward(start, step, wanted, enough):
        fresh.append(page)
        yield len(fresh) / len(pages)
    yield stretch.grown(fresh, step)
