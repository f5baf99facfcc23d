"""A run in a few words of fixed width, the same on every screen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from backends.ticks import number, rounded

if TYPE_CHECKING:
    from backends.runs.catalog import RunInfo
    from backends.runs.watching import SeenRun

STYLES = {"running": "good", "starting": "info", "stopping": "warning", "finished": "good", "failed": "error", "lost": "error"}  # fmt: skip
ITERATION_MS = "elapsed time per iteration (ms)"
LOSSES = ("lm loss", "loss")


def style_of(phase: str) -> str:
    return STYLES.get(phase, "text")


def progress(info: RunInfo) -> str:
    """ "1,250 / 5,000", or ""; the first number has a fixed width."""
    if info.iteration is None:
        return ""
    if not info.train_iters:
        return f"{info.iteration:,}"
    total = f"{info.train_iters:,}"
    return f"{info.iteration:>{len(total)},} / {total}"


def loss(seen: SeenRun) -> str:
    """ "loss 2.913", or "" when the log has none."""
    value = next((seen.last[name] for name in LOSSES if name in seen.last), None)
    return "" if value is None else f"loss {number(value)}"


def left(seen: SeenRun) -> str:
    """ "41 m left", from the newest iteration's time; "" when it is not known."""
    info, each = seen.info, seen.last.get(ITERATION_MS)
    if each is None or info.iteration is None or not info.train_iters:
        return ""
    seconds = (info.train_iters - info.iteration) * each / 1000
    return f"{rounded(seconds)} left"


def when(info: RunInfo, today: datetime) -> str:
    """When the run ended, or started if it is running: "09:32" today, "11-28 09:32" before, in local time."""
    stamp = info.ended or info.started
    try:
        moment = datetime.fromisoformat(stamp).astimezone() if stamp else None
    except ValueError:
        moment = None
    if moment is None:
        return ""
    return moment.strftime("%H:%M" if moment.date() == today.date() else "%m-%d %H:%M")


def end(info: RunInfo) -> str:
    """Why it ended, if that is known, and whether it will be resumed by itself."""
    return " ".join(filter(None, (info.reason or info.note, info.again)))


def cell(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells."""
    short = max(width - cell_len(text), 0)
    return " " * short + text if right and short else set_cell_size(text, width)


def widest(texts: Sequence[str], least: int, most: int) -> int:
    """The width in cells of a column of `texts`, within limits."""
    return min(max([least, *map(cell_len, texts)]), most)
