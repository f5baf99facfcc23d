"""The last line: the keys that work now, in one widget (one widget for each key is slow on a screen with thirty keys).

Keys without room are left out, but never help, which lists all of them, and quit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from textual import events
from textual.screen import Screen

from tui.glyphs import plain_key
from tui.widgets.panel import Panel, Span

GAP = 2  # cells between two keys


@dataclass(frozen=True, slots=True)
class Key:
    """`key` is what is pressed, `display` how that is written; `enabled`: whether it does something now."""

    key: str
    display: str
    description: str
    enabled: bool = True
    keep: bool = False

    @property
    def width(self) -> int:
        return cell_len(self.display) + 1 + cell_len(self.description)


def arranged(keys: Sequence[Key], width: int) -> list[tuple[int, Key]]:
    """(column, key) of those that have room in `width` cells, in their order; `keep` goes before the others."""
    room = width - sum(key.width + GAP for key in keys if key.keep) + GAP
    shown: list[Key] = []
    for key in keys:
        if key.keep:
            shown.append(key)
        elif key.width + GAP <= room:
            shown.append(key)
            room -= key.width + GAP
    placed: list[tuple[int, Key]] = []
    column = 0
    for key in shown:
        placed.append((column, key))
        column += key.width + GAP
    return [(at, key) for at, key in placed if at + key.width <= width]


class KeyLine(Panel, can_focus=False):
    """One row at the bottom, always that of the screen's active bindings. A click presses the key."""

    DEFAULT_CSS = "KeyLine { height: 1; dock: bottom; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys: Sequence[Key] = ()

    def on_mount(self) -> None:
        self.ascii_only = self.app.has_class("-ascii")
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        # Nothing is announced to a line that a screen composed anew.
        self.call_after_refresh(self._bindings_changed, self.screen)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _bindings_changed(self, screen: Screen[Any]) -> None:
        if not self.is_attached or not self.app.app_focus or screen is not self.screen:
            return
        seen: dict[str, Key] = {}
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.show:
                words = self.app.get_key_display(binding), binding.description
                display, description = map(plain_key, words) if self.ascii_only else words
                keep = binding.action in ("help", "quit", "app.help", "app.quit")
                seen.setdefault(binding.action, Key(binding.key, display, description, active.enabled, keep))
        self._keys = tuple(seen.values())
        self.show()

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        row: list[Span] = []
        end = 0
        for column, key in arranged(self._keys, width):
            row.append((" " * (column - end), "text"))
            style = ("focus", "dim") if key.enabled else ("frame", "frame")
            row += [(key.display, style[0]), (f" {key.description}", style[1])]
            end = column + key.width
        return [row]

    def on_click(self, event: events.Click) -> None:
        for column, key in arranged(self._keys, self.body_size[0]):
            if column <= event.x - 1 < column + key.width:
                self.app.simulate_key(key.key)
