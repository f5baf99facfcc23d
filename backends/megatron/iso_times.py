"""Columns of time stamps, made ISO when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload


class IsoTimes(Sequence["str | None"]):
    """Time stamps as they stand in the log, all of one width, made ISO when asked for."""

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
