"""A resumption in lines of text: why this checkpoint, and how the arguments differ from those stored in it."""

from __future__ import annotations

from backends.runs.difference import VERDICTS
from backends.runs.resuming import Resumption
from backends.text import clean_line

NOT_COMPARED = "The arguments stored in the checkpoint cannot be read, so they are not compared."
REBUILT = "No run of this workspace wrote this checkpoint, so its flags are read from inside it."
CELL = 28  # characters of a value in the table


def resumption_lines(resumption: Resumption) -> list[str]:
    """All that the user should know before it starts."""
    why = [clean_line(resumption.source.why)] if resumption.source.why else []
    return [*why, *([REBUILT] if resumption.rebuilt else []), *difference_lines(resumption)]


def difference_lines(resumption: Resumption) -> list[str]:
    """The differing arguments as a table; one line where there are none."""
    if resumption.compared_with is None:
        return [NOT_COMPARED]
    if not resumption.differences:
        return [f"The arguments are those of {clean_line(resumption.compared_with)}."]
    rows = [
        (clean_line(d.flag, 60), clean_line(d.stored, CELL), clean_line(d.planned, CELL), VERDICTS[d.verdict])
        for d in resumption.differences
    ]
    head, *cells = columns([("ARGUMENT", "STORED", "NOW", "VERDICT"), *rows])
    lines = [head]
    for row, difference in zip(cells, resumption.differences, strict=True):
        lines += [row, f"    {clean_line(f'{difference.message} {difference.remedy}'.strip(), 400)}"]
    return lines


def columns(rows: list[tuple[str, str, str, str]]) -> list[str]:
    """`rows` with their cells aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
