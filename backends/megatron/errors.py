"""Collects errors: the tracebacks of many ranks become one error that names the first rank that failed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from backends.megatron.events import Error
from backends.megatron.known_errors import ENDINGS, EXCEPTION, TRACEBACK, KnownError, find_known
from backends.text import clean_line

CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
RANK_SAID = re.compile(
    r"\bprocess rank (\d{1,7})|\bRank (\d{1,7})[:,]|\bRank (\d{1,7})\]|^\[rank(\d{1,7})\]|invoked on rank (\d{1,7})|local_rank: \d+\) of .* rank (\d{1,7})"
)
# How launchers name the process that failed first: mpirun once, torchrun in the last of its blocks.
FIRST_FAILED = re.compile(r"^\s*(?:Process name: \[.*[,@](\d{1,7})\]\s*$|rank\s+: (\d{1,7}) \(local_rank)")
NOT_AN_ERROR = re.compile(
    r"Warning: |\bWARNING\b(?!.*nv files)|^\s*(?:warnings\.warn|# )|NCCL INFO |^  [A-Za-z_]\w* \.{2,} "
)
ENDS_TRACEBACK = re.compile(
    r"(?:Error|Exception|Interrupt|Warning|Timeout|Exit|Expired|Iteration|Exhausted|Abort)$"
)
# Errors even if their logger calls them warnings.
HEEDED = frozenset({"nan", "no-gpu", "out-of-memory", "rank-failed", "rerun"})
VAGUE = frozenset({"exception", "nccl"})  # kinds that a line just after the exception may explain better
DETAIL_LINES = 4  # lines after an exception that may belong to its message
KINDS_KEPT = 50  # different errors held back at once
TRACEBACK_LINES = 400  # lines after which a traceback without an exception is given up
UNKNOWN = ("Python raised {name}.", "Read the traceback in the log, from its first line on.")


@dataclass(slots=True)
class _Open:
    """Open tracebacks that cannot be told apart: those of one rank, or all of them if the lines name no rank."""

    count: int = 0
    source: str = ""  # the last indented line
    lines: int = 0
    chained: bool = False


@dataclass(slots=True)
class _Gathered:
    error: Error
    ranks: set[int] = field(default_factory=set[int])
    unnamed: int = 0  # tracebacks without a rank; at least 1 where none has a rank


class ErrorCollector:
    """Holds errors back until `flush`, so that further ranks with the same error are counted instead of repeated."""

    def __init__(self) -> None:
        self._open: dict[int | None, _Open] = {}
        self._found: dict[str, _Gathered] = {}
        self._raised: dict[
            int | None, tuple[str, int]
        ] = {}  # of each rank the exception last read: its kind, its line

    @property
    def reading(self) -> bool:
        """Whether a traceback is open, to which any line may belong."""
        return bool(self._open)

    @property
    def holding(self) -> bool:
        """Whether an error is held back."""
        return bool(self._found)

    def read(self, text: str, line: int, rank: int | None, quiet: bool = False) -> bool:
        """Read one line; whether it belongs to an error. `quiet`: its logger calls it a warning, or less."""
        if openings := len(TRACEBACK.findall(text)):
            # The traceback of a worker process: the exception before it only says that a worker failed.
            if text.startswith("Original "):
                self._take_back(line, rank)
            traceback = self._open.setdefault(rank, _Open())
            traceback.count += openings if not traceback.chained else 0
            traceback.lines, traceback.chained = 0, False
            if text.startswith("["):  # the whole traceback was printed as a list of lines
                self._close(rank)
            return True
        traceback = self._open.get(rank)
        if traceback is not None and self._in_traceback(traceback, text, line, rank):
            return True
        if text.startswith("-----") or NOT_AN_ERROR.search(text):
            return False
        known = find_known(text)
        if known is not None and (not quiet or known.kind in HEEDED):
            if not self._told(known, text, line, rank):
                self._add(known, known.kind, text, line, rank)
            return True
        if (match := FIRST_FAILED.match(text)) is not None:
            self._first_to_fail(int(match[1] or match[2]))
            return True
        return False

    def _in_traceback(self, traceback: _Open, text: str, line: int, rank: int | None) -> bool:
        traceback.lines += 1
        if traceback.lines > TRACEBACK_LINES:
            del self._open[rank]
            return False
        if text.startswith(CHAINED):
            # The exception before is the cause and has been counted. The next traceback is the same failure.
            traceback.chained = True
            traceback.count += 1
            return True
        if text.startswith((" ", "│", "╰")) or not text.strip():  # rich draws frames around tracebacks
            traceback.source = text.strip(" ^~") or traceback.source
            return True
        exception = EXCEPTION.match(text)
        # `_queue.Empty` only says that a worker is late.
        if (
            exception is None
            or text.startswith("_queue.")
            or not (
                "." in exception[0] or ENDS_TRACEBACK.search(exception[1]) or find_known(text, raised=True)
            )
        ):
            return False
        # Only the source line says what a bare `AssertionError` asserts.
        if text.rstrip(": ") == exception[0].rstrip(": "):
            text = f"{text.rstrip()} {traceback.source}"
        known = find_known(text, raised=True)
        kind = known.kind if known else exception[1]
        self._add(known, kind, text, line, rank, raised=True)
        self._raised[rank] = (kind, line)
        self._close(rank)
        return True

    def _told(self, known: KnownError, text: str, line: int, rank: int | None) -> bool:
        """Whether `text` belongs to the message of the exception just before it and adds nothing. A vague exception is taken back."""
        kind, at = self._raised.get(rank, ("", 0))
        if known.kind in ENDINGS or not text[:1].isalpha() or line - at > DETAIL_LINES:
            return False
        if known.kind == kind:
            return True
        self._take_back(line, rank)
        return False

    def _take_back(self, line: int, rank: int | None) -> None:
        """Forget the exception just before `line` if it was vague, because the line says more."""
        kind, at = self._raised.get(rank, ("", line))
        vague = self._found.get(kind)
        if vague is None or vague.error.kind not in VAGUE or line - at > DETAIL_LINES:
            return
        del self._raised[rank]
        vague.ranks.discard(rank if rank is not None else -1)
        vague.unnamed -= rank is None
        if not vague.ranks and vague.unnamed <= 0:
            del self._found[kind]

    def _close(self, rank: int | None) -> None:
        traceback = self._open[rank]
        traceback.count -= 1
        if traceback.count <= 0:
            del self._open[rank]

    def _add(
        self,
        known: KnownError | None,
        kind: str,
        text: str,
        line: int,
        rank: int | None,
        raised: bool = False,
    ) -> None:
        if said := RANK_SAID.search(text):
            rank = int(next(group for group in said.groups() if group))
        gathered = self._found.get(kind)
        if gathered is None:
            if len(self._found) >= KINDS_KEPT:
                return
            explanation = known.explanation if known else UNKNOWN[0].format(name=kind)
            remedy = known.remedy if known else UNKNOWN[1]
            message = clean_line(text.strip())
            error = Error(line, rank, kind if known else "exception", message, explanation, remedy, 1, rank)
            gathered = self._found[kind] = _Gathered(error)
        if rank is None:
            # A rank ends with one traceback, but may print any number of messages.
            gathered.unnamed += raised or not gathered.unnamed
            return
        if gathered.error.first_rank is None:
            gathered.error = replace(gathered.error, first_rank=rank)
        gathered.ranks.add(rank)

    def _first_to_fail(self, rank: int) -> None:
        """The launcher names the process that failed first. Tracebacks without a prefix are attributed to it."""
        for gathered in self._found.values():
            if not gathered.ranks and gathered.error.rank is None:
                gathered.error = replace(gathered.error, first_rank=rank)

    def pending(self) -> list[Error]:
        """The errors held back, in the order of their lines."""
        found = [replace(g.error, ranks=len(g.ranks) or g.unnamed) for g in self._found.values()]
        return sorted(found, key=lambda error: error.line)

    def flush(self) -> list[Error]:
        """Return the errors held back and forget them: later errors are another failure."""
        found = self.pending()
        self._found.clear()
        self._open.clear()
        self._raised.clear()
        return found
