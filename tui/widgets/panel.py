"""A framed pane that writes only the rows that changed.

Over SSH every byte counts, and a calm screen is one that does not redraw what stayed the same. A border title of
Textual's repaints the whole widget when it changes; a `Panel` draws its frame itself and compares row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from tui.widgets.palette import palette_of

Span: TypeAlias = tuple[str, str]  # text, and what it means: a name of `palette.COLOURS`
Row: TypeAlias = tuple[Span, ...]


def fit(spans: Iterable[Span], width: int, fill: str = "text") -> Row:
    """`spans` cut and padded to exactly `width` cells; a wide character that would be halved becomes a blank."""
    result: list[Span] = []
    left = width
    for text, style in spans:
        if left <= 0:
            break
        size = cell_len(text)
        if size > left:
            text, size = set_cell_size(text, left), left
        if text:
            result.append((text, style))
            left -= size
    if left > 0:
        result.append((" " * left, fill))
    return tuple(result)


def width_of(spans: Iterable[Span]) -> int:
    """Cells that `spans` take."""
    return sum(cell_len(text) for text, _ in spans)


class Panel(Widget, can_focus=True):
    """A frame with a title, a note at its right, rows, and a foot. Subclasses give the contents.

    Lower than `FRAMED_FROM` rows there is no frame: every row is body.
    """

    DEFAULT_CSS = "Panel { width: 1fr; height: 1fr; background: $background; }"
    FRAMED_FROM = 3

    def __init__(
        self, *, id: str | None = None, classes: str | None = None, ascii_only: bool = False
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.ascii_only = ascii_only
        self._rows: list[Row] = []
        self._rows_for: Size | None = None  # the size for which they were composed

    # Given by subclasses.

    def title(self) -> tuple[Sequence[Span], Sequence[Span]]:
        """Left and right part of the frame's upper edge."""
        return (), ()

    def foot(self) -> Sequence[Span]:
        """The text in the frame's lower edge."""
        return ()

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        """Up to `height` rows of up to `width` cells. More is cut."""
        raise NotImplementedError

    # Drawing.

    @property
    def framed(self) -> bool:
        return self.size.height >= self.FRAMED_FROM

    @property
    def body_size(self) -> tuple[int, int]:
        """Columns and rows within the frame; a blank column on each side keeps the text off it."""
        width, height = self.size
        return (max(width - 4, 0), max(height - 2, 0)) if self.framed else (max(width - 2, 0), height)

    def show(self) -> None:
        """Draw again; only rows that changed are written."""
        if not self.is_mounted or not self.size:
            return
        before, resized = self._rows, self._rows_for != self.size
        self._arrange()
        if resized:
            self.refresh()
            return
        width = self.size.width
        changed = [y for y, (new, old) in enumerate(zip(self._rows, before, strict=True)) if new != old]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        if self._rows_for != self.size:
            self._arrange()  # the first paint comes before the first event that tells the size
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self.rich_style)
        styles = palette_of(self)
        strip = Strip([Segment(text, styles[name]) for text, name in self._rows[y]])
        return strip.adjust_cell_length(self.size.width, self.rich_style)

    def on_resize(self, event: events.Resize) -> None:
        if self._rows_for != self.size:
            self.show()

    def _arrange(self) -> None:
        self._rows, self._rows_for = self._compose_rows(), self.size

    def _compose_rows(self) -> list[Row]:
        inner, rows = self.body_size
        body = [fit(spans, inner) for spans in self.body(inner, rows)[:rows]]
        body += [fit((), inner)] * (rows - len(body))
        pad = (" ", "text")
        if not self.framed:
            return [(pad, *row, pad) for row in body]
        edge = "focus" if self.has_focus else "frame"
        glyphs = "++++-|" if self.ascii_only else "╭╮╰╯─│"
        left, right = self.title()
        side = (glyphs[5], edge)
        return [
            self._edge(left, right, glyphs[0], glyphs[1], glyphs[4], edge),
            *((side, pad, *row, pad, side) for row in body),
            self._edge(self.foot(), (), glyphs[2], glyphs[3], glyphs[4], edge),
        ]

    def _edge(
        self, left: Sequence[Span], right: Sequence[Span], start: str, end: str, line: str, edge: str
    ) -> Row:
        """A horizontal edge. If room is short, the right part is left out, then the last spans of the left; the first is cut."""
        room = self.size.width - 4
        left = list(left)
        while len(left) > 1 and width_of(left) + 2 > room:
            left.pop()
        left = [(" ", edge), *left, (" ", edge)] if left else []
        right = [(" ", edge), *right, (" ", edge)] if right else []
        if width_of(left) + width_of(right) > room:
            right = []
        if width_of(left) > room:
            left = [*fit(left, room - 1), (" ", edge)] if room > 1 else []
        fill = line * (room - width_of(left) - width_of(right))
        return ((start + line, edge), *left, (fill, edge), *right, (line + end, edge))
