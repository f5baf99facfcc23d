"""A list with one marked row. Only rows that changed are written, so an unchanged list costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from tui.widgets.panel import Panel, Span, fit, width_of


@dataclass(frozen=True, slots=True)
class ListRow:
    """`key` identifies the row; a row with an empty key cannot be marked (a heading, a blank)."""

    key: str
    spans: tuple[Span, ...]


class Listing(Panel):
    """`update` brings new rows; the marked one stays marked by its key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", id="list.up", tooltip="Go up or down", show=False),
        Binding("down,j", "move(1)", "down", id="list.down", tooltip="Go up or down", show=False),
        Binding(
            "pageup", "page(-1)", "page up", id="list.page_up", tooltip="Go up or down by a page", show=False
        ),
        Binding(
            "pagedown",
            "page(1)",
            "page down",
            id="list.page_down",
            tooltip="Go up or down by a page",
            show=False,
        ),
        Binding(
            "home,g",
            "end(0)",
            "first",
            id="list.first",
            tooltip="Go to the first or the last row",
            show=False,
        ),
        Binding(
            "end,G", "end(-1)", "last", id="list.last", tooltip="Go to the first or the last row", show=False
        ),
    ]
    FRAMED_FROM = 1 << 16  # a list has the screen for itself: no frame

    class Marked(Message):
        """Another row is marked: `key`, or None when there is none."""

        def __init__(self, key: str | None) -> None:
            self.key = key
            super().__init__()

    def __init__(self, *, id: str | None = None, ascii_only: bool = False, empty: str = "") -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self.empty = empty
        self.rows: Sequence[ListRow] = ()
        self.marked: str | None = None
        self._top = 0

    def update(self, rows: Sequence[ListRow]) -> None:
        places = {row.key: at for at, row in enumerate(self.rows) if row.key}
        keys = [row.key for row in rows if row.key]
        marked = self.marked
        if marked not in keys:
            at = min(places.get(marked or "", 0), len(keys) - 1)
            marked = keys[at] if keys else None
        self.rows = rows
        self._mark(marked)

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        if not self.rows:
            return [[(self.empty, "dim")]]
        at = next((i for i, row in enumerate(self.rows) if row.key and row.key == self.marked), 0)
        # The heading above the first row that can be marked is shown with it.
        first = next((i for i, row in enumerate(self.rows) if row.key), 0)
        wanted = 0 if at == first else at
        self._top = max(min(self._top, wanted, len(self.rows) - 1), at - height + 1, 0)
        shown = self.rows[self._top : self._top + height]
        return [self._drawn(row, width) for row in shown]

    def _drawn(self, row: ListRow, width: int) -> Sequence[Span]:
        spans: Sequence[Span] = row.spans
        if width_of(spans) > width > 1:
            spans = [*fit(spans, width - 1), (">" if self.ascii_only else "…", "dim")]
        if not row.key or row.key != self.marked:
            return spans
        return fit([(text, "selected") for text, _ in spans], width, "selected")

    def action_move(self, step: int) -> None:
        keys = [row.key for row in self.rows if row.key]
        if keys:
            at = keys.index(self.marked) if self.marked in keys else 0
            self._mark(keys[min(max(at + step, 0), len(keys) - 1)])

    def action_page(self, direction: int) -> None:
        self.action_move(direction * max(self.body_size[1] - 1, 1))

    def action_end(self, place: int) -> None:
        keys = [row.key for row in self.rows if row.key]
        if keys:
            self._mark(keys[place])

    def mark(self, key: str) -> None:
        """Mark the row `key`, if there is one."""
        if any(row.key == key for row in self.rows):
            self._mark(key)

    def _mark(self, key: str | None) -> None:
        if key != self.marked:
            self.marked = key
            self.post_message(self.Marked(key))
        self.show()
