"""Lines for the eye: cleaned, and every repeat folded into the line that it repeats, with a counter."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from typing import Literal

from backends.megatron.events import LogLine
from backends.megatron.lines import LineSplitter, decode, strip_prefixes

REMEMBERED = 1000  # different texts whose repeats are recognised
MOST = 200  # new lines shown of one chunk; of a flood the newest
CLIP = 2000  # characters
RANKS_KEPT = 64

ERROR = re.compile(
    r"\b(?:[A-Z]\w*Error|Traceback|FATAL|ERROR|CRITICAL|noticed that process|detected that one or more)\b|^error\b"
)
WARNING = re.compile(r"WARNING|\w*Warning\b")
DEBUG = re.compile(r"^DEBUG\b|\bDEBUG:")


class Folder:
    """Turns chunks of a log into display lines. `hidden` counts what a flood left out of sight (the log has it)."""

    def __init__(self, first_line: int = 1) -> None:
        self.lines = first_line - 1
        self.folded = 0
        self.hidden = 0
        self._splitter = LineSplitter()
        self._known: OrderedDict[str, LogLine] = OrderedDict()

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that are new or whose count changed, each once, in the order of the log."""
        return self._block(self._splitter.feed(data))

    def finish(self) -> list[LogLine]:
        return self._block(self._splitter.finish())

    def _block(self, block: bytes) -> list[LogLine]:
        raw = block.split(b"\n")
        if not raw[-1]:
            raw.pop()
        first, self.lines = self.lines + 1, self.lines + len(raw)
        counts = Counter(raw)
        numbers = {line: first + i for i, line in reversed(list(enumerate(raw)))}
        changed: dict[int, LogLine] = {}
        fresh: list[LogLine] = []
        for line in sorted(counts, key=numbers.__getitem__):
            text, rank = strip_prefixes(decode(line))
            if not text.strip():
                continue
            known = self._known.get(text)
            if known is None:
                known = self._new(text, numbers[line], rank, decode(line))
                known.count = counts[line]
                self.folded += counts[line] - 1
                fresh.append(known)
            else:
                self._known.move_to_end(text)
                known.count += counts[line]
                self.folded += counts[line]
                changed[known.number] = known
            if rank is not None and len(known.ranks) < RANKS_KEPT:
                known.ranks.add(rank)
        if len(fresh) > MOST:
            self.hidden += len(fresh) - MOST
            fresh = fresh[-MOST:]
        changed.update((line.number, line) for line in fresh)
        return [changed[number] for number in sorted(changed)]

    def _new(self, text: str, number: int, rank: int | None, whole: str) -> LogLine:
        line = LogLine(number, rank, level_of(whole), text[:CLIP])
        self._known[text] = line
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return line


def level_of(text: str) -> Literal["debug", "info", "warning", "error"]:
    """The level of a line, by its words; the launcher's and logger's prefix included."""
    if ERROR.search(text):
        return "error"
    if WARNING.search(text):
        return "warning"
    return "debug" if DEBUG.search(text) else "info"
