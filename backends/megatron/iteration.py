"""Iteration lines of every version and fork: ` iteration A/B | name: value | name: value | …`, one at a time.

`columns` reads millions of them; it and this module must agree on every value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backends.megatron.events import Value

START = re.compile(r"(?<![\w,])iteration(?:\s+|=\s*)(\d{1,18})\s*/\s*(\d{1,18})\s*\|")
# NeMo's `Training epoch 0, iteration 0/9 |` counts from 0 and is not Megatron's.
EPOCH = re.compile(r"epoch \d+, *$")
# Japanese, Chinese or Korean text that quotes a log.
PROSE = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)\]\s*$")
FIELD = re.compile(r"\s*([A-Za-z_][^|:]*?)\s*:\s*(.*?)\s*$")
# argonne-lcf: `grad_norm=6.3`, names with underscores.
ASSIGNED = re.compile(r"\s*((?:\[\w+\])?[A-Za-z_][^|:=]*?)=\s*(.*?)\s*$")
NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(.*)$", re.ASCII)
MULTIPLES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
LAST_FIELD = "number of nan iterations"
WRAPPED = re.compile(r"[a-z][a-z ]*")  # a name that a hard-wrapped paste has broken
CONTINUES = re.compile(r"\s*[A-Za-z][A-Za-z ()/]*: *[^|:]*\|")


@dataclass(frozen=True, slots=True)
class IterationLine:
    """One line. `before` and `rest` are what was glued to its ends, to be read as lines of their own ("": nothing)."""

    time: str | None
    iteration: int
    train_iters: int
    values: dict[str, Value]
    before: str
    rest: str

    @property
    def wrapped(self) -> bool:
        """Whether the line seems to end inside a field name, so that the next may belong to it."""
        return self.rest != "" and WRAPPED.fullmatch(self.rest) is not None


def read_iteration(text: str) -> IterationLine | None:
    """Read `text` as an iteration line; None when it is none."""
    start = START.search(text)
    if start is None or EPOCH.search(text, 0, start.start()) or PROSE.search(text, 0, start.start()):
        return None
    stamp = STAMP.search(text, 0, start.start())
    values: dict[str, Value] = {}
    position, closed = start.end(), False
    while position < len(text):
        end = text.find("|", position)
        piece = text[position : end if end >= 0 else len(text)]
        field = FIELD.match(piece) or ASSIGNED.match(piece)
        if field is None or (end < 0 and closed and not piece.startswith(" ")):
            break
        value, glued = field[2], ""
        if (cut := value.find("[Rank ")) > 0:
            value, glued = value[:cut].rstrip(), value[cut:]
        name = field[1].replace("_", " ") if field.re is ASSIGNED else field[1]
        values_name = name_of(name)
        values[values_name] = in_unit(name, read_value(value))
        closed = closed or name == LAST_FIELD
        if glued:
            position += len(piece) - len(glued)
            break
        position = end + 1 if end >= 0 else len(text)
    if not values:
        return None
    return IterationLine(
        f"{stamp[1]}T{stamp[2]}" if stamp else None,
        int(start[1]),
        int(start[2]),
        values,
        text[: (stamp or start).start()].strip(),
        text[position:].strip(),
    )


def name_of(printed: str) -> str:
    """The name of a field: seconds are given as milliseconds."""
    if printed.endswith(" ms"):
        return printed[:-2] + "(ms)"
    return printed[:-3] + "(ms)" if printed.endswith("(s)") else printed


def in_unit(printed: str, value: Value) -> Value:
    """`value` of the field that was printed as `printed`, in the unit of `name_of` it."""
    return value * 1000 if printed.endswith("(s)") and not isinstance(value, str) else value


def read_value(text: str) -> Value:
    """A value as printed: numbers as numbers, of `a/b` the first, unit suffixes stripped and multiplied out; else the text."""
    try:
        return int(text) if len(text) < 19 and text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        pass
    match = NUMBER.match(text)
    if match is None or match[2].startswith((":", "-")):  # `eta: 0:00:00`, dates
        return text
    number = read_value(match[1])
    suffix = match[2]
    return number * MULTIPLES[suffix] if suffix in MULTIPLES and not isinstance(number, str) else number
