"""Reads from the logs of a lineage how long each save took, and the loss at that iteration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backends.megatron.events import Checkpoint, Event, IterationBatch, Timers
from backends.megatron.parser import Parser

CHUNK = 1 << 20  # bytes
LIMIT = 512 << 20  # bytes of one log that are read
TIMER = "save-checkpoint"
LOSSES = ("lm loss", "loss")
ITERATION_MS = "elapsed time per iteration (ms)"


@dataclass(slots=True)
class SaveHistory:
    """Losses and durations (s) by the iteration that was saved, as far as the logs tell them.

    A loss is the newest that was printed at or before the save; it may be a few iterations old if not every iteration is
    logged. `iteration` is the newest in the log, `iteration_ms` its duration.
    """

    losses: dict[int, float] = field(default_factory=dict[int, float])
    seconds: dict[int, float] = field(default_factory=dict[int, float])
    iteration: int | None = None
    iteration_ms: float | None = None
    # (iteration, loss) of the newest batch; the parser yields a batch before the saves within it.
    _rows: Sequence[tuple[int, float]] = ()
    _saved: int | None = None

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case IterationBatch() if len(event):
                    self._iterate(event)
                case Checkpoint(action="saving", iteration=int(iteration)):
                    loss = next((loss for at, loss in reversed(self._rows) if at <= iteration), None)
                    if loss is not None:
                        self.losses[iteration] = loss
                case Checkpoint(action="saved"):
                    self._saved = event.iteration if event.iteration is not None else self.iteration
                case Timers():
                    self._time(event)
                case _:
                    pass

    def _iterate(self, batch: IterationBatch) -> None:
        self.iteration = int(batch.iterations[-1])
        column = next((batch.columns[name] for name in LOSSES if name in batch.columns), None)
        if column is not None:
            rows = zip(batch.iterations, column, strict=True)
            self._rows = [
                (int(at), float(loss))
                for at, loss in rows
                if isinstance(loss, int | float) and math.isfinite(loss)
            ]
        times = batch.columns.get(ITERATION_MS)
        if times is not None and isinstance(times[-1], int | float):
            self.iteration_ms = float(times[-1])

    def _time(self, timers: Timers) -> None:
        for times in timers.values:
            if TIMER in times and self._saved is not None:
                self.seconds[self._saved] = times[TIMER][1] / 1000
                self._saved = None


def read_save_history(logs: Iterable[Path]) -> SaveHistory:
    """Reads `logs` in the order in which they were written. A missing one counts as empty."""
    history = SaveHistory()
    for log in logs:
        parser = Parser()
        try:
            with log.open("rb") as file:
                while file.tell() < LIMIT and (data := file.read(CHUNK)):
                    history.apply(parser.feed(data))
        except OSError:
            continue
        history.apply(parser.finish())
    return history
