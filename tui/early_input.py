"""One key after the other: what is typed or pasted before a screen is there waits for it, and is not taken for commands.

Textual hands a key to what has the focus, from where it comes back through every parent before the application looks
whether it is a command. Keys that come quickly overtake this: those typed behind the digit of a screen would still go to
the screen before, or to a screen that has neither children nor focus yet.
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

# Seconds that a key waits at most for the one before: what this had to go through may have been taken away.
LIMIT = 0.5
LAPS = 2  # a key, and what is made of it (a message of the widget that had it), go from the focus to the application


class EarlyInput(App[None]):
    """Each key or paste is handed over when the one before has been dealt with, in the order they were made."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._typed: deque[events.Key | events.Paste] = deque()
        self._handed_at: float | None = None  # when the one was handed over that is dealt with now
        self._turn = 0
        # Screens that are mounted, and have the focus they set then.
        self._there: WeakSet[Screen[object]] = WeakSet()

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if self._handed_at is None or time.monotonic() - self._handed_at > LIMIT:
            await self._hand_over(self._turn)

    async def _hand_over(self, turn: int, there: Screen[object] | None = None) -> None:
        """The next, unless another came first; or wait until its screen is there."""
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
            # It looks into its queue once it is mounted.
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
        """Behind everything that waits in the queues of `path` and in our own, the next is handed over."""
        for node in path:
            if node.call_later(self._pass_through, path, turn, there):
                return
        self.call_later(self._hand_over, turn, there)
