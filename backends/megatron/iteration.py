"""Iteration lines of every version and fork: ` iteration A/B | name: value | name: value | …`.

The general reader (`read_iteration`) understands one line. For the millions, `LinePattern` turns the first line's own
keys into one regular expression, and columns come out of `findall` without an object a line.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from backends.megatron.events import Value

START = re.compile(r"(?<![\w,])iteration\s+(\d+)\s*/\s*(\d+)\s*\|")
EPOCH = re.compile(
    r"epoch \d+, *$"
)  # NeMo's `Training epoch 0, iteration 0/9 |` counts from 0 and is not Megatron's
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)\]\s*$")
FIELD = re.compile(r"\s*([A-Za-z_][^|:]*?)\s*:\s*(.*?)\s*$")
NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(.*)$")
NOT_FINITE = re.compile(r"([-+]?)(nan|inf(?:inity)?)$", re.IGNORECASE)
MULTIPLES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
LAST_FIELD = "number of nan iterations"


@dataclass(frozen=True, slots=True)
class IterationLine:
    """One line. `rest` is what was glued to its end, to be read as a line of its own ("" when nothing was)."""

    time: str | None
    iteration: int
    train_iters: int
    values: dict[str, Value]
    rest: str


def read_iteration(text: str) -> IterationLine | None:
    """Read `text` as an iteration line; None when it is none."""
    start = START.search(text)
    if start is None or EPOCH.search(text, 0, start.start()):
        return None
    stamp = STAMP.search(text, 0, start.start())
    values: dict[str, Value] = {}
    position, closed = start.end(), False
    while position < len(text):
        end = text.find("|", position)
        piece = text[position : end if end >= 0 else len(text)]
        field = FIELD.match(piece)
        if field is None or (end < 0 and closed):
            break
        name, value, glued = _field(field[1], field[2])
        values[name] = value
        closed = closed or name == LAST_FIELD
        if glued:
            position += len(piece) - len(glued)
            break
        position = end + 1 if end >= 0 else len(text)
    if not values:
        return None
    time = f"{stamp[1]}T{stamp[2]}" if stamp else None
    return IterationLine(time, int(start[1]), int(start[2]), values, text[position:].strip())


def _field(name: str, text: str) -> tuple[str, Value, str]:
    """(name, value, glued rest): seconds become milliseconds in both name and value."""
    glued = ""
    if (cut := text.find("[Rank ")) > 0:
        text, glued = text[:cut].rstrip(), text[cut:]
    value = read_value(text)
    if name.endswith("(s)"):
        name = name[:-3] + "(ms)"
        value = value * 1000 if not isinstance(value, str) else value
    return name, value, glued


def read_value(text: str) -> Value:
    """A value as printed: numbers as numbers, of `a/b` the first, unit suffixes stripped and multiplied out; else the text."""
    if match := NOT_FINITE.match(text):
        return float((match[1] + match[2]).lower())
    match = NUMBER.match(text)
    if match is None:
        return text
    digits, suffix = match[1], match[2]
    if suffix.startswith((":", "-")):  # `eta: 0:00:00`, dates
        return text
    number: Value = int(digits) if digits.lstrip("+-").isdigit() else float(digits)
    return number * MULTIPLES[suffix] if suffix in MULTIPLES else number


class IsoTimes(Sequence["str | None"]):
    """Time stamps as they stand in the log, made ISO one by one when asked for."""

    def __init__(self, stamps: Sequence[bytes]) -> None:
        self._stamps = stamps

    def __len__(self) -> int:
        return len(self._stamps)

    @overload
    def __getitem__(self, index: int) -> str | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str | None]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str | None] | None:
        if isinstance(index, slice):
            return IsoTimes(self._stamps[index])
        return self._stamps[index].decode().replace(" ", "T")


@dataclass(frozen=True, slots=True)
class Columns:
    times: Sequence[str | None]
    iterations: Sequence[int]
    train_iters: Sequence[int]
    values: dict[str, Sequence[Value]]


class LinePattern:
    """Reads lines that look exactly like a sample: same prefix, same keys, numbers as values."""

    def __init__(
        self, expression: re.Pattern[bytes], keys: list[str], kinds: list[str], stamped: bool
    ) -> None:
        self.expression = expression
        self._keys, self._kinds, self._stamped = keys, kinds, stamped

    def fits(self, line: bytes) -> bool:
        return self.expression.match(b"\n" + line + b"\n") is not None

    def read(self, lines: Sequence[bytes]) -> Columns | None:
        """The columns of all `lines`; None when one of them is different."""
        rows = self.expression.findall(b"\n" + b"\n".join(lines) + b"\n")
        if len(rows) != len(lines):
            return None
        columns: list[tuple[bytes, ...]] = list(zip(*rows, strict=True))
        times: Sequence[str | None] = IsoTimes(columns.pop(0)) if self._stamped else [None] * len(rows)
        try:
            iterations, train_iters, *values = [
                _column(kind, column) for kind, column in zip(self._kinds, columns, strict=True)
            ]
        except (ValueError, OverflowError):
            return None
        return Columns(times, iterations, train_iters, dict(zip(self._keys, values, strict=True)))


def _column(kind: str, column: tuple[bytes, ...]) -> Any:
    """A column of numbers; one value repeated is converted once."""
    convert: Callable[[bytes], float] = int if kind == "q" else float
    if column.count(column[0]) == len(column):
        return array(kind, [convert(column[0])]) * len(column)
    return array(kind, map(convert, column))


PLAIN_FIELD = re.compile(rb" ([A-Za-z_][^|:\n]*?): +([-+]?[\d.]+(?:[eE][-+]?\d+)?|nan|inf|NAN|INF) \|")
PLAIN_LINE = re.compile(
    rb"(?P<before>[^|\n]*?)(?:\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\] )?iteration +(?P<a>\d+)/ *(?P<b>\d+) \|(?P<fields>.*)"
)


def pattern_of(line: bytes) -> LinePattern | None:
    """The pattern of a sample line without its newline; None when the line is not of the plain form."""
    match = PLAIN_LINE.fullmatch(line)
    if match is None or b"epoch" in match["before"]:
        return None
    found = list(PLAIN_FIELD.finditer(match["fields"]))
    if not found or sum(len(field[0]) for field in found) != len(match["fields"]):
        return None  # something else stands between or behind the plain fields
    fields = [(field[1], field[2]) for field in found]
    keys = [name.decode(errors="replace") for name, _ in fields]
    if len(set(keys)) != len(keys) or any(key.endswith("(s)") for key in keys):
        return None
    parts = [rb"\n", re.escape(match["before"])]
    parts.append(rb"\[([^\]\n]+)\] " if match["stamp"] else b"")
    parts.append(rb"iteration +(\d+)/ *(\d+) \|")
    parts += [b" " + re.escape(name) + rb": +([^ |\n]+) \|" for name, _ in fields]
    kinds = ["q", "q", *("q" if value.lstrip(b"+-").isdigit() else "d" for _, value in fields)]
    return LinePattern(re.compile(b"".join(parts) + rb"(?=\n)"), keys, kinds, match["stamp"] is not None)
