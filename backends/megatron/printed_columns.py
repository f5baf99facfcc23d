"""Columns that keep the texts of the log and convert them to numbers or times on demand: few of a million are looked at."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from backends.megatron.lines import DIGITS_TO_0

# A JSON number with all digits made 0. It is finite whatever its digits are.
JSON_NUMBER = re.compile(rb"-?0{1,99}(?:\.0+)?(?:[eE][-+]?00?)?")


class PrintedNumbers(Sequence[float]):
    """Finite numbers whose texts are valid JSON."""

    def __init__(self, texts: list[bytes]) -> None:
        self.texts = texts
        self._numbers: array[float] | None = None

    @property
    def numbers(self) -> array[float]:
        if self._numbers is None:
            self._numbers = array("d", list(map(float, self.texts)))
        return self._numbers

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[float]:
        return iter(self.numbers)

    def __contains__(self, value: object) -> bool:
        return value in self.numbers

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> PrintedNumbers: ...
    def __getitem__(self, index: int | slice) -> float | PrintedNumbers:
        if not isinstance(index, slice):
            return float(self.texts[index])
        part = PrintedNumbers(self.texts[index])
        if self._numbers is not None:
            part._numbers = self._numbers[index]
        return part


def are_json_numbers(texts: Sequence[bytes]) -> bool:
    """Whether all of `texts`, at least one, are finite JSON numbers."""
    joined, first = b" " + b" ".join(texts), b" " + texts[0].translate(DIGITS_TO_0)
    shapes = joined.translate(DIGITS_TO_0)
    kinds = {first[1:]} if shapes == first * len(texts) else set(shapes[1:].split(b" "))
    if not all(map(JSON_NUMBER.fullmatch, kinds)):
        return False
    if not any(kind.startswith((b"00", b"-00")) for kind in kinds):
        return True
    return all(joined.count(sign + b"0") == joined.count(sign + b"0.") for sign in (b" ", b" -"))


class IsoTimes(Sequence["str | None"]):
    """Time stamps as printed, all of one width. Items are ISO times."""

    def __init__(self, stamps: bytes, width: int) -> None:
        self._stamps, self._width = stamps, width

    def __len__(self) -> int:
        return len(self._stamps) // self._width

    def __iter__(self) -> Iterator[str | None]:
        text, width = self._stamps.decode().replace(" ", "T"), self._width
        return (text[at : at + width] for at in range(0, len(text), width))

    def texts(self) -> list[bytes]:
        """All of them, as ASCII."""
        stamps, width = self._stamps.replace(b" ", b"T"), self._width
        return [stamps[at : at + width] for at in range(0, len(stamps), width)]

    @overload
    def __getitem__(self, index: int) -> str | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str | None]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str | None] | None:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return [self[i] for i in range(start, stop, step)]
            return IsoTimes(self._stamps[start * self._width : stop * self._width], self._width)
        at = range(len(self))[index] * self._width
        return self._stamps[at : at + self._width].decode().replace(" ", "T")
