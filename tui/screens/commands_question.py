"""Asks before something long, large or final: shows what it means and the commands, word for word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from backends.setup.command_text import command_text
from backends.setup.step import Action
from backends.text import clean
from tui.screens.dialog import Dialog
from tui.widgets.clipboard import copy


class CommandsQuestion(Dialog[bool]):
    """Returns True to do it. `words` says what it means."""

    DEFAULT_CSS = """
    CommandsQuestion > #box { width: 100; border: round $warning; }
    CommandsQuestion #commands { color: $foreground 70%; }
    CommandsQuestion:ansi #commands { color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "dismiss(True)", "do it", id="question.yes", tooltip="Do what is shown"),
        Binding("y", "copy", "copy", id="question.copy", tooltip="Copy the commands"),
        Binding("escape,q", "dismiss(False)", "leave it", key_display="esc", id="question.no", tooltip="Do nothing"),
    ]  # fmt: skip

    def __init__(self, title: str, words: str, actions: Sequence[Action] = ()) -> None:
        super().__init__(title)
        self._words = words
        self._commands = clean(command_text(actions))

    def content(self) -> Iterable[Widget]:
        yield Static(Text(clean(self._words)), markup=False)
        if self._commands:
            yield Static(Text(f"\n{self._commands}"), id="commands", markup=False)

    def action_copy(self) -> None:
        copy(self.app, self._commands)
