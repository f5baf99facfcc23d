"""Asks for one line of text, such as a path or a name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, Static

from tui.screens.dialog import Dialog


class OneLine(Dialog[str | None]):
    """Returns what was written, or None."""

    READS = False
    DEFAULT_CSS = """
    OneLine > #box { width: 76; }
    OneLine Input, OneLine Input:focus { border: none; height: 1; padding: 0 1; background: $panel; }
    OneLine Static { color: $foreground 55%; padding-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "this", id="line.take", tooltip="Use this text", priority=True),
        Binding("escape", "dismiss(None)", "leave", key_display="esc", id="line.leave", tooltip="Change nothing"),
    ]  # fmt: skip

    def __init__(self, title: str, note: str, text: str = "") -> None:
        super().__init__(title)
        self._note, self._text = note, text

    def content(self) -> Iterable[Widget]:
        field = Input(self._text)
        field.cursor_blink = False
        yield field
        yield Static(self._note, markup=False)

    def action_take(self) -> None:
        # The key arrives at once, but text that was typed or pasted before it may still be on its way to the field.
        self.query_one(Input).call_later(self._take)

    def _take(self) -> None:
        if text := self.query_one(Input).value.strip():
            self.dismiss(text)
