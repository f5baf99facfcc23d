"""Before something long, large or final: what it means and the commands, word for word; and a field to edit them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static, TextArea

from backends.errors import UserError
from backends.setup.command_text import command_text, read_commands
from backends.setup.step import Action
from backends.text import clean
from tui.screens.dialog import Dialog
from tui.widgets.clipboard import copy


class CommandsQuestion(Dialog[bool]):
    """True when it is to be done. `words` says what it means."""

    DEFAULT_CSS = """
    CommandsQuestion > #box { width: 100; border: round $warning; }
    CommandsQuestion #commands { color: $foreground 70%; }
    CommandsQuestion:ansi #commands { color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "answer(True)", "do it", id="question.yes", tooltip="Do what is shown"),
        Binding("y", "copy", "copy", id="question.copy", tooltip="Copy the commands"),
        Binding("escape,q", "answer(False)", "leave it", key_display="esc", id="question.no", tooltip="Do nothing"),
    ]  # fmt: skip

    def __init__(self, title: str, words: str, actions: Sequence[Action] = ()) -> None:
        super().__init__(title)
        self._words = words
        self._commands = clean(command_text(actions))

    def content(self) -> Iterable[Widget]:
        yield Static(Text(clean(self._words)), markup=False)
        if self._commands:
            yield Static(Text(f"\n{self._commands}"), id="commands", markup=False)

    def action_answer(self, wanted: bool) -> None:
        self.dismiss(wanted)

    def action_copy(self) -> None:
        copy(self.app, self._commands)


class EditCommands(Dialog[list[Action] | None]):
    """The commands as text that may be changed; returns those to run, or None."""

    READS = False
    DEFAULT_CSS = """
    EditCommands > #box { width: 96%; max-width: 96%; height: 80%; padding: 0; }
    EditCommands TextArea, EditCommands TextArea:focus { border: none; height: 1fr; background: $surface; }
    EditCommands #refusal { color: $text-error; height: auto; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "run", "run it", id="edit.run", tooltip="Run the commands as they are now", priority=True),
        Binding("escape", "leave", "leave it", key_display="esc", id="edit.leave", tooltip="Run nothing", priority=True),
    ]  # fmt: skip

    def __init__(self, title: str, actions: Sequence[Action], folder: Path) -> None:
        super().__init__(f"{title}: a line is a command; there is no shell")
        self._text = clean(command_text(actions))
        self._folder = folder

    def content(self) -> Iterable[Widget]:
        field = TextArea(self._text, soft_wrap=True, highlight_cursor_line=False)
        field.cursor_blink = False
        yield field
        yield Static("", id="refusal", markup=False)

    def action_run(self) -> None:
        try:
            self.dismiss(read_commands(self.query_one(TextArea).text, self._folder))
        except UserError as error:
            self.query_one("#refusal", Static).update(Text(clean(str(error))))

    def action_leave(self) -> None:
        self.dismiss(None)
