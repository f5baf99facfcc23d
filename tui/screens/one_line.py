"""One line of text that is asked for: a path, a name."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui.widgets.key_line import KeyLine


class OneLine(ModalScreen[str | None]):
    """Returns what was written, or None."""

    DEFAULT_CSS = """
    OneLine { align: center middle; }
    OneLine > Vertical { width: 76; max-width: 94%; height: auto; border: round $primary; padding: 1 2; background: $surface; }
    OneLine Input, OneLine Input:focus { border: none; height: 1; padding: 0 1; background: $panel; }
    OneLine Static { color: $foreground 55%; padding-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "this", id="line.take", tooltip="Take what is written", priority=True),
        Binding("escape", "dismiss(None)", "leave", key_display="esc", id="line.leave", tooltip="Change nothing"),
    ]  # fmt: skip

    def __init__(self, title: str, note: str, text: str = "") -> None:
        super().__init__()
        self._title, self._note, self._text = title, note, text

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Text(self._title)  # pyright: ignore[reportAttributeAccessIssue]
            field = Input(self._text)
            field.cursor_blink = False
            yield field
            yield Static(self._note, markup=False)
        yield KeyLine()

    def action_take(self) -> None:
        # The key comes here at once, what was typed or pasted before it may still wait for the field.
        self.query_one(Input).call_later(self._take)

    def _take(self) -> None:
        if text := self.query_one(Input).value.strip():
            self.dismiss(text)
