"""Asks for one of several, by arrow keys or by typing part of its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from tui.screens.dialog import Dialog


@dataclass(frozen=True, slots=True)
class Choice:
    """`key` is what is returned; `label` and `note` are shown, as plain text."""

    key: str
    label: str
    note: str = ""


class Chooser(Dialog[str | None]):
    """Returns the key of what was chosen, or None."""

    READS = False
    DEFAULT_CSS = """
    Chooser > #box { width: 64; max-width: 90%; max-height: 80%; padding: 0; }
    Chooser Input, Chooser Input:focus { border: none; height: 1; padding: 0 1; background: $surface; }
    Chooser OptionList, Chooser OptionList:focus { border: none; height: auto; max-height: 16; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "cancel", key_display="esc", id="choose.cancel", tooltip="Change nothing"),
        Binding("up", "move(-1)", "up", id="choose.up", tooltip="Mark the entry above", show=False, priority=True),
        Binding("down", "move(1)", "down", id="choose.down", tooltip="Mark the entry below", show=False, priority=True),
        Binding("enter", "take", "choose", id="choose.take", tooltip="Choose the marked entry", priority=True),
    ]  # fmt: skip

    def __init__(self, title: str, choices: Sequence[Choice], current: str = "") -> None:
        super().__init__(title)
        self._choices = list(choices)
        self._current = current

    def content(self) -> Iterable[Widget]:
        field = Input(placeholder="type to narrow down")
        field.cursor_blink = False
        yield field
        yield OptionList(markup=False)

    def on_mount(self) -> None:
        self._list("")
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._list(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index])

    def _list(self, wanted: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        shown = [choice for choice in self._choices if wanted.casefold() in choice.label.casefold()]
        # By place and not by option id: the name of a metric may be any text.
        self._shown = [choice.key for choice in shown]
        options.add_options([Option(Text.assemble(c.label, ("  " + c.note, "dim"))) for c in shown])
        if shown:
            options.highlighted = self._shown.index(self._current) if self._current in self._shown else 0

    def action_move(self, step: int) -> None:
        options = self.query_one(OptionList)
        if options.option_count:
            options.highlighted = ((options.highlighted or 0) + step) % options.option_count

    def action_take(self) -> None:
        marked = self.query_one(OptionList).highlighted
        if marked is not None:
            self.dismiss(self._shown[marked])
