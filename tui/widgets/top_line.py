"""The first line of a screen: its name, its folder, and what is running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tui.glyphs import glyphs
from tui.widgets.panel import Panel, Span, fit, width_of

if TYPE_CHECKING:
    from backends.runs.watching import SeenRun

GAP = "   "


class TopLine(Panel, can_focus=False):
    """One row. `where` is the screen's name, `place` what it is about (a folder)."""

    DEFAULT_CSS = "TopLine { height: 1; }"

    def __init__(
        self, where: str, place: str = "", *, id: str | None = None, ascii_only: bool = False
    ) -> None:
        super().__init__(id=id, ascii_only=ascii_only)
        self._where = where
        self._place = place
        self._runs: tuple[SeenRun, ...] = ()

    def update(self, runs: Sequence[SeenRun]) -> None:
        self._runs = tuple(runs)
        self.show()

    def body(self, width: int, height: int) -> Sequence[Sequence[Span]]:
        left: list[Span] = [("mdk-tui", "title"), (GAP[1:], "text"), (self._where, "info")]
        right = running_words(self._runs, self.ascii_only)
        if width_of(left) + len(GAP) + width_of(right) > width:
            right = right[:1]  # only the count, where room is short
        room = width - width_of(left) - width_of(right) - 2 * len(GAP)
        if self._place and room > 8:
            left += [(GAP, "text"), (shortened(self._place, room, glyphs(self.ascii_only).dots), "dim")]
        gap = width - width_of(left) - width_of(right)
        return [fit([*left, (" " * max(gap, 0), "text"), *right], width)]


def running_words(runs: Sequence[SeenRun], ascii_only: bool) -> list[Span]:
    """How many runs are alive, and the progress of the newest training; empty if there are none."""
    alive = [seen.info for seen in runs if not seen.info.over]
    if not alive:
        return []
    sign = glyphs(ascii_only).running
    words: list[Span] = [(f"{sign} {len(alive)} running", "good")]
    training = next((info for info in alive if info.kind == "train"), None)
    if training is not None and training.iteration is not None:
        total = f" / {training.train_iters:,}" if training.train_iters else ""
        number = f"{training.iteration:>{len(f'{training.train_iters or 0:,}')},}"
        words.append((f"{GAP}iteration {number}{total}", "text"))
    return words


def shortened(text: str, width: int, dots: str) -> str:
    """The end of `text`, where paths differ, in at most `width` cells."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - len(dots):
        text = text[1:]
    return f"{dots}{text}"
