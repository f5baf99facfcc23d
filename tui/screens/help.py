"""What the keys of a screen do, read from its bindings."""

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
    """`bindings` are those that are active now, the focused pane's first. The bindings of mdk-tui have an id.

    Bindings with the same explanation (left and right) share one row.
    """

    DEFAULT_CSS = """
    HelpScreen > #box { width: 78; max-width: 100%; max-height: 100%; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "close", key_display="esc", id="help.close", tooltip="Back to the screen"),
    ]  # fmt: skip

    def __init__(self, title: str, bindings: Iterable[ActiveBinding]) -> None:
        super().__init__(f"Keys: {title}" if title else "Keys")
        self._keys = list(bindings)

    def content(self) -> Iterable[Widget]:
        keys: dict[tuple[bool, str], list[str]] = {}
        for active in self._keys:
            binding = active.binding
            if binding.id and active.enabled:
                row = binding.id.startswith("app."), binding.tooltip or binding.description
                keys.setdefault(row, []).append(self.app.get_key_display(binding))
        table = Table.grid(padding=(0, 2))
        for everywhere, heading in ((False, "this screen"), (True, "every screen")):
            table.add_row("", Text(heading, style="dim"))
            for (app_wide, words), names in keys.items():
                if app_wide is everywhere:
                    table.add_row(Text(_together(list(dict.fromkeys(names))), style="bold"), Text(words))
        yield Static(table)


def _together(keys: list[str]) -> str:
    return " ".join(keys) if len(keys) <= 4 else f"{keys[0]} to {keys[-1]}"
