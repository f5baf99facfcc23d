"""Reads any part of a log's file by pages: where each line is, the display lines of a page, where a text occurs.

Memory holds two numbers a page (16 bytes for 256 KiB of log), however long the log is. Pages are read in threads when they
are asked for. Every loop is a generator that yields its progress after each page, so that it can be shown and cancelled.
"""

from __future__ import annotations

import os
import threading
import weakref
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from backends.megatron.events import LogLine
from backends.megatron.folding import Folder

PAGE = 2**18  # bytes; repeats are folded within a page

Passes: TypeAlias = Callable[[LogLine], bool]
MayHold: TypeAlias = Callable[[bytes], bool]


def anything(_block: bytes) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Page:
    """The lines of one page that pass a filter; `place` 0 is the first page of the file."""

    place: int
    lines: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines are wanted. `may_hold`: whether the bytes of a page may contain one; testing each line is 1,000 times slower."""

    passes: Passes
    may_hold: MayHold = anything

    def holding(self, text: str) -> Wanted:
        """Those wanted lines that contain `text`, in upper or lower case."""
        wanted, needle = text.casefold(), Needle(text)
        return Wanted(
            lambda line: wanted in line.text.casefold() and self.passes(line),
            lambda block: needle.is_in(block) and self.may_hold(block),
        )


class Needle:
    """A text to search for in raw bytes, in upper or lower case."""

    def __init__(self, text: str) -> None:
        self._ascii = text.isascii()
        self._bytes = (text.lower() if self._ascii else text.casefold()).encode(errors="replace")

    def _folded(self, block: bytes) -> bytes:
        return block.lower() if self._ascii else block.decode(errors="replace").casefold().encode()

    def is_in(self, block: bytes) -> bool:
        return self._bytes in self._folded(block)

    def lines(self, block: bytes) -> int:
        """How many lines of `block` contain it."""
        folded, count, at = self._folded(block), 0, -1
        while (at := folded.find(self._bytes, at + 1)) >= 0:
            count += 1
            at = folded.find(b"\n", at)
            if at < 0:
                break
        return count


class LogPages:
    """The pages of a log's file as it is now. `before` lines were in files that this file replaced.

    The file stays open until the pages are released, so that it can still be read after another file has replaced it.
    Methods may be called from several threads. They raise OSError, and EOFError if the file was truncated.
    """

    def __init__(self, path: Path, before: int = 0) -> None:
        self.before = before
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        weakref.finalize(self, os.close, self._descriptor)
        self._starts = array("q", [0])  # byte at which each page begins; and where the next will
        self._lines = array("q", [before])  # lines before it
        self._grows = False  # whether the last page may have gained lines
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Pages known so far."""
        return len(self._starts) - 1

    @property
    def total(self) -> int:
        """Number of the last line known so far."""
        return self._lines[-1]

    def index(self, until: int | None = None) -> Iterator[float]:
        """Find all pages up to the present end, or up to line `until`; yields the fraction of the file that is done."""
        size = os.fstat(self._descriptor).st_size
        while (until is None or self.total < until) and self._add_page(size):
            yield self._starts[-1] / max(size, 1)

    def place_of(self, number: int) -> int:
        """The page with line `number`, or the nearest page."""
        return min(max(bisect_left(self._lines, number) - 1, 0), max(len(self) - 1, 0))

    def read(self, place: int, wanted: Wanted) -> Page:
        block, folder = self._block(place), Folder(self._lines[place] + 1, burst=PAGE)
        lines = folder.feed(block) if wanted.may_hold(block) else []
        return Page(place, tuple(filter(wanted.passes, lines)))

    def onward(self, place: int, step: int, wanted: Wanted, enough: int) -> Iterator[Page]:
        """Pages from `place` on, downward (1) or upward (-1), until they have `enough` lines; yields each after it is read."""
        count, size = 0, os.fstat(self._descriptor).st_size
        while count < enough and place >= 0 and (place < len(self) or self._add_page(size)):
            page = self.read(place, wanted)
            count += len(page.lines)
            yield page
            place += step

    def seek(self, number: int, step: int, wanted: Wanted) -> Iterator[Page]:
        """Pages after (step 1) or before (-1) line `number`, wrapping around, until one has a wanted line.

        The first (step 1) or last line of that page is the nearest. The pages yielded before it have none.
        """
        own = self.place_of(number)
        for place in [(own + step * i) % len(self) for i in range(len(self))]:
            page = self.read(place, wanted)
            if place == own:
                page = Page(place, tuple(line for line in page.lines if (line.number - number) * step > 0))
            yield page
            if page.lines:
                return
        if len(self):
            yield self.read(own, wanted)

    def count(self, needle: Needle, start: int) -> Iterator[tuple[int, int]]:
        """(place, number of lines with `needle`) of each page from `start` on."""
        for place in range(start, len(self)):
            yield place, needle.lines(self._block(place))

    def _block(self, place: int) -> bytes:
        with self._lock:
            start, stop = self._starts[place], self._starts[place + 1]
        block = os.pread(self._descriptor, min(stop - start, 2 * PAGE), start)
        if len(block) < min(stop - start, 2 * PAGE):
            raise EOFError
        return block if block.endswith(b"\n") else block + b"\n"  # of one line that is longer than a page

    def _add_page(self, size: int) -> bool:
        """Find the end of one more page, or again that of the last; whether there was more before byte `size`."""
        with self._lock:
            if size <= self._starts[-1]:  # smaller: another thread is ahead, or the file was truncated
                if os.fstat(self._descriptor).st_size < self._starts[-1]:
                    raise EOFError
                return False
            start, known = self._starts[-1 - self._grows], self._starts[-1]
            data = os.pread(self._descriptor, min(PAGE, size - start), start)
            stop, lines = data.rfind(b"\n") + 1, data.count(b"\n")
            end = start + len(data)
            grows = end == size
            while not stop and data:  # one line that is longer than a page
                grows = False
                data = os.pread(self._descriptor, min(PAGE, size - end), end)
                stop, lines = data.find(b"\n") + 1, 1
                if stop:
                    stop += end - start
                end += len(data)
            if not stop or start + stop == known:
                return False
            if self._grows:
                self._starts[-1], self._lines[-1] = start + stop, self._lines[-2] + lines
            else:
                self._lines.append(self._lines[-1] + lines)
                self._starts.append(start + stop)
            self._grows = grows
            return True
