"""The command, to be changed by hand before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from backends.errors import UserError
from tui.widgets.key_line import KeyLine


class EditCommand(ModalScreen[str | None]):
    """Returns the text as it is to run, or None. `check` raises UserError for one that cannot."""

    DEFAULT_CSS = """
    EditCommand { align: center middle; }
    EditCommand > Vertical { width: 96%; height: 90%; border: round $primary; padding: 0 1; background: $surface; }
    EditCommand TextArea, EditCommand TextArea:focus { height: 1fr; border: none; background: $surface; }
    EditCommand #wrong { height: auto; max-height: 4; color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j", "accept", "use this", id="edit.accept", tooltip="This is what is to run; it is not started yet", priority=True),
        Binding("escape", "dismiss(None)", "leave", key_display="esc", id="edit.leave", tooltip="Change nothing", priority=True),
    ]  # fmt: skip

    def __init__(self, text: str, check: Callable[[str], object]) -> None:
        super().__init__()
        self._text = text
        self._check = check

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Text("the command, word for word")  # pyright: ignore[reportAttributeAccessIssue]
            area = TextArea(self._text, soft_wrap=True, tab_behavior="indent")
            area.cursor_blink = False
            yield area
            yield Static("", id="wrong", markup=False)
        yield KeyLine()

    def action_accept(self) -> None:
        text = self.query_one(TextArea).text
        try:
            self._check(text)
        except UserError as error:
            self.query_one("#wrong", Static).update(str(error))
        else:
            self.dismiss(text)
