"""A command, word for word, before it runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from tui.widgets.clipboard import copy


class Confirm(ModalScreen[bool]):
    """True when the command shall run."""

    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm > VerticalScroll { width: 100; max-width: 94%; height: auto; max-height: 85%; border: round $primary; padding: 1 2; background: $surface; }
    Confirm Static { width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "answer(True)", "run it", id="confirm.yes", tooltip="Run this command"),
        Binding("y", "copy", "copy", id="confirm.copy", tooltip="Copy the command"),
        Binding(
            "escape,q", "answer(False)", "leave it", key_display="esc", id="confirm.no", tooltip="Run nothing"
        ),
    ]

    def __init__(self, title: str, words: str, argv: Sequence[str]) -> None:
        super().__init__()
        self._title, self._words, self._command = title, words, shlex.join(argv)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = self._title
            yield Static(Text(f"{self._words}\n"), markup=False)
            yield Static(Text(self._command, style="bold"), markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)

    def action_copy(self) -> None:
        self.notify(copy(self.app, self._command), markup=False)
