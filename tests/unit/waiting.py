"""Waiting for what other processes, threads and screens bring about: for minutes, since a busy machine is no fault of the code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # scripted jobs wait, too, and start without the screen's libraries
    from textual.app import App
    from textual.pilot import Pilot

LIMIT = 300.0  # s


def until(holds: Callable[[], object], what: str = "it", limit: float = LIMIT) -> None:
    deadline = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline, f"not within {limit:g} s: {what}"
        time.sleep(0.05)


async def until_seen(pilot: Pilot[Any], holds: Callable[[], object], what: str = "it") -> None:
    """Until it holds, and the screen is at rest again: a screen that was just pushed has no widgets yet."""
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {what}, in {pilot.app.screen}"
        await pilot.pause(0.01)
    await at_rest(pilot)


async def until_so(holds: Callable[[], object], what: str = "it") -> None:
    """Until it holds, whatever the screen does: a pilot would wait for one that is about to fail."""
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {what}"
        await asyncio.sleep(0.01)


async def at_rest(pilot: Pilot[Any]) -> None:
    """Until nothing waits in the event loop: every key was dealt with, every message, every redraw.

    What threads bring is another matter: that is for `until_seen`.
    """
    deadline, quiet = time.monotonic() + LIMIT, 0
    while quiet < 3 and time.monotonic() < deadline and pilot.app.is_running and pilot.app.screen_stack:
        await pilot.pause(0)
        nodes = [pilot.app, *pilot.app.screen.walk_children(with_self=True)]
        keys = getattr(pilot.app, "_handed_at", None) is not None
        busy = keys or _undrawn(pilot.app) or any(node.message_queue_size for node in nodes)
        quiet = 0 if busy else quiet + 1


def _undrawn(app: App[Any]) -> bool:
    """Whether the screen waits for its timer to lay out or to draw what has changed."""
    screen = app.screen
    changed = screen._layout_required or screen._scroll_required or screen._repaint_required
    return screen.is_current and not app._batch_count and bool(changed or screen._dirty_widgets)
