"""A framed pane of paragraphs, wrapped to its width and scrolled by keys; only rows that changed are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from textual import events
from textual.binding import Binding, BindingType

from tui.widgets.panel import Panel, Span


class TextPane(Panel):
    """`update` brings new paragraphs. A pane that `follows` shows their end until it is scrolled up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_rows(-1)", "up", id="text.up", tooltip="Scroll up or down", show=False),
        Binding("down,j", "scroll_rows(1)", "down", id="text.down", tooltip="Scroll up or down", show=False),
        Binding("pageup", "scroll_pages(-1)", "page up", id="text.page_up", tooltip="Scroll by a page", show=False),
        Binding("pagedown", "scroll_pages(1)", "page down", id="text.page_down", tooltip="Scroll by a page", show=False),
        Binding("home,g", "scroll_to(0)", "first", id="text.first", tooltip="Go to the beginning or the end", show=False),
        Binding("end,G", "scroll_to(-1)", "last", id="text.last", tooltip="Go to the beginning or the end", show=False),
    ]  # fmt: skip

    def __init__(self, *, id: str | None = None, ascii_only: bool = False, follows: bool = False) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._head: Sequence[Span] = ()
        self._note: Sequence[Span] = ()
        self._keys: Sequence[Span] = ()
        self._paragraphs: Sequence[Span] = ()
        self._follows = follows
        self._at_end = follows
        self._top = 0

    def update(
        self,
        head: Sequence[Span],
        paragraphs: Sequence[Span],
        note: Sequence[Span] = (),
        keys: Sequence[Span] = (),
    ) -> None:
        """A paragraph is one text in one style. `head` and `note` are the left and right of the upper edge, `keys` of the lower."""
        self._head, self._paragraphs, self._note, self._keys = head, paragraphs, note, keys
        self.show()

    def back_to_start(self) -> None:
        """What is shown from now on is about something else."""
        self._top, self._at_end = 0, self._follows

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        return self._head, self._note

    def foot(self) -> Sequence[Span]:
        rows, height = len(self._wrapped(self.body_size[0])), self.body_size[1]
        if rows <= height:
            return self._keys
        place = f"rows {self._top + 1} to {min(self._top + height, rows)} of {rows}"
        return (*self._keys, ("   " if self._keys else "", "dim"), (place, "dim"))

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        rows = self._wrapped(width)
        last = max(len(rows) - height, 0)
        self._top = last if self._at_end else min(self._top, last)
        return [[row] for row in rows[self._top : self._top + height]]

    def _wrapped(self, width: int) -> list[Span]:
        return [(row, style) for text, style in self._paragraphs for row in wrap(text, width)]

    def action_scroll_rows(self, step: int) -> None:
        last = max(len(self._wrapped(self.body_size[0])) - self.body_size[1], 0)
        self._top = min(max(self._top + step, 0), last)
        self._at_end = self._follows and self._top == last
        self.show()

    def action_scroll_pages(self, step: int) -> None:
        self.action_scroll_rows(step * max(self.body_size[1] - 1, 1))

    def action_scroll_to(self, place: int) -> None:
        self.action_scroll_rows(-(10**9) if place == 0 else 10**9)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_scroll_rows(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_scroll_rows(3)


def wrap(text: str, width: int) -> list[str]:
    """`text` in rows of at most `width` cells, broken at blanks where there are any; newlines and indents are kept."""
    rows: list[str] = []
    for line in text.split("\n"):
        rows += _wrap_line(line, max(width, 1))
    return rows


def _wrap_line(line: str, width: int) -> list[str]:
    if cell_len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())][: width // 2]
    rows: list[str] = []
    row = indent
    for word in line.split():
        joined = f"{row} {word}" if row.strip() else f"{row}{word}"
        if cell_len(joined) <= width:
            row = joined
            continue
        if row.strip():
            rows.append(row)
        *whole, row = chop_cells(word, max(width - len(indent), 1))
        rows += [indent + piece for piece in whole]
        row = indent + row
    return [*rows, row]
