"""Edits a command, several commands or a batch script before they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static, TextArea

from backends.errors import UserError
from tui.screens.dialog import Dialog


class EditCommand(Dialog[str | None]):
    """Returns the text to run, or None. `check` raises UserError for a text that cannot run."""

    READS = False
    DEFAULT_CSS = """
    EditCommand > #box { width: 96%; max-width: 96%; height: 90%; max-height: 90%; padding: 0 1; }
    EditCommand TextArea, EditCommand TextArea:focus { height: 1fr; border: none; background: $surface; }
    EditCommand #wrong { height: auto; max-height: 4; color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j", "accept", "use this", id="edit.accept", tooltip="Use this text; nothing starts yet", priority=True),
        Binding("escape", "dismiss(None)", "leave", key_display="esc", id="edit.leave", tooltip="Change nothing", priority=True),
    ]  # fmt: skip

    def __init__(
        self, text: str, check: Callable[[str], object], title: str = "the command, word for word"
    ) -> None:
        super().__init__(title)
        self._text = text
        self._check = check

    def content(self) -> Iterable[Widget]:
        area = TextArea(self._text, soft_wrap=True, tab_behavior="indent")
        area.cursor_blink = False
        yield area
        yield Static("", id="wrong", markup=False)

    def action_accept(self) -> None:
        text = self.query_one(TextArea).text
        try:
            self._check(text)
        except UserError as error:
            self.query_one("#wrong", Static).update(str(error))
        else:
            self.dismiss(text)
