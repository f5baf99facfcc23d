"""One row of words that is drawn again only when they change."""

from __future__ import annotations

from tui.widgets.panel import Panel, Span


class Line(Panel, can_focus=False):
    DEFAULT_CSS = "Line { height: 1; }"

    def __init__(self, *, id: str | None = None, ascii_only: bool = False) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._spans: tuple[Span, ...] = ()

    def update(self, *spans: Span) -> None:
        self._spans = spans
        self.show()

    def body(self, width: int, height: int) -> list[tuple[Span, ...]]:
        return [self._spans]
