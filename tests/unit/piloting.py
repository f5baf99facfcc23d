"""Waiting in tests of screens.

A key press alone waits for nothing when other processes have the CPU: Textual then takes this process for idle, and what
the key leads to is not there yet. So whatever is asserted after a press is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen

PATIENCE = 60.0  # s, of a machine that does other things too


def screen_text(screen: Screen[Any]) -> str:
    """All that a screen shows."""
    strips = screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Until it holds."""
    limit = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > limit:
            raise AssertionError(f"not reached in {pilot.app.screen}:\n{screen_text(pilot.app.screen)}")
        await pilot.pause(0.01)


async def at_rest(pilot: Pilot[Any]) -> None:
    """Until nothing waits in the event loop: every key was dealt with, every message, every redraw.

    What threads bring is another matter: that is for `until`.
    """
    limit, quiet = time.monotonic() + PATIENCE, 0
    while quiet < 3 and time.monotonic() < limit and pilot.app.is_running and pilot.app.screen_stack:
        await pilot.pause(0)
        nodes = [pilot.app, *pilot.app.screen.walk_children(with_self=True)]
        keys = getattr(pilot.app, "_handed_at", None) is not None
        quiet = 0 if keys or any(node.message_queue_size for node in nodes) else quiet + 1
