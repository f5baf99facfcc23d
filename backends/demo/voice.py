"""Printing as in Megatron-LM: rank 0 prints start-up and checkpoints, the last rank iterations and timers."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from backends.demo import console
from backends.demo.collective import Collective
from backends.demo.messages import say


class Voice:
    """Prints what Megatron-LM prints on the rank that prints it there."""

    def __init__(self, ranks: Collective) -> None:
        self._ranks = ranks

    def first(self, text: str) -> None:
        """Megatron-LM's print_rank_0."""
        if self._ranks.rank == 0:
            say(text)

    def last(self, text: str) -> None:
        """Megatron-LM's print_rank_last."""
        if self._ranks.rank == self._ranks.size - 1:
            say(text)

    def stamp(self, words: str) -> None:
        """Megatron-LM's print_datetime: waits for all ranks."""
        self._ranks.gather(0)
        self.first(console.datetime_line(words, datetime.now()))

    def timed(self, work: Callable[[], None]) -> tuple[float, float]:
        """Shortest and longest time of `work` over the ranks, in ms."""
        began = time.monotonic()
        work()
        times = self._ranks.gather((time.monotonic() - began) * 1000)
        return min(times), max(times)
