"""Waiting for what other processes, threads and screens bring about: for long, since a busy machine is no fault of the code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # scripted jobs wait, too, and start without the screen's libraries
    from textual.pilot import Pilot

LIMIT = 180.0  # s


def until(holds: Callable[[], object], what: str = "it") -> None:
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {what}"
        time.sleep(0.05)


async def until_seen(pilot: Pilot[Any], holds: Callable[[], object], what: str = "it") -> None:
    """A key press alone waits for nothing when other processes have the CPU: Textual then takes its screen for idle."""
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {what}, in {pilot.app.screen}"
        await asyncio.sleep(0.01)  # a pilot's pause would wait for a screen that is about to fail
