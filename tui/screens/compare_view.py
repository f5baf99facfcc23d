"""The content of the comparison: curves that begin together, tables of figures and of arguments. It draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from backends.runs.side_by_side import Figure, Subject, differing_arguments, figures, short_names
from backends.ticks import compact, duration, number
from tui.screens.monitor_curves import RunCurves
from tui.widgets.curves import Line, XAxis, nearest
from tui.widgets.panel import Span
from tui.widgets.table_view import TableRow, shortened

COLOURS = 6  # curve colours of the palette
NAME = 24  # cells of a name beside its value
SMALL_IS_GOOD = ("loss", "lowest loss", "validation loss", "test loss", "iteration (ms)", "memory (MiB)")
LARGE_IS_GOOD = ("tokens/s", "TFLOP/s/GPU")


def style_of(place: int) -> str:
    """The colour of the subject at `place`."""
    return f"curve-{place % COLOURS + 1}"


class ComparedCurves:
    """The curves of several runs as the source of one plot. Times are s since the first line of each run."""

    def __init__(self, runs: Sequence[RunCurves]) -> None:
        self.runs = runs

    def metrics(self) -> list[str]:
        """The metrics of all runs, those that most runs have first."""
        counts: dict[str, int] = {}
        for run in self.runs:
            for name in run.metrics():
                counts[name] = counts.get(name, 0) + 1
        return sorted(counts, key=lambda name: -counts[name])

    def newest(self, metric: str) -> float | None:
        """The newest value of the first run that has one."""
        return next((value for run in self.runs if (value := run.newest(metric)) is not None), None)

    def __call__(
        self, metric: str, x: XAxis, start: float | None, stop: float | None, buckets: int
    ) -> list[Line]:
        found: list[Line] = []
        for place, run in enumerate(self.runs):
            begun = begin(run) if x == "time" else 0.0
            if begun is None:
                continue
            low = None if start is None else start + begun
            high = None if stop is None else stop + begun
            for line in run(metric, x, low, high, buckets):
                xs = [value - begun for value in line.xs]
                found.append(replace(line, xs=xs, style=style_of(place), place=place))
        return found


def begin(run: RunCurves) -> float | None:
    """s since the epoch of the first time stamp, of the runs that it continues included."""
    for record in (*(chapter.record for chapter in run.past), run.record):
        with record.lock:
            for segment in record.segments:
                if segment.clock.times:
                    return segment.clock.times[0]
    return None


def head(subjects: Sequence[Subject]) -> list[Span]:
    """The names of the columns in the colours of their curves."""
    return [(name, style_of(place)) for place, name in enumerate(short_names(subjects))]


def legend(subjects: Sequence[Subject], lines: Sequence[Line], at: float | None) -> list[Span]:
    """Each subject with its newest value, or that nearest to the crosshair."""
    found: list[Span] = []
    for place, name in enumerate(short_names(subjects)):
        own = [line for line in lines if line.place == place]
        if own:
            line, index = (own[-1], -1) if at is None else nearest(own, at) or (own[-1], -1)
            gap = "  " if found or at is not None else ""
            found.append(
                (f"{gap}{shortened(name, NAME).strip()} {number(line.means[index])}", style_of(place))
            )
    return found


def figure_rows(runs: Sequence[RunCurves]) -> list[TableRow]:
    """One row for each figure that any run has; the best value is marked."""
    found = [figures(run.record) for run in runs]
    rows: list[TableRow] = []
    for name in found[0]:
        values = [each[name] for each in found]
        if any(value is not None for value in values):
            best = best_of(name, values)
            cells = [(figure_words(name, value), "good" if value == best else "text") for value in values]
            rows.append(TableRow(name.removesuffix(" (s)"), tuple(cells)))
    return rows


def best_of(name: str, values: Sequence[Figure]) -> float | None:
    """The best of `values`, if they differ and there is a better and a worse."""
    known = [value for value in values if isinstance(value, int | float)]
    if len(set(known)) < 2:
        return None
    return min(known) if name in SMALL_IS_GOOD else max(known) if name in LARGE_IS_GOOD else None


def figure_words(name: str, value: Figure) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if name == "elapsed (s)":
        return duration(value)
    if name in ("tokens", "parameters"):
        return compact(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def argument_rows(subjects: Sequence[Subject], runs: Sequence[RunCurves]) -> list[TableRow]:
    """One row for each argument that differs."""
    return [
        TableRow(
            row.name, tuple(("not said", "dim") if value is None else (value, "text") for value in row.values)
        )
        for row in differing_arguments(subjects, [run.record for run in runs])
    ]
