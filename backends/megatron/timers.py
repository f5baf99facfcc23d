"""Timer blocks (core 0.4 and later) and timer lines (v1.0 to v2.6)."""

from __future__ import annotations

import re

from backends.megatron.events import Timers

HEADER = re.compile(r"^\s*(?:\(min, max\) time|max time|times) across ranks \(ms\):\s*$")
PAIR = re.compile(
    r"^\s{2,}(?P<name>[\w/\-. ]+?) ?\.*: \((?P<low>\d+(?:\.\d+)?), (?P<high>\d+(?:\.\d+)?)\)\s*$"
)
SINGLE = re.compile(r"^\s{2,}(?P<name>[\w/\-. ]+?) ?\.*: (?P<value>\d+(?:\.\d+)?)\s*$")
NAME = re.compile(r"^\s{2,}(?P<name>[\w/\-.]+):\s*$")
RANK = re.compile(r"^\s{2,}rank +\d+: (?P<value>\d+(?:\.\d+)?)\s*$")
LINE = re.compile(r"^\s*time \(ms\) \|(?P<fields>.*)$")
FIELD = re.compile(r" ?([^:|]+): (\d+(?:\.\d+)?) ?")


class TimerReader:
    """Reads a block line by line; the block ends with the first line that does not belong to it."""

    def __init__(self) -> None:
        self._at: tuple[int, int | None] | None = None
        self._values: dict[str, tuple[float, float]] = {}
        self._name = ""

    @property
    def reading(self) -> bool:
        """Whether a block is open."""
        return self._at is not None

    def read(self, text: str, line: int, rank: int | None) -> list[Timers] | None:
        """None: the line is none of a timer (but may have ended a block: call `finish` first). Else the events so far."""
        if HEADER.match(text):
            done = self.finish()
            self._at = (line, rank)
            return done
        if match := LINE.match(text):
            done = self.finish()
            values = _fields(match["fields"])
            return [*done, Timers(line, rank, values)] if values else done
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
        """The block that ends here, if one was open and said something."""
        if self._at is None:
            return []
        (line, rank), values = self._at, self._values
        self._at, self._values, self._name = None, {}, ""
        return [Timers(line, rank, values)] if values else []


def _fields(text: str) -> dict[str, tuple[float, float]]:
    fields = [FIELD.fullmatch(piece) for piece in text.split("|")]
    return {field[1].strip(): (float(field[2]), float(field[2])) for field in fields if field}


class TimerLine:
    """Reads `time (ms) |` lines that look like a sample: same prefix, same names. They come after every iteration line."""

    def __init__(self, sample: bytes, timers: Timers) -> None:
        self._rank, self._names = timers.rank, list(timers.values)
        numbers = re.compile(rb"(: )\d+(?:\.\d+)?(?=\s)")
        pieces = numbers.split(sample)
        form = b"".join(
            rb": (\d+(?:\.\d+)?)" if piece == b": " and i % 2 else re.escape(piece)
            for i, piece in enumerate(pieces)
        )
        self._form = re.compile(form)

    def read(self, raw: bytes, line: int) -> Timers | None:
        """The timers of `raw`, a line with its newline; None when it is of another form."""
        match = self._form.fullmatch(raw)
        if match is None or len(match.groups()) != len(self._names):
            return None
        numbers = map(float, match.groups())
        return Timers(
            line, self._rank, {name: (value, value) for name, value in zip(self._names, numbers, strict=True)}
        )
