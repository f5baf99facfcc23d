"""Forecasts when a run saves next, how long that takes, and whether the disk has room for its saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backends.runs.checkpoints import Checkpoint
from backends.runs.save_history import SaveHistory


@dataclass(frozen=True, slots=True)
class SaveForecast:
    """Sizes in bytes, times in s, None: not known.

    `remaining` saves are to come, the last at the end of training. The disk has room for `fits` of them.
    """

    next_iteration: int | None
    seconds_until: float | None
    seconds: float | None  # duration of the newest save
    size: int | None  # size of the newest complete checkpoint
    free: int | None
    remaining: int | None

    @property
    def fits(self) -> int | None:
        return self.free // self.size if self.free is not None and self.size else None

    @property
    def next_fits(self) -> bool | None:
        """Whether the disk has room for the next save."""
        return None if self.fits is None else self.fits > 0

    @property
    def all_fit(self) -> bool | None:
        """Whether the disk has room for all saves to come if no checkpoint is removed."""
        return None if self.fits is None or self.remaining is None else self.fits >= self.remaining

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "fits": self.fits}


def forecast(
    found: Sequence[Checkpoint],
    history: SaveHistory,
    *,
    interval: int | None,
    train_iters: int | None,
    free: int | None,
    iteration: int | None = None,
) -> SaveForecast:
    """`found` are the checkpoints of the save folder, newest first; `interval` and `train_iters` are those of its run.

    `iteration` is where that run is now (default: the newest in its logs). After the last iteration there is no next save.
    """
    now = iteration if iteration is not None else history.iteration
    whole = next((c for c in found if c.complete and c.size), None)
    seconds = history.seconds[max(history.seconds)] if history.seconds else None
    size = whole.size if whole else None
    if now is None or not interval or interval <= 0:
        return SaveForecast(None, None, seconds, size, free, None)
    following = (now // interval + 1) * interval
    if train_iters is not None:
        if now >= train_iters:
            return SaveForecast(None, None, seconds, size, free, 0)
        following = min(following, train_iters)
    remaining = None if train_iters is None else -(-train_iters // interval) - now // interval
    until = None if history.iteration_ms is None else (following - now) * history.iteration_ms / 1000
    return SaveForecast(following, until, seconds, size, free, remaining)
