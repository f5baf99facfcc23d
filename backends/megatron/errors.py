"""Gathers errors: the tracebacks of many ranks become one error that names the first rank that failed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from backends.megatron.events import Error
from backends.megatron.known_errors import EXCEPTION, TRACEBACK, KnownError, find_known
from backends.text import clean_line

CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
RANK_SAID = re.compile(r"\bprocess rank (\d+)|\bRank (\d+)[:,]|invoked on rank (\d+)")
NOT_AN_ERROR = re.compile(r"Warning: |\bWARNING\b|^\s*warnings\.warn|^  [A-Za-z_]\w* \.{2,} ")
KINDS_KEPT = 50  # different errors held back at once
TRACEBACK_LINES = 400  # a traceback that never ends in an exception is given up after so many lines
UNKNOWN = ("Python raised {name}.", "Read the traceback in the log, from its first line on.")


@dataclass(slots=True)
class _Open:
    """A traceback being read."""

    source: str = ""  # its last indented line
    lines: int = 0
    chained: bool = False


@dataclass(slots=True)
class _Gathered:
    error: Error
    ranks: set[int] = field(default_factory=set[int])
    unnamed: int = 0  # reports without a rank


class ErrorCollector:
    """Holds errors back until `flush`, so that later ranks with the same error are counted, not repeated."""

    def __init__(self) -> None:
        self._open: dict[int | None, _Open] = {}
        self._found: dict[str, _Gathered] = {}

    def read(self, text: str, line: int, rank: int | None) -> bool:
        """Whether `text` belongs to an error (then it is no other event)."""
        if TRACEBACK in text:
            chained = self._open[rank].chained if rank in self._open else False
            self._open[rank] = _Open(chained=chained)
            return True
        traceback = self._open.get(rank)
        if traceback is not None and self._in_traceback(traceback, text, line, rank):
            return True
        if NOT_AN_ERROR.search(text):
            return False
        known = find_known(text)
        if known is None or known.kind == "missing-library":  # optional packages are missing all the time
            return False
        self._add(known, known.kind, text, line, rank)
        return known.kind != "rank-killed"  # that line is also an exit

    def _in_traceback(self, traceback: _Open, text: str, line: int, rank: int | None) -> bool:
        traceback.lines += 1
        if traceback.lines > TRACEBACK_LINES:
            del self._open[rank]
            return False
        if text.startswith(CHAINED):
            traceback.chained = True
            return True
        if text.startswith(" ") or not text.strip():
            traceback.source = text.strip(" ^~") or traceback.source
            return True
        exception = EXCEPTION.match(text)
        if exception is None:
            return False
        if text.rstrip(": ") == exception[1]:  # a bare `AssertionError`: its source line says what
            text = f"{text.rstrip()} {traceback.source}"
        known = find_known(text)
        if known is not None or not traceback.chained:
            self._add(known, known.kind if known else exception[1], text, line, rank)
        del self._open[rank]
        return True

    def _add(self, known: KnownError | None, kind: str, text: str, line: int, rank: int | None) -> None:
        said = RANK_SAID.search(text)
        if said:
            rank = int(next(group for group in said.groups() if group))
        gathered = self._found.get(kind)
        if gathered is None:
            if len(self._found) >= KINDS_KEPT:
                return
            explanation, remedy = (
                (known.explanation, known.remedy) if known else (UNKNOWN[0].format(name=kind), UNKNOWN[1])
            )
            error = Error(
                line,
                rank,
                kind if known else "exception",
                clean_line(text.strip()),
                explanation,
                remedy,
                1,
                rank,
            )
            gathered = self._found[kind] = _Gathered(error)
        if rank is None:
            gathered.unnamed += 1
        elif gathered.error.first_rank is None:
            gathered.error = replace(gathered.error, first_rank=rank)
        if rank is not None:
            gathered.ranks.add(rank)

    def pending(self) -> list[Error]:
        """What is held back, in the order of the lines."""
        return [_counted(gathered) for gathered in self._found.values()]

    def flush(self) -> list[Error]:
        found = self.pending()
        self._found.clear()
        return found


def _counted(gathered: _Gathered) -> Error:
    return replace(gathered.error, ranks=len(gathered.ranks) or gathered.unnamed)
