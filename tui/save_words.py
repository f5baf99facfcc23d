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


def forecast_words(coming: SaveForecast) -> list[tuple[str, bool]]:
    """Sentences on the next save and on the room on the disk, each with whether it is a warning. Unknown facts are left out."""
    words: list[tuple[str, bool]] = []
    if coming.next_iteration is not None:
        when = f" in {duration(coming.seconds_until)}" if coming.seconds_until is not None else ""
        takes = f", which takes {coming.seconds:.1f} s" if coming.seconds is not None else ""
        words.append((f"next save at iteration {coming.next_iteration:,}{when}{takes}", False))
    if coming.free is not None and coming.size:
        room = f"{size_words(coming.free)} free: room for {coming.fits:,} more of {size_words(coming.size)}"
        room += f", {coming.remaining:,} to come" if coming.remaining else ""
        full, short = bool(coming.remaining) and coming.next_fits is False, coming.all_fit is False
        then = (
            ": THE NEXT ONE DOES NOT FIT" if full else ": not all of them fit; prune in time" if short else ""
        )
        words.append((room + then, full or short))
    return words
