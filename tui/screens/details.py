"""Shows a whole text, such as an alert, an error or a line of the log. It can be scrolled and copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from tui.screens.dialog import Dialog
from tui.widgets.clipboard import copy


class Details(Dialog[None]):
    """`text` is never read as markup. `worth_copying`: the part that is copied instead of all."""

    DEFAULT_CSS = """
    Details > #box { width: 80%; max-width: 110; max-height: 80%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "dismiss(None)", "close", key_display="esc", id="details.close", tooltip="Close this window"),
        Binding("y", "copy", "copy", id="details.copy", tooltip="Copy this text"),
    ]  # fmt: skip

    def __init__(self, title: str, text: str, worth_copying: str | None = None) -> None:
        super().__init__(title)
        self._text = text
        self._copied = text if worth_copying is None else worth_copying

    def content(self) -> Iterable[Widget]:
        yield Static(Text(self._text), markup=False)

    def action_copy(self) -> None:
        copy(self.app, self._copied)
