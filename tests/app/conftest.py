"""What all tests of screens share: a key press is over when what it leads to is there."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from waiting import at_rest

PRESS = Pilot.press


async def press(pilot: Pilot[Any], *keys: str) -> None:
    for key in keys:
        await PRESS(pilot, key)
        await at_rest(pilot)


@pytest.fixture(autouse=True)
def a_press_takes_as_long_as_its_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual's own press looks at the CPU to tell whether the application is done, which a busy machine makes a guess."""
    monkeypatch.setattr(Pilot, "press", press)
