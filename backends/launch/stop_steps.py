"""The steps of a stop: ask to save, wait, TERM, KILL. This module decides; `supervision` sends the signals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

TERM_LIMIT = 10.0  # s between TERM and KILL
KILL_PAUSE = 1.0  # s between one KILL and the next

Deed: TypeAlias = Literal["ask", "term", "kill"]


@dataclass(slots=True)
class Stop:
    """A stop in progress. `why` goes into the run's state. Times are seconds of one clock.

    A graceful stop asks, and sends TERM after `limit`. Any other sends TERM at once, or KILL if TERM would save.
    """

    why: str
    graceful: bool
    limit: float
    term_saves: bool
    started: float
    _step: Deed | None = None
    _since: float = 0.0

    def due(self, now: float) -> Deed | None:
        """The step to take now; None: wait."""
        wanted = self._next(now)
        if wanted is not None:
            self._step, self._since = wanted, now
        return wanted

    def _next(self, now: float) -> Deed | None:
        waited = now - self._since
        match self._step:
            case None if self.graceful:
                return "ask"
            case None:
                return "kill" if self.term_saves else "term"
            case "ask":
                return "term" if waited >= self.limit else None
            case "term":
                return "kill" if waited >= TERM_LIMIT else None
            case "kill":
                return "kill" if waited >= KILL_PAUSE else None

    def progress(self, now: float, saved: int | None) -> str:
        """What the stop is doing, as a reader of the run sees it."""
        waited = round(now - self._since)
        match self._step:
            case "ask" if saved is not None:
                return f"saved iteration {saved}, waiting for its exit ({waited} s)"
            case "ask":
                return f"asked to save and exit, waiting ({waited} s of {round(self.limit)} s)"
            case "term":
                return f"told to end (TERM), waiting ({waited} s)"
            case "kill":
                return "killing what is left"
            case None:
                return "about to stop"
