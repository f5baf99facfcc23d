"""Shared by all tests of screens: a key press or a pause of the pilot returns when its effects are there, on a busy machine too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.pilot import Pilot
from waiting import LIMIT, at_rest

PRESS, PAUSE, WAIT_FOR_SCREEN = Pilot.press, Pilot.pause, Pilot._wait_for_screen


async def press(pilot: Pilot[Any], *keys: str) -> None:
    for key in keys:
        await PRESS(pilot, key)
        await at_rest(pilot)


async def pause(pilot: Pilot[Any], delay: float | None = None) -> None:
    await (at_rest(pilot) if delay is None else PAUSE(pilot, delay))


async def wait_for_screen(pilot: Pilot[Any], timeout: float = LIMIT) -> bool:
    return await WAIT_FOR_SCREEN(pilot, timeout)


@pytest.fixture(autouse=True)
def a_pilot_waits_for_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual's own pilot sleeps until the process uses little CPU time, for 20 ms to 1 s, and gives a screen up after 30 s."""
    monkeypatch.setattr(Pilot, "press", press)
    monkeypatch.setattr(Pilot, "pause", pause)
    monkeypatch.setattr(Pilot, "_wait_for_screen", wait_for_screen)
    monkeypatch.setattr("textual.app.wait_for_idle", lambda *_: asyncio.sleep(0))
    monkeypatch.setattr("textual.pilot.wait_for_idle", lambda *_: asyncio.sleep(0))
