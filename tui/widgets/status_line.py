"""The first line: which run, its phase, its progress, the time left. What has no room is left out, the least important first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len, set_cell_size

from backends.ticks import compact, duration
from tui.glyphs import glyphs
from tui.widgets.panel import Panel, Span, width_of
from tui.widgets.top_line import shortened

GAP = "   "
SHORTEST_TITLE = 12  # cells; a title with less room is left out


@dataclass(frozen=True, slots=True)
class Headline:
    """The first line of the monitor. Times in seconds; None is not known (and not shown)."""

    name: str
    phase: str  # one word, or few
    style: str
    iteration: int | None = None
    train_iters: int | None = None
    left: float | None = None
    elapsed: float | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None

    @property
    def percent(self) -> float | None:
        if self.iteration is None or not self.train_iters:
            return None
        return 100 * min(self.iteration / self.train_iters, 1.0)


class StatusLine(Panel, can_focus=False):
    """One row, from a `Headline`."""

    DEFAULT_CSS = "StatusLine { height: 1; }"

    def __init__(
        self, *, id: str | None = None, ascii_only: bool = False, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._now = now
        self._headline: Headline | None = None

    def update(self, headline: Headline) -> None:
        self._headline = headline
        self.show()

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        if self._headline is None:
            return [[(" mdk-tui", "title")]]
        return [arranged(self._headline, width, self._now(), glyphs(self.ascii_only).dots)]


def arranged(head: Headline, width: int, now: float, dots: str) -> list[Span]:
    """The row for `width` cells: the name at the left, the rest at the right; the name is shortened last."""
    first, _, rest = head.phase.partition(": ")
    phase: Span = (first.upper() + (f" {rest}" if rest else ""), head.style)
    pieces = [phase, *((text, "text") for text in _pieces(head, now))]
    # Least important first: tokens, finish time, elapsed, tokens/s …: `_pieces` ranks them by their place.
    keep = list(range(len(pieces)))
    order = [i for i in (5, 6, 4, 2) if i < len(pieces)]

    def room() -> int:
        return width - width_of([pieces[i] for i in keep if pieces[i][0]]) - len(GAP) * len(keep) - 1

    while order and room() < min(cell_len(head.name) + 1, max(width // 3, 12)):
        keep.remove(order.pop(0))
    shown = [pieces[i] for i in keep if pieces[i][0]]
    left: list[Span] = [(_clipped(head.name, max(room(), 4), dots), "title")]
    right: list[Span] = []
    for piece in shown:
        right += [(GAP, "text"), piece]
    gap = width - 1 - width_of(left) - width_of(right)
    return [*left, (" " * max(gap, 0), "text"), *right]


def _pieces(head: Headline, now: float) -> list[str]:
    """Iteration, percent, ETA, elapsed, tokens, tokens/s; "" for what is not known. Numbers keep their width."""
    iteration = ""
    if head.iteration is not None:
        total = f" / {head.train_iters:,}" if head.train_iters else ""
        iteration = f"iteration {head.iteration:,}{total}"
    percent = "" if head.percent is None else f"{head.percent:4.1f} %"
    eta = ""
    if head.left is not None:
        eta = f"ETA {duration(head.left)}"
        if head.left < 24 * 3600:
            eta += f" ({clock(now + head.left)})"
    up = "ran" if head.phase in ("finished", "failed", "stopped", "lost") else "up"
    elapsed = "" if not head.elapsed else f"{up} {duration(head.elapsed)}"
    tokens = "" if head.tokens is None else f"{compact(head.tokens)} tokens"
    speed = "" if head.tokens_per_second is None else f"{compact(head.tokens_per_second)} tokens/s"
    return [iteration, percent, eta, elapsed, tokens, speed]


def _clipped(name: str, width: int, dots: str) -> str:
    """`name` in `width` cells: the title of a run or the folder of a file is left out first; then the end is kept."""
    title, _, run = name.rpartition(" · ")
    room = width - cell_len(f"  · {run}")
    if title and room >= SHORTEST_TITLE:
        cut = f"{set_cell_size(title, room - len(dots)).rstrip()}{dots}"
        short = title if cell_len(title) <= room else cut
        return f" {short} · {run}"
    wholes = (run,) if title else (run, run.rpartition("/")[2])
    fitting = next((text for text in wholes if cell_len(text) < width), None)
    return f" {fitting or shortened(run, width - 1, dots)}"


def clock(seconds: float) -> str:
    """Local time of day."""
    return datetime.fromtimestamp(seconds).strftime("%H:%M")
