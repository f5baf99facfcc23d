"""A text, whole: an alert, an error, a line of the log. It can be scrolled and copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static


class Details(ModalScreen[None]):
    """`text` as it is, never as markup. `copy` does the copying."""

    DEFAULT_CSS = """
    Details { align: center middle; }
    Details > VerticalScroll {
        width: 80%; max-width: 110; height: auto; max-height: 80%;
        border: round $primary; padding: 1 2; background: $surface;
    }
    Details Static { width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,enter,q",
            "close",
            "close",
            key_display="esc",
            id="details.close",
            tooltip="Back to the monitor",
        ),
        Binding("y", "copy", "copy", id="details.copy", tooltip="Copy this text"),
    ]

    def __init__(self, title: str, text: str, copy: Callable[[str], None]) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._copy = copy

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = Text(self._title)  # pyright: ignore[reportAttributeAccessIssue]
            yield Static(Text(self._text), markup=False)
        yield Footer()

    def action_close(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        self._copy(self._text)
