"""Checkpoints and saves in a few words, the same in the commands and on the screens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from backends.ticks import duration, size_words

if TYPE_CHECKING:
    from backends.runs.checkpoints import Checkpoint
    from backends.runs.save_forecast import SaveForecast


def written_words(checkpoint: Checkpoint, form: str = "%m-%d %H:%M") -> str:
    """When it was written, in local time; "" when that is not known."""
    return time.strftime(form, time.localtime(checkpoint.modified)) if checkpoint.modified else ""


def forecast_words(coming: SaveForecast) -> list[str]:
    """The next save and the disk, a sentence each; nothing of what is not known."""
    words: list[str] = []
    if coming.next_iteration is not None:
        when = f" in {duration(coming.seconds_until)}" if coming.seconds_until is not None else ""
        takes = f", which takes {coming.seconds:.1f} s" if coming.seconds is not None else ""
        words.append(f"next save at iteration {coming.next_iteration:,}{when}{takes}")
    if coming.free is not None and coming.size:
        room = f"{size_words(coming.free)} free: room for {coming.fits:,} more of {size_words(coming.size)}"
        if coming.remaining:
            room += f", {coming.remaining:,} to come"
        if coming.remaining and coming.next_fits is False:
            room += ": THE NEXT ONE DOES NOT FIT"
        elif coming.all_fit is False:
            room += ": not all of them fit; prune in time"
        words.append(room)
    return words
