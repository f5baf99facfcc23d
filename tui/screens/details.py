"""A text, whole: an alert, an error, a line of the log. It can be scrolled and copied."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.widgets.clipboard import copy
from tui.widgets.key_line import KeyLine


class Details(ModalScreen[None]):
    """`text` as it is, never as markup. `worth_copying`: the part of it that is copied, instead of all."""

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

    def __init__(self, title: str, text: str, worth_copying: str | None = None) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._copied = text if worth_copying is None else worth_copying

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = Text(self._title)  # pyright: ignore[reportAttributeAccessIssue]
            yield Static(Text(self._text), markup=False)
        yield KeyLine()

    def action_close(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        copy(self.app, self._copied)
