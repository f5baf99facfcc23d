"""A plot as rows of cells: curves, marks, crosshair and axes. Pure functions of the data and the room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tui.widgets import axes
from tui.widgets.axes import Limits
from tui.widgets.curves import Mark, Trace
from tui.widgets.panel import Span
from tui.widgets.raster import Raster

GLYPHS: Mapping[str, str] = {
    "validation": "◇", "checkpoint": "▴", "restart": "┊", "branch": "╎", "value": "•", "cross": "│"
}  # fmt: skip
ASCII: Mapping[str, str] = {
    "validation": "o", "checkpoint": "^", "restart": ":", "branch": "!", "value": "*", "cross": "|"
}  # fmt: skip
MARK_STYLES: Mapping[str, str] = {
    "validation": "info", "checkpoint": "good", "restart": "warning", "branch": "info", "value": "curve"
}  # fmt: skip
LINES = ("restart", "branch")  # marks that are a line from top to foot


def draw(
    traces: Sequence[Trace], x: Limits, y: Limits, width: int, height: int, *, ascii_only: bool
) -> list[list[Span]]:
    """`height` rows of `width` cells: the curves alone."""
    raster = Raster(width, height, ascii_only=ascii_only)
    for trace in traces:
        raster.draw([(x.place(point[0]), y.place(point[1])) for point in trace.points], trace.style)
    return raster.cells()


def overlay(
    cells: list[list[Span]],
    marks: Sequence[Mark],
    crosshair: float | None,
    x: Limits,
    y: Limits,
    *,
    ascii_only: bool,
) -> None:
    """Draw `marks` and the crosshair (at an x) into `cells`. Lines never cover a curve."""
    glyphs = ASCII if ascii_only else GLYPHS
    height, width = len(cells), len(cells[0])

    def column(at: float) -> int | None:
        place = x.place(at)
        return round(place * (width - 1)) if 0 <= place <= 1 else None

    for mark in sorted(marks, key=lambda mark: mark.kind not in LINES):
        at = column(mark.x)
        if at is None:
            continue
        cell = (glyphs[mark.kind], MARK_STYLES[mark.kind])
        if mark.kind in LINES:
            for row in cells:
                if row[at][0] == " ":
                    row[at] = cell
            _write(cells[0], at + 1, mark.label)
        elif mark.y is None:
            if cells[-1][at][0] == " ":
                cells[-1][at] = cell
        elif 0 <= (place := y.place(mark.y)) <= 1:
            cells[round((1 - place) * (height - 1))][at] = cell
    if crosshair is not None and (at := column(crosshair)) is not None:
        for row in cells:
            row[at] = (glyphs["cross"], "focus") if row[at][0] == " " else (row[at][0], "match")


def _write(row: list[Span], start: int, text: str) -> None:
    """Write `text` if all its cells are blank."""
    place = slice(start, start + len(text))
    if start + len(text) <= len(row) and all(character == " " for character, _ in row[place]):
        row[place] = [(character, "dim") for character in text]


def with_y_axis(
    cells: Sequence[Sequence[Span]], labels: Sequence[str], y: Limits, gutter: int
) -> list[list[Span]]:
    """`cells` with the ticks' labels in `gutter` cells before them."""
    height = len(cells)
    at = {
        round((1 - y.place(tick)) * (height - 1)): label
        for tick, label in zip(y.ticks(), labels, strict=True)
    }
    return [[(at.get(row, "").rjust(gutter - 1) + " ", "dim"), *runs(line)] for row, line in enumerate(cells)]


def x_axis(x: Limits, labels: Sequence[str], gutter: int, canvas: int) -> list[Span]:
    """The row of tick labels below `canvas` cells; a label that would touch its neighbour is left out."""
    ticks = axes.inner_ticks(x)
    line = [" "] * (gutter + canvas)
    free, before = 0, ""
    for tick, label in zip(ticks, labels, strict=True):
        if label == before:
            continue  # ticks within one second
        before = label
        middle = gutter + round(x.place(tick) * (canvas - 1))
        start = min(max(middle - len(label) // 2, 0), len(line) - len(label))
        if start >= free:
            line[start : start + len(label)] = label
            free = start + len(label) + 2
    return [("".join(line), "dim")]


def runs(cells: Sequence[Span]) -> list[Span]:
    """Join neighbouring cells of one style into a span, which saves escape codes. A blank takes any style."""
    found: list[Span] = []
    text, style = "", ""
    for character, own in cells:
        if own != style and character != " ":
            if text:
                found.append((text, style or "text"))
            text, style = character, own
        else:
            text += character
    return [*found, (text, style or "text")] if text else found
