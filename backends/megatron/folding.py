"""Lines for the eye: cleaned, and every repeat folded into the line that it repeats, with a counter."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from typing import Literal

from backends.megatron.events import LogLine
from backends.megatron.lines import LineSplitter, decode, strip_prefixes

REMEMBERED = 1000  # different texts whose repeats are recognised
BURST, MOST = (
    4000,
    200,
)  # new lines shown of a chunk: after some quiet, and while a flood lasts; the newest of them
CLIP = 2000  # characters
RANKS_KEPT = 64

ERROR = re.compile(
    r"\b(?:[A-Z]\w*Error|Traceback|FATAL|ERROR|CRITICAL|noticed that process|detected that one or more)\b|^error\b"
)
WARNING = re.compile(r"WARNING|\w*Warning\b")
DEBUG = re.compile(r"^DEBUG\b|\bDEBUG:")


class Folder:
    """Turns chunks of a log into display lines.

    `lines` numbers them, `folded` counts repeats, `hidden` what a flood left out of sight (the log has it).
    """

    def __init__(self, first_line: int = 1) -> None:
        self.lines = first_line - 1
        self.folded = 0
        self.hidden = 0
        self._splitter = LineSplitter()
        self._known: OrderedDict[str, LogLine] = OrderedDict()
        self._credit = BURST

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that are new or whose count changed, each once, in the order of the log."""
        return self._block(self._splitter.feed(data))

    def finish(self) -> list[LogLine]:
        """The last line, where it has no newline. The next byte begins a new line."""
        return self._block(self._splitter.finish())

    def _block(self, block: bytes) -> list[LogLine]:
        raw = block.split(b"\n")
        if not raw[-1]:
            raw.pop()
        numbers: dict[bytes, int] = {}  # of the first appearance; in that order
        for number, line in enumerate(raw, self.lines + 1):
            numbers.setdefault(line, number)
        self.lines += len(raw)
        counts = Counter(raw)
        fresh: list[tuple[LogLine, str]] = []
        changed: dict[int, LogLine] = {}
        for line, number in numbers.items():
            whole = decode(line)
            text, rank = strip_prefixes(whole)
            if not text.strip():
                continue
            known = self._known.get(text)
            if known is None:
                known = self._remember(LogLine(number, rank, "info", text[:CLIP], counts[line]), text)
                fresh.append((known, whole))
                self.folded += counts[line] - 1
            else:
                self._known.move_to_end(text)
                known.count += counts[line]
                self.folded += counts[line]
                changed[known.number] = known
            if rank is not None and len(known.ranks) < RANKS_KEPT:
                known.ranks.add(rank)
        self._show(fresh, changed)
        return [changed[number] for number in sorted(changed)]

    def _remember(self, line: LogLine, text: str) -> LogLine:
        self._known[text] = line
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return line

    def _show(self, fresh: list[tuple[LogLine, str]], changed: dict[int, LogLine]) -> None:
        """Add the newest of `fresh` to `changed`; forget the others, so that a repeat of theirs is shown."""
        hidden, shown = fresh[: -self._credit], fresh[-self._credit :]
        self._credit = min(BURST, self._credit - len(shown) + MOST)
        self.hidden += len(hidden)
        for line, whole in hidden:
            changed.pop(line.number, None)
            text, _ = strip_prefixes(whole)
            if self._known.get(text) is line:
                del self._known[text]
        for line, whole in shown:
            line.level = level_of(whole)
            changed[line.number] = line


def level_of(text: str) -> Literal["debug", "info", "warning", "error"]:
    """The level of a line, by its words; the launcher's and logger's prefix included."""
    if ERROR.search(text):
        return "error"
    if WARNING.search(text):
        return "warning"
    return "debug" if DEBUG.search(text) else "info"
