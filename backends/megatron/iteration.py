"""Reads one iteration line of any version or fork: ` iteration A/B | name: value | name: value | …`.

`columns` reads many at once and must agree with this module on every value.
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
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d+)?)(?:Z|[+-]\d\d:?\d\d)?\][\s>=]*$")
NAME = re.compile(r"[A-Za-z_]")
MARKED_NAME = re.compile(r"(?:\[\w+\]-?)?[A-Za-z_]")
NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(.*)$", re.ASCII)
MULTIPLES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
LAST_FIELD = "number of nan iterations"
# How the next part of a wrapped line begins: the rest of a name and its value, or the rest of a value.
PART = re.compile(r"[A-Za-z()/ ]*:[^:]*|[\d.eE+-]*")
NAME_BEGINS = re.compile(r"\s*[A-Za-z ]*")
LAST_WORD, FIRST_WORD = re.compile(r"[A-Za-z]+$"), re.compile(r"[A-Za-z]+")
# Words of mainline's names. They tell whether two parts belong to one word.
WORD = re.compile(
    "iterations?|consumed|skipped|samples|elapsed|time|per|ms|throughput|GPU|TFLOP|learning|rate|global|batch|size|lm|loss"
    "|scale|grad|norm|params|num|number|of|nan|zeros"
)


@dataclass(frozen=True, slots=True)
class IterationLine:
    """One line. `before` and `rest` were glued to its ends and are to be read as lines of their own ("": nothing).

    `whole`: it ends as the lines of v2.0 and later do. Other lines may be whole too, or the first part of a wrapped one,
    as those without `values` are.
    """

    time: str | None
    iteration: int
    train_iters: int
    values: dict[str, Value]
    before: str
    rest: str
    whole: bool


def read_iteration(text: str) -> IterationLine | None:
    """Read `text` as an iteration line; None if it is none."""
    start = START.search(text) if "iteration" in text else None
    if start is None or EPOCH.search(text, 0, start.start()) or PROSE.search(text, 0, start.start()):
        return None
    stamp = STAMP.search(text, 0, start.start())
    values: dict[str, Value] = {}
    position, closed = start.end(), False
    while position < len(text):
        end = text.find("|", position)
        piece = text[position : end if end >= 0 else len(text)]
        after = end < 0 and closed  # text behind the last bar, perhaps of another rank
        field = _field(piece, bare=not after)
        if field is None or (after and not piece.startswith(" ")):
            break
        name, value = field
        values[name_of(name)] = in_unit(name, read_value(value))
        closed = closed or name == LAST_FIELD
        position = end + 1 if end >= 0 else len(text)
    if not values and NAME_BEGINS.fullmatch(text, position) is None:
        return None
    return IterationLine(
        f"{stamp[1]}T{stamp[2]}" if stamp else None,
        int(start[1]),
        int(start[2]),
        values,
        text[: (stamp or start).start()].strip(),
        text[position:].strip(),
        closed and (position < len(text) or text.endswith("|")),
    )


def _field(piece: str, *, bare: bool) -> tuple[str, str] | None:
    """Name and value of `name: value`, of argonne-lcf's `grad_norm=6.3` or, if `bare`, SwissArmyTransformer's `total loss 1.2E+00`."""
    name, colon, value = piece.partition(":")
    if colon and NAME.match(name.lstrip()):
        return name.strip(), value.strip()
    name, equals, value = piece.partition("=")
    if not equals:
        name, _, value = piece.strip().rpartition(" ")
        if not bare or not NUMBER.match(value):
            return None
    name = name.strip()
    return (name.replace("_", " "), value.strip()) if ":" not in name and MARKED_NAME.match(name) else None


def continues(text: str) -> bool:
    """Whether `text` may be the next part of a wrapped line."""
    begin, bar, _ = text.partition("|")
    return bar != "" and PART.fullmatch(begin.strip()) is not None and START.search(text) is None


def join(start: str, more: str) -> str:
    """The two parts of a wrapped line. A number or a word that was cut is put together again."""
    if start[-1:] in " (/" or more[:1] in " )/:":
        return start + more
    last, first = LAST_WORD.search(start), FIRST_WORD.match(more)
    cut_word = last and first and WORD.fullmatch(last[0] + first[0])
    cut_number = start[-1:] in "0123456789.E+-" and more[:1] in "0123456789.E+-"
    return start + more if cut_word or cut_number else f"{start} {more}"


def name_of(printed: str) -> str:
    """The name of a field. Seconds become milliseconds."""
    if printed.endswith(" ms"):
        return printed[:-2] + "(ms)"
    return printed[:-3] + "(ms)" if printed.endswith("(s)") else printed


def in_unit(printed: str, value: Value) -> Value:
    """`value` of the field that was printed as `printed`, in the unit of `name_of` it."""
    return value * 1000 if printed.endswith("(s)") and not isinstance(value, str) else value


def read_value(text: str) -> Value:
    """A value: numbers as numbers, the first of `a/b`, with unit suffixes multiplied out; any other text as it is."""
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
