"""Reads millions of iteration lines as columns, without an object for each line.

The keys of a sample line make one regular expression. `split` by it returns one list of all values and gaps; the columns
are slices of that list. `iteration` reads the lines that fit no expression.
"""

from __future__ import annotations

import itertools
import operator
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from backends.megatron.events import Value
from backends.megatron.iteration import in_unit, name_of, read_iteration, read_value
from backends.megatron.line_reader import LineReader
from backends.megatron.lines import DIGITS_TO_0, decode, prefix_form, strip_prefixes
from backends.megatron.printed_columns import IsoTimes, PrintedNumbers, are_json_numbers

SAMPLE = re.compile(
    rb"(?P<before>[^|\n]*?)(?:\[(?P<stamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?)(?P<zone>[-+Z\d:]*)\] )?"
    rb"iteration +(?P<iteration>\d{1,18})/ *(?P<train_iters>\d{1,18}) \|(?P<fields>.*\|)(?P<after>[^|\n]*)"
)
SAMPLE_FIELD = re.compile(rb" ([A-Za-z_][^|:\n]*?):( +)([^ |\n]+) \|")
ENOUGH = 256  # lines in a block after which columns of one value are taken for constant
NEWLINE = {10}
LONGEST = 10**18  # no iteration is printed with more digits


@dataclass(frozen=True, slots=True)
class Rows:
    """Iteration lines of one block. `gaps` has one entry more than there are lines: the text before each, and after all.

    `step` is 1 if the lines follow one another, 2 if exactly one other line stands between any two, else 0.
    """

    ranks: Sequence[int | None]
    times: Sequence[str | None]
    iterations: Sequence[int]
    train_iters: Sequence[int]
    values: dict[str, Sequence[Value]]
    gaps: list[bytes]
    step: int

    def __len__(self) -> int:
        return len(self.iterations)

    def numbers(self, first: int) -> Sequence[int]:
        """The line numbers, if the block begins with line `first`."""
        if self.step:
            first += len(self.gaps[0]) > 0
            return range(first, first + self.step * len(self), self.step)
        between = itertools.accumulate([gap.count(b"\n") if gap else 0 for gap in self.gaps])
        return list(map(operator.add, between, range(first, first + len(self))))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the sample. `constant`: the text behind the colon, blanks included, if all lines have the same; else None."""

    printed: bytes
    sample: bytes
    constant: bytes | None = None

    @property
    def name(self) -> str:
        return name_of(self.printed.decode())


@dataclass(frozen=True, slots=True)
class Form:
    """An expression for whole lines, and their fields. It has a group for the stamp, the iteration and each field that is not constant."""

    expression: re.Pattern[bytes]
    fields: tuple[Field, ...]

    def split(self, block: bytes) -> list[list[bytes]]:
        """The gaps, then one list for each group; the gaps alone when no line fits."""
        parts = self.expression.split(block)
        width = self.expression.groups + 1
        return [parts] if len(parts) == 1 else [parts[i::width] for i in range(width)]


class LinePattern:
    """Reads lines with the prefix of a sample and its keys in the same order. With `any_rank` the rank in the prefix may differ."""

    def __init__(self, sample: re.Match[bytes], fields: tuple[Field, ...], any_rank: bool = False) -> None:
        self._sample, self._any_rank = sample, any_rank
        self._stamp: bytes | None = sample["stamp"]
        self._train_iters = int(sample["train_iters"])
        self.rank = strip_prefixes(decode(sample["before"]))[1]
        self._varying = set[bytes]()  # fields that turned out not to be constant
        self._loose = self._form(fields)
        self._strict = self._loose  # with constants

    def _form(self, fields: tuple[Field, ...]) -> Form:
        """Constant fields are literal text in the expression: they cost no object and no conversion."""
        parts = [prefix_form(self._sample["before"], self._any_rank)]
        if self._stamp:
            parts.append(rb"\[(.{%d})%b\] " % (len(self._stamp), re.escape(self._sample["zone"])))
        # Matching all but one byte is much faster than matching a class. The conversion to numbers rejects what is none.
        parts.append(rb"iteration +([^ /]+)/ *" + self._sample["train_iters"] + rb" \|")
        for field in fields:
            value = rb" +([^ ]+)" if field.constant is None else re.escape(field.constant)
            parts.append(b" " + re.escape(field.printed) + b":" + value + rb" \|")
        return Form(re.compile(b"".join(parts) + re.escape(self._sample["after"]) + rb"\n"), fields)

    def of_any_rank(self, line: bytes) -> LinePattern | None:
        """A pattern for lines of all ranks, if `line` differs from the sample in its rank only; else None."""
        if self.rank in (None, strip_prefixes(decode(line))[1]):
            return None
        pattern = LinePattern(self._sample, self._loose.fields, any_rank=True)
        rows = pattern.read(line)
        return pattern if rows and rows.ranks[0] == strip_prefixes(decode(line))[1] else None

    def fits(self, line: bytes) -> bool:
        """Whether `line` (with its newline) can be read."""
        return self._loose.expression.fullmatch(line) is not None

    def read(self, block: bytes) -> Rows | None:
        """All lines in `block` that fit. None if there are none, or if a match begins in the middle of a line."""
        form = self._strict
        gaps, *texts = form.split(block)
        filled = [gap for gap in gaps if gap]
        if form is not self._loose and self._loose.expression.search(b"".join(filled)):
            form = self._loose  # a field that was taken for constant has changed
            gaps, *texts = form.split(block)
            filled = [gap for gap in gaps if gap]
            self._loosen(texts)
        if not texts or not NEWLINE.issuperset([gap[-1] for gap in filled]):
            return None
        ranks = list(map(int, texts.pop(0))) if self._any_rank else [self.rank] * len(texts[0])
        times = self._times(texts.pop(0)) if self._stamp else [None] * len(texts[0])
        try:
            iterations = _integers(texts[0])
            columns = _columns(form.fields, texts[1:], len(iterations))
        except (ValueError, OverflowError):
            return None
        if times is None:
            return None
        if len(iterations) >= ENOUGH and form is self._loose:
            self._tighten(texts[1:], block)
        train_iters = array("q", [self._train_iters]) * len(iterations)
        return Rows(ranks, times, iterations, train_iters, columns, gaps, _step(gaps, filled))

    def _loosen(self, texts: list[list[bytes]]) -> None:
        """Forget the constants, and remember which fields `texts`, those of all fields, show to vary."""
        for field, column in zip(self._strict.fields, texts[-len(self._strict.fields) :], strict=True):
            if field.constant is not None and any(text != field.constant.strip() for text in column):
                self._varying.add(field.printed)
        self._strict = self._loose

    def _tighten(self, texts: list[list[bytes]], block: bytes) -> None:
        """Take the fields that have one value in a long block for constant, given the `texts` of all fields."""
        line = self._loose.expression.search(block)
        assert line
        printed = {field[1]: field[2] + field[3] for field in SAMPLE_FIELD.finditer(line[0])}
        fields = tuple(
            replace(field, constant=printed[field.printed])
            if field.printed not in self._varying and column.count(column[0]) == len(column)
            else field
            for field, column in zip(self._loose.fields, texts, strict=True)
        )
        if fields != self._loose.fields:
            self._strict = self._form(fields)

    def _times(self, stamps: list[bytes]) -> IsoTimes | None:
        assert self._stamp is not None
        joined, shape = b"".join(stamps), self._stamp.translate(DIGITS_TO_0)
        if joined.translate(DIGITS_TO_0) != shape * len(stamps):
            return None
        return IsoTimes(joined, len(shape))


def pattern_of(line: bytes, never_wrapped: bool) -> LinePattern | None:
    """The pattern of a sample line without its newline. None if the line has no plain form, or may continue in the next."""
    match = SAMPLE.fullmatch(line)
    if match is None:
        return None
    found = list(SAMPLE_FIELD.finditer(match["fields"]))
    if not found or sum(len(field[0]) for field in found) != len(match["fields"]):
        return None  # there is other text between or behind the fields
    names = [name_of(field[1].decode(errors="replace")) for field in found]
    if len(set(names)) != len(names) or not line.isascii():
        return None
    pattern = LinePattern(match, tuple(Field(field[1], field[3]) for field in found))
    return pattern if _agrees(pattern, line, never_wrapped) else None


def _agrees(pattern: LinePattern, line: bytes, never_wrapped: bool) -> bool:
    """Whether the pattern reads its own sample as `read_iteration` does, and the sample is a whole line."""
    rows, one = pattern.read(line + b"\n"), read_iteration(strip_prefixes(decode(line))[0])
    if rows is None or one is None or one.before or rows.times[0] != one.time:
        return False
    if not (one.whole or never_wrapped):
        return False
    if one.rest and not _means_nothing(one.rest):
        return False
    values = {name: column[0] for name, column in rows.values.items()}
    return repr((rows.iterations[0], rows.train_iters[0], values)) == repr(
        (one.iteration, one.train_iters, one.values)
    )


def _step(gaps: list[bytes], filled: list[bytes]) -> int:
    if not filled:
        return 1
    places = len(gaps) - (not gaps[0]) - (not gaps[-1])
    return 2 if len(filled) == places and b"".join(filled).count(b"\n") == places else 0


def _means_nothing(text: str) -> bool:
    reader = LineReader()
    return not reader.read(text.encode(), 0) and reader.meant_nothing


def _integers(texts: list[bytes]) -> Sequence[int]:
    """A column of whole numbers; a range if they rise evenly. Raises ValueError, OverflowError."""
    first, last, rows = int(texts[0]), int(texts[-1]), len(texts)
    if rows > 1 and (step := (last - first) // (rows - 1)) > 0:
        line = range(first, last + 1, step)
        # Writing numbers is faster than reading them.
        if len(line) == rows and (b" %d" * rows) % tuple(line) == b" " + b" ".join(texts):
            return line
    if not b"".join(texts).isdigit():
        raise ValueError("not plain digits")
    numbers = array("q", list(map(int, texts)))
    if max(numbers) >= LONGEST:
        raise OverflowError("more digits than a whole number is read with")
    return numbers


def _columns(fields: Sequence[Field], texts: list[list[bytes]], rows: int) -> dict[str, Sequence[Value]]:
    """The columns of `fields`. `texts` has one list for each field that is not constant. Raises ValueError, OverflowError."""
    varying = iter(texts)
    return {
        field.name: _repeated(field.printed.decode(), field.constant, rows)
        if field.constant is not None
        else _column(field, next(varying))
        for field in fields
    }


def _repeated(printed: str, text: bytes, rows: int) -> Sequence[Value]:
    value = in_unit(printed, read_value(text.decode().strip()))
    if isinstance(value, str):
        return [value] * rows
    return array("q" if isinstance(value, int) else "d", [value]) * rows


def _column(field: Field, texts: list[bytes]) -> Sequence[Value]:
    """A column of numbers; a list if a value is no plain number."""
    try:
        if field.sample.isdigit():
            column = _integers(texts)
        elif are_json_numbers(texts):
            column = PrintedNumbers(texts)
        elif b"\n" in b"".join(texts):
            raise ValueError("a value is broken over two lines")
        else:
            column = array("d", list(map(float, texts)))
    except (ValueError, OverflowError):
        return _mixed(field, texts)
    if field.name != field.printed.decode():
        return [in_unit(field.printed.decode(), value) for value in column]
    return column


def _mixed(field: Field, texts: list[bytes]) -> list[Value]:
    """Values of any kind. Raises ValueError for bytes that cleaning would change, and for more than one value."""
    joined = b"".join(texts).decode("ascii")
    if not joined.isprintable() or "|" in joined:
        raise ValueError("not plain values")
    printed = field.printed.decode()
    return [in_unit(printed, read_value(text.decode())) for text in texts]
