"""Lines in character cells: braille dots, two by four in a cell, or asterisks with --ascii."""

from __future__ import annotations

from collections.abc import Sequence

from tui.widgets.panel import Span

# By row and column within a cell, as Unicode has them.
DOTS = (
    (0x01, 0x08),
    (0x02, 0x10),
    (0x04, 0x20),
    (0x40, 0x80),
)
BRAILLE = 0x2800


class Raster:
    """`width` × `height` cells. Places are fractions of it, (0, 0) at the lower left; what lies outside is not drawn.

    Of lines that meet in a cell all dots are seen, in the style of the last one.
    """

    def __init__(self, width: int, height: int, *, ascii_only: bool = False) -> None:
        self._width, self._height = width, height
        self._ascii = ascii_only
        self._fine = (1, 1) if ascii_only else (2, 4)  # dots a cell
        self._dots = [0] * (width * height)
        self._styles = ["text"] * (width * height)

    def draw(self, places: Sequence[tuple[float, float]], style: str) -> None:
        """Join `places` by straight lines."""
        right, up = self._width * self._fine[0] - 1, self._height * self._fine[1] - 1
        before: tuple[int, int] | None = None
        for x, y in places:
            here = round(x * right), round((1 - y) * up)
            self._line(before or here, here, style)
            before = here

    def cells(self) -> list[list[Span]]:
        """Rows of cells, each a character and its style."""
        blank, base = " ", BRAILLE
        characters = [blank if not dots else "*" if self._ascii else chr(base + dots) for dots in self._dots]
        cells = list(zip(characters, self._styles, strict=True))
        width = self._width
        return [cells[row * width : (row + 1) * width] for row in range(self._height)]

    def _line(self, start: tuple[int, int], end: tuple[int, int], style: str) -> None:
        """All dots of a straight line, column by column."""
        (x0, y0), (x1, y1) = (start, end) if start[0] <= end[0] else (end, start)
        if x0 == x1:
            self._column(x0, y0, y1, style)
            return
        slope = (y1 - y0) / (x1 - x0)
        last = y0
        for x in range(x0, x1):
            following = round(y0 + slope * (x + 0.5 - x0))
            self._column(x, last, following, style)
            last = following
        self._column(x1, last, y1, style)

    def _column(self, x: int, y0: int, y1: int, style: str) -> None:
        across, down = self._fine
        if not 0 <= x < self._width * across:
            return
        low, high = (y0, y1) if y0 <= y1 else (y1, y0)
        column, bit = x // across, x % across
        for y in range(max(low, 0), min(high, self._height * down - 1) + 1):
            cell = y // down * self._width + column
            self._dots[cell] |= DOTS[y % down][bit]
            self._styles[cell] = style
