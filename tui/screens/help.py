"""What the keys of a screen do, from its own bindings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.binding import ActiveBinding, Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from tui.screens.dialog import Dialog


class HelpScreen(Dialog[None]):
    """`bindings` as the screen has them at this moment, the focused pane's first; those of mdk-tui have an id."""

    DEFAULT_CSS = """
    HelpScreen > #box { width: 76; max-width: 96%; max-height: 90%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "close", key_display="esc", id="help.close", tooltip="Back to the screen"),
    ]  # fmt: skip

    def __init__(self, title: str, bindings: Iterable[ActiveBinding]) -> None:
        super().__init__(f"{title}: keys")
        self._keys = list(bindings)

    def content(self) -> Iterable[Widget]:
        yield Static(self._table())

    def _table(self) -> Table:
        keys: dict[str, list[str]] = {}
        words: dict[str, str] = {}
        for active in self._keys:
            binding = active.binding
            if not binding.id or not active.enabled:
                continue
            keys.setdefault(binding.id, []).append(self.app.get_key_display(binding))
            words[binding.id] = binding.tooltip or binding.description
        table = Table.grid(padding=(0, 2))
        # The screen's own first, the ways about last.
        for name in sorted(keys, key=lambda name: name.startswith("app.")):
            table.add_row(Text(" ".join(dict.fromkeys(keys[name])), style="bold"), Text(words[name]))
        return table
