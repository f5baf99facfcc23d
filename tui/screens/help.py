"""What the keys of a screen do, from its own bindings."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static


class HelpScreen(ModalScreen[None]):
    """Lists the bindings of `about` and of the application, each key once."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 72; max-width: 96%; height: auto; max-height: 90%; border: round $primary; padding: 1 2; background: $surface; }
    HelpScreen Static { width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,q,question_mark", "dismiss", "close", key_display="esc", id="help.close", tooltip="Back"
        ),
    ]

    def __init__(self, about: Screen[Any]) -> None:
        super().__init__()
        self._about = about

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Keys"
            yield Static(self._table())

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        seen: set[str] = set()
        for active in self._about.active_bindings.values():
            binding = active.binding
            words = binding.tooltip or binding.description
            if not binding.id or not words or binding.action in seen:  # Textual's own bindings have no id
                continue
            seen.add(binding.action)
            key = self.app.get_key_display(binding)
            table.add_row(Text(key, style="bold"), Text(words))
        return table
