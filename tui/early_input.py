"""Handles keys and pastes one after the other, so that input typed before a screen exists reaches that screen.

Textual sends a key to the focused widget, from where it bubbles through every parent before the application checks its
own bindings. Keys that are typed quickly overtake this: those typed after the digit of a screen would still go to the
previous screen, or to a screen that has neither children nor focus yet.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from weakref import WeakSet

from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.screen import Screen

# s that a key waits at most for the previous one: a widget on the path of that one may have been removed.
LIMIT = 0.5
LAPS = 2  # two things go from the focus to the application: the key, and the message that a widget made of it


class EarlyInput(App[None]):
    """Handles each key or paste, in the order of typing, when the previous one has been handled."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._typed: deque[events.Key | events.Paste] = deque()
        self._handed_at: float | None = None  # when the input that is being handled was handed over
        self._turn = 0
        # Screens that are mounted and have set their focus.
        self._there: WeakSet[Screen[object]] = WeakSet()

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if self._handed_at is None or time.monotonic() - self._handed_at > LIMIT:
            await self._hand_over(self._turn)

    async def _hand_over(self, turn: int, there: Screen[object] | None = None) -> None:
        """Hand over the next input unless another call did; if its screen is not mounted yet, wait for that."""
        if there is not None:
            self._there.add(there)
        if turn != self._turn:
            return
        self._turn += 1
        self._handed_at = None
        if not self._typed:
            return
        self._handed_at = time.monotonic()
        screen = self.screen
        if screen not in self._there:
            # A screen reads its queue once it is mounted.
            self._pass_through(iter([screen]), self._turn, screen)
            return
        path = [node for node in (self.focused or screen).ancestors_with_self if node is not self]
        try:
            await super().on_event(self._typed.popleft())
        finally:
            self._pass_through(iter(path * LAPS), self._turn)

    def _pass_through(
        self, path: Iterator[MessagePump], turn: int, there: Screen[object] | None = None
    ) -> None:
        """Hand over the next input after everything that waits in the queues of `path` and of the application."""
        for node in path:
            if node.call_later(self._pass_through, path, turn, there):
                return
        self.call_later(self._hand_over, turn, there)
