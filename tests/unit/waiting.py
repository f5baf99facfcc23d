"""Waiting for what other processes, threads and screens bring about: for minutes, since a busy machine is no fault of the code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # scripted jobs wait, too, and start without the screen's libraries
    from textual.pilot import Pilot

LIMIT = 300.0  # s


def until(holds: Callable[[], object], what: str = "it", limit: float = LIMIT) -> None:
    deadline = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline, f"not within {limit:g} s: {what}"
        time.sleep(0.05)


async def until_seen(pilot: Pilot[Any], holds: Callable[[], object], what: str = "it") -> None:
    """Until it holds of a screen at rest. A key press alone waits for nothing when other processes have the CPU: Textual
    then takes its screen for idle."""
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {what}, in {pilot.app.screen}"
        await pilot.pause(0.01)


async def until_so(holds: Callable[[], object], what: str = "it") -> None:
    """Until it holds, whatever the screen does: a pilot would wait for one that is about to fail."""
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {what}"
        await asyncio.sleep(0.01)
