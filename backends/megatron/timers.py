"""Timer blocks (core 0.4 and later) and timer lines (v1.0 to v2.6)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, overload

from backends.megatron.events import Timers
from backends.megatron.lines import decode, prefix_form, strip_prefixes

HEADER = re.compile(r"^\s*(?:\(min, max\) time|max time|times) across ranks \(ms\):\s*$")
PAIR = re.compile(
    r"^\s{2,}(?P<name>[\w/\-.][\w/\-. ]*): \((?P<low>\d+(?:\.\d+)?), (?P<high>\d+(?:\.\d+)?)\)\s*$"
)
SINGLE = re.compile(r"^\s{2,}(?P<name>[\w/\-.][\w/\-. ]*): (?P<value>\d+(?:\.\d+)?)\s*$")
NAME = re.compile(r"^\s{2,}(?P<name>[\w/\-.]+):\s*$")
RANK = re.compile(r"^\s{2,}rank +\d+: (?P<value>\d+(?:\.\d+)?)\s*$")
LINE = re.compile(r"^\s*time \(ms\) \|(?P<fields>.*)$")
FIELD = re.compile(r" ?([^:|]+): (\d+(?:\.\d+)?) ?")
LINE_FIELD = re.compile(rf"\|{FIELD.pattern}")
PLAIN_NUMBER = rb"((?:0|[1-9]\d{0,14})(?:\.\d{1,15})?)"  # as JSON has it
NUMBERS = b"0123456789. "  # by which texts of one form differ
FORMS_KEPT = 100
FEW = 8  # texts; for fewer, an expression of their own does not pay


class TimerReader:
    """Reads timer blocks line by line. A block ends at the first line that does not belong to it."""

    def __init__(self) -> None:
        self._at: tuple[int, int | None] | None = None
        self._values: dict[str, tuple[float, float]] = {}
        self._name = ""

    @property
    def reading(self) -> bool:
        """Whether a block is open."""
        return self._at is not None

    def read(self, text: str, line: int, rank: int | None) -> list[Timers] | None:
        """The events that `text` completes, if it is a line of timers. Else None; it then ends an open block: call `finish`."""
        if HEADER.match(text):
            done = self.finish()
            self._at = (line, rank)
            return done
        if match := LINE.match(text):
            done = self.finish()
            values = _fields(match["fields"])
            return [*done, Timers([line], rank, [values])] if values else done
        return [] if self._at is not None and self._row(text) else None

    def _row(self, text: str) -> bool:
        if match := PAIR.match(text):
            self._values[match["name"].rstrip(" .")] = (float(match["low"]), float(match["high"]))
        elif (match := RANK.match(text)) and self._name:
            value = float(match["value"])
            low, high = self._values.get(self._name, (value, value))
            self._values[self._name] = (min(low, value), max(high, value))
        elif match := SINGLE.match(text):
            self._values[match["name"].rstrip(" .")] = (float(match["value"]), float(match["value"]))
        elif match := NAME.match(text):
            self._name = match["name"]
        else:
            return False
        return True

    def finish(self) -> list[Timers]:
        """End the open block, if there is one: its timers."""
        if self._at is None:
            return []
        (line, rank), values = self._at, self._values
        self._at, self._values, self._name = None, {}, ""
        return [Timers([line], rank, [values])] if values else []


@functools.lru_cache(maxsize=1024)
def kind_of(raw: bytes) -> Literal["", "block", "line", "row"]:
    """What a line with its newline is: the header of a block, a row of a block, or a line of timers by itself."""
    text = strip_prefixes(decode(raw[:-1]))[0]
    if HEADER.match(text):
        return "block"
    if LINE.match(text):
        return "line" if "iteration" not in text else ""
    return "row" if any(pattern.match(text) for pattern in (PAIR, SINGLE, NAME, RANK)) else ""


def _fields(text: str) -> dict[str, tuple[float, float]]:
    fields = [FIELD.fullmatch(piece) for piece in text.split("|")]
    return {field[1].strip(): (float(field[2]), float(field[2])) for field in fields if field}


class TimerTable(NamedTuple):
    """Timers of one form. `columns`: for each name the minima, then the maxima, ms, as texts that JSON knows too."""

    names: list[str]
    columns: list[Sequence[bytes]]


class TimerTexts(Sequence[Mapping[str, tuple[float, float]]]):
    """Timers that stay text until somebody asks for them: few of a million are looked at. An item is empty if it cannot be read."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, tuple[float, float]]: ...
    @overload
    def __getitem__(self, index: slice) -> TimerTexts: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, tuple[float, float]] | TimerTexts:
        if isinstance(index, slice):
            return TimerTexts(self.texts[index])
        found = _read_text(self.texts[index])
        return found.values[0] if found else {}

    def table(self) -> TimerTable | None:
        """All timers as one table, if the texts differ in their numbers and in times before the lines only; else None."""
        if len(self.texts) < FEW or (form := _form_of(self.texts[0])) is None:
            return None
        expression, names, groups = form
        parts, width = expression.split(b"".join(self.texts)), expression.groups + 1
        if len(parts) != width * len(self.texts) + 1 or any(parts[::width]):
            return None
        return TimerTable(names, [parts[group::width] for group in groups])


class TimerForms:
    """Recognises texts that consist of timers by their form, once it has seen one text of that form."""

    def __init__(self) -> None:
        self.rank: int | None = None  # the only rank that prints them
        self._prefix: re.Pattern[bytes] | None = None
        self._known: set[bytes] = set()

    def learn(self, text: bytes) -> None:
        """Remember the form of `text` (whole lines) if it consists of the timers of one moment."""
        timers = _read_text(text) if b"(ms)" in text else None
        if timers is None or len(self._known) >= FORMS_KEPT:
            return
        first = text[: text.index(b"\n")]
        stripped = strip_prefixes(decode(first))[0].encode()
        if first.endswith(stripped):
            prefix = prefix_form(first[: len(first) - len(stripped)])
            if timers.rank != self.rank:
                self._known.clear()
            self.rank, self._prefix = timers.rank, re.compile(prefix) if prefix else None
            self._known.add(text.translate(None, NUMBERS))

    def all_alike(self, lines: Sequence[bytes]) -> bool:
        """Whether `lines`, at least one, are timers of one form. Faster than `recognise`, but may miss some."""
        form = lines[0].translate(None, NUMBERS)
        if self._prefix is not None or form not in self._known:
            return False
        return b"".join(lines).translate(None, NUMBERS) == form * len(lines)

    def recognise(self, texts: Sequence[bytes]) -> list[bool]:
        """For each of `texts` whether it is known to be timers of `rank`."""
        known, prefix = self._known, self._prefix
        if not known:
            return [False] * len(texts)
        fitting = [text.translate(None, NUMBERS) in known for text in texts]
        if prefix is None:
            return fitting
        return [fits and prefix.match(text) is not None for fits, text in zip(fitting, texts, strict=True)]


def _form_of(text: bytes) -> tuple[re.Pattern[bytes], list[str], list[int]] | None:
    """An expression for texts like `text`, the names of their timers, and the groups of each one's minimum and maximum.

    None for timers by rank, and where a name comes twice.
    """
    parts, names, groups, count = list[bytes](), list[str](), list[int](), 0
    for raw in text.splitlines():
        line, at = strip_prefixes(decode(raw))[0], 0
        fields = _matches(line)
        if fields is None or not raw.isascii() or not raw.endswith(line.encode()):
            return None
        parts.append(prefix_form(raw[: len(raw) - len(line)]))
        for field in fields:
            names.append(field[1].strip() if field.re is LINE_FIELD else field[1].rstrip(" ."))
            for group in range(2, 1 + len(field.groups())):
                parts += [re.escape(line[at : field.start(group)].encode()), PLAIN_NUMBER]
                at, count = field.end(group), count + 1
            groups += [count - (field.re is PAIR), count]
        parts += [re.escape(line[at:].encode()), b"\n"]
    if not names or len(set(names)) != len(names):
        return None
    return re.compile(b"".join(parts)), names, groups


def _matches(line: str) -> list[re.Match[str]] | None:
    """The timers of one line, each with its name and one or two numbers; None when it holds anything else."""
    if HEADER.match(line):
        return []
    if match := PAIR.match(line) or SINGLE.match(line):
        return [match]
    fields = list(LINE_FIELD.finditer(line)) if LINE.match(line) else []
    whole = "".join([field[0] for field in fields])
    return fields if whole and line.endswith(whole) and line.index("|") == len(line) - len(whole) else None


def _read_text(text: bytes) -> Timers | None:
    """The timers of whole lines; None if there are none, or anything else."""
    reader, events = TimerReader(), list[Timers]()
    for raw in text.split(b"\n")[:-1]:
        found = reader.read(*_clean(raw))
        if found is None:
            return None
        events += found
    events += reader.finish()
    return events[0] if len(events) == 1 else None


def _clean(raw: bytes) -> tuple[str, int, int | None]:
    text, rank = strip_prefixes(decode(raw))
    return text, 0, rank
