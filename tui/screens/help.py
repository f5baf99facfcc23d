"""What the keys of a screen do, from its own bindings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.widgets.key_line import KeyLine


class HelpScreen(ModalScreen[None]):
    """`bindings` as the screen has them at this moment, the focused pane's first; those of mdk-tui have an id."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 76; max-width: 96%; height: auto; max-height: 90%; border: round $primary; padding: 1 2; background: $surface; }
    HelpScreen Static { width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "close", key_display="esc", id="help.close", tooltip="Back to the screen"),
    ]  # fmt: skip

    def __init__(self, title: str, bindings: Iterable[ActiveBinding]) -> None:
        super().__init__()
        self._title = title
        self._keys = list(bindings)

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = Text(f"{self._title}: keys")  # pyright: ignore[reportAttributeAccessIssue]
            yield Static(self._table())
        yield KeyLine()

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
