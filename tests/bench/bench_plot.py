"""CPU of one redraw of a plot over 1,000,000 iterations, as they arrive one by one.

python tests/bench/bench_plot.py [POINTS]
"""

from __future__ import annotations

import asyncio
import math
import statistics
import sys
import time
from array import array

from terminal import table
from textual.app import App, ComposeResult

from backends.megatron.events import IterationBatch
from backends.megatron.record import Record
from tui.widgets.curves import Line
from tui.widgets.plot import Plot

REDRAWS = 60


def batch(first: int, count: int) -> IterationBatch:
    """Consecutive iterations with a loss that falls and wobbles."""
    iterations = range(first, first + count)
    losses = array("d", (2 + 8.6 / (1 + i / 400) + 0.05 * math.sin(i * 1.7) for i in iterations))
    return IterationBatch(
        range(first, first + count),
        [None] * count,
        [None] * count,
        iterations,
        [2_000_000] * count,
        {"lm loss": losses},
    )


class OnePlot(App[None]):
    def __init__(self, record: Record) -> None:
        super().__init__()
        self.plot = Plot(
            lambda metric, x, start, stop, buckets: [
                Line.of(curve)
                for curve in record.curves(metric, x=x, start=start, stop=stop, buckets=buckets)
            ],
            "lm loss",
        )

    def compose(self) -> ComposeResult:
        yield self.plot


async def redraws(points: int, size: tuple[int, int]) -> list[float]:
    """ms of CPU of each redraw: asking for the curve, thinning, drawing, and the rows that changed."""
    record = Record()
    for first in range(1, points + 1, 100_000):
        record.apply([batch(first, min(100_000, points + 1 - first))])
    app = OnePlot(record)
    taken: list[float] = []
    async with app.run_test(size=size) as pilot:
        app.plot.update()
        await pilot.pause()
        for number in range(REDRAWS):
            record.apply([batch(points + 1 + number, 1)])
            started = time.process_time()
            app.plot.update()
            await pilot.pause()
            taken.append(1000 * (time.process_time() - started))
    return taken


def main(points: int) -> None:
    rows: list[tuple[str, str, str]] = []
    for size in ((60, 14), (100, 20), (200, 50)):
        taken = sorted(asyncio.run(redraws(points, size)))
        rows.append((f"{size[0]}×{size[1]} median", f"{statistics.median(taken):.1f} ms", "≤ 15 ms"))
        rows.append((f"{size[0]}×{size[1]} 95th percentile", f"{taken[int(len(taken) * 0.95)]:.1f} ms", ""))
    table(f"CPU a redraw at {points:,} points", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
