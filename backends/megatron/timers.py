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
        self._form: re.Pattern[str] | None = None  # of the `time (ms) |` line last read
        self._names: list[str] = []

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
            values = self._fields(match["fields"])
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

    def _fields(self, text: str) -> dict[str, tuple[float, float]]:
        """The fields of a `time (ms) |` line; such lines come by the thousand and look alike."""
        if self._form is not None and (match := self._form.fullmatch(text)):
            return {
                name: (value, value)
                for name, value in zip(self._names, map(float, match.groups()), strict=True)
            }
        pieces = [FIELD.fullmatch(piece) for piece in text.split("|")]
        if all(pieces):
            self._names = [piece[1].strip() for piece in pieces if piece]
            parts = [rf" ?{re.escape(piece[1])}: (\d+(?:\.\d+)?) ?" for piece in pieces if piece]
            self._form = re.compile(r"\|".join(parts))
        return {m[1].strip(): (float(m[2]), float(m[2])) for m in pieces if m}
