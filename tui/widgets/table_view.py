"""A table that compares things: names of values at the left, one column for each thing, and rows that can be scrolled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from tui.widgets.panel import Panel, Span, fit

GAP = 2  # cells between columns
NARROWEST = 10  # cells a column has at least


@dataclass(frozen=True, slots=True)
class TableRow:
    """`name`, then a cell each."""

    name: str
    cells: tuple[Span, ...]


class TableView(Panel):
    """`head` are the columns' own names (coloured as their curves); columns that do not fit come with ← and →."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", id="table.up", tooltip="Scroll up or down", show=False),
        Binding("down,j", "move(1)", "down", id="table.down", tooltip="Scroll up or down", show=False),
        Binding("pageup", "move(-10)", "page up", id="table.page_up", tooltip="Scroll by ten rows", show=False),
        Binding("pagedown", "move(10)", "page down", id="table.page_down", tooltip="Scroll by ten rows", show=False),
        Binding("left", "column(-1)", "columns", key_display="←→", id="table.left", tooltip="Show other columns"),
        Binding("right", "column(1)", "columns", key_display="←→", id="table.right", tooltip="Show other columns", show=False),
    ]  # fmt: skip

    def __init__(
        self, heading: str, *, id: str | None = None, ascii_only: bool = False, empty: str = ""
    ) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._heading = heading
        self._empty = empty
        self._head: Sequence[Span] = ()
        self._table: Sequence[TableRow] = ()
        self._top = self._left = 0

    def update(self, head: Sequence[Span], rows: Sequence[TableRow]) -> None:
        self._head, self._table = head, rows
        self.show()

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        hidden = len(self._table) - max(self.body_size[1] - 1, 0)
        more: list[Span] = [(f"{len(self._table)} rows", "dim")] if hidden > 0 else []
        return [(self._heading, "title")], more

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        if not self._table:
            return [[(self._empty, "dim")]]
        self._top = max(min(self._top, len(self._table) - height + 1), 0)
        names = min(max(cell_len(row.name) for row in self._table), max(width // 3, 6))
        head, size = self._columns(width - names)
        sign = "-- " if self.ascii_only else "━━ "  # a piece of its curve
        named = [(sign + shortened(text, size - len(sign)).strip(), style) for text, style in head]
        rows = [self._line("", "dim", named, names, size)]
        for row in self._table[self._top : self._top + height - 1]:
            rows.append(self._line(row.name, "dim", row.cells[self._left :], names, size))
        return rows

    def _columns(self, width: int) -> tuple[Sequence[Span], int]:
        """The columns that are shown, and the width of each: all alike, as wide as there is room and need for."""
        fitting = max(width // (NARROWEST + GAP), 1)
        self._left = max(min(self._left, len(self._head) - fitting), 0)
        shown = self._head[self._left : self._left + fitting]
        cells = [*self._head, *(cell for row in self._table for cell in row.cells)]
        longest = max(cell_len(text) for text, _ in cells) + 3
        return shown, max(min(width // max(len(shown), 1) - GAP, longest), 1)

    def _line(self, name: str, style: str, cells: Sequence[Span], names: int, size: int) -> list[Span]:
        line = [*fit([(name, style)], names)]
        for text, cell_style in cells:
            line += [(" " * GAP, "text"), (shortened(text, size), cell_style)]
        return line

    def action_move(self, step: int) -> None:
        self._top = max(self._top + step, 0)
        self.show()

    def action_column(self, step: int) -> None:
        self._left = max(self._left + step, 0)
        self.show()


def shortened(text: str, width: int) -> str:
    """The end of `text`, where paths and runs differ, at the right of `width` cells."""
    if cell_len(text) > width:
        while text and cell_len(text) > width - 2:
            text = text[1:]
        text = f"..{text}"
    return " " * (width - cell_len(text)) + text
