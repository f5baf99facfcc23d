"""Makes display lines: cleaned, with every repeat counted in the line that it repeats."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from backends.megatron.events import LogLine
from backends.megatron.lines import LineSplitter, decode, strip_prefixes

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Key = TypeVar("Key")
Kept = TypeVar("Kept")

REMEMBERED = 1000  # different texts whose repeats are recognised
BURST = 4000  # new lines of one chunk that are shown after a pause
MOST = 200  # new lines of one chunk that are shown during a flood: the newest
CLIP = 2000  # characters
RANKS_KEPT = 64

ERROR = re.compile(
    r"\b(?:[A-Z]\w*Error|Traceback|FATAL|ERROR|CRITICAL|noticed that process|detected that one or more)\b|^error\b"
)
ERROR_WORDS = ("rror", "RROR", "Traceback", "FATAL", "CRITICAL", "noticed that", "detected that")
ERROR_BYTES = tuple(word.encode() for word in ERROR_WORDS)
WARNING = re.compile(r"W(?:ARNING|arning\b)")
DEBUG = re.compile(r"DEBUG:|^DEBUG\b")


class DisplayText(NamedTuple):
    """The display text of one raw line, without its prefixes. Empty if nothing is to be shown."""

    text: str
    rank: int | None
    level: Level


class Folder:
    """Turns chunks of a log into display lines.

    `lines` counts the lines read, `folded` the repeats, `hidden` the lines that a flood left out: after a pause at most
    `burst` new lines of a chunk are shown, fewer while the flood lasts.
    """

    def __init__(self, first_line: int = 1, *, burst: int = BURST) -> None:
        self.lines = first_line - 1
        self.folded = 0
        self.hidden = 0
        self._splitter = LineSplitter()
        self._read: OrderedDict[bytes, DisplayText] = OrderedDict()
        self._known: OrderedDict[str, LogLine] = OrderedDict()
        self._burst = self._credit = burst
        self._unfinished = 0  # number of the line that was last shown before its newline came

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that are new or whose count changed, each once, in the order of the log."""
        return self._block(self._splitter.feed(data))

    def settle(self) -> list[LogLine]:
        """Call it when the log pauses: the last line, if it has no newline yet. The whole line will replace it."""
        if block := self._splitter.settle():
            return self._block(block)
        read = read_text(self._splitter.rest)
        if not read.text:
            return []
        self._unfinished = self.lines + 1
        return [LogLine(self._unfinished, read.rank, read.level, read.text[:CLIP])]

    def finish(self) -> list[LogLine]:
        """The last line, if it has no newline. The next byte begins a new line."""
        return self._block(self._splitter.finish())

    def _block(self, block: bytes) -> list[LogLine]:
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        numbers: dict[bytes, int] = {}  # raw line → number of its first occurrence, in that order
        for number, raw in enumerate(lines, self.lines + 1):
            numbers.setdefault(raw, number)
        self.lines += len(lines)
        counts = Counter(lines)
        excess = len(numbers) - self._credit
        fresh: list[tuple[LogLine, str]] = []
        changed: dict[int, LogLine] = {}
        for place, (raw, number) in enumerate(numbers.items()):
            read = self._read.get(raw)
            if read is None and place < excess and counts[raw] == 1:
                self.hidden += 1  # part of a flood
                continue
            read = _keep(self._read, raw, read or read_text(raw), 4 * REMEMBERED)
            if read.text:
                self._count(read, number, counts[raw], fresh, changed)
        self._show(fresh, changed)
        return [changed[number] for number in sorted(changed)]

    def _count(
        self,
        read: DisplayText,
        number: int,
        count: int,
        fresh: list[tuple[LogLine, str]],
        changed: dict[int, LogLine],
    ) -> None:
        line = self._known.get(read.text)
        if line is None or number == self._unfinished:
            line = LogLine(number, read.rank, read.level, read.text[:CLIP], 0)
            self.folded -= 1
            fresh.append((line, read.text))
        else:
            changed[line.number] = line
        _keep(self._known, read.text, line, REMEMBERED)
        line.count += count
        self.folded += count
        if read.rank is not None and len(line.ranks) < RANKS_KEPT:
            line.ranks.add(read.rank)

    def _show(self, fresh: list[tuple[LogLine, str]], changed: dict[int, LogLine]) -> None:
        """Add the newest of `fresh` to `changed`. Forget the others, so that their repeats are shown."""
        hidden, shown = fresh[: -self._credit], fresh[-self._credit :]
        self._credit = min(self._burst, self._credit - len(shown) + MOST)
        self.hidden += len(hidden)
        for line, text in hidden:
            changed.pop(line.number, None)
            if self._known.get(text) is line:
                del self._known[text]
        changed.update((line.number, line) for line, _ in shown)


def _keep(kept: OrderedDict[Key, Kept], key: Key, value: Kept, most: int) -> Kept:
    """Put `value` at the end of `kept`, which holds at most `most` values."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
    return value


def read_text(raw: bytes) -> DisplayText:
    """A raw line as it is shown, with its rank and level; blank lines have an empty text."""
    whole = decode(raw)
    text, rank = strip_prefixes(whole)
    return DisplayText(text if text.strip() else "", rank, level_of(whole))


def may_hold_level(block: bytes, level: str) -> bool:
    """Whether a line of `block` may be of `level` or worse."""
    words = {"error": ERROR_BYTES, "warning": (*ERROR_BYTES, b"ARNING", b"arning")}.get(level)
    return words is None or any(word in block for word in words)


def level_of(text: str) -> Level:
    """The level of a whole line, its prefixes included, by its words."""
    if any(word in text for word in ERROR_WORDS) and ERROR.search(text):
        return "error"
    if WARNING.search(text):
        return "warning"
    return "debug" if DEBUG.search(text) else "info"
