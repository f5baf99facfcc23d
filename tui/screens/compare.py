"""Compares runs and logs, live: their curves in one plot, their final figures, the arguments that differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from backends.megatron.follow import Update
from backends.megatron.record import Record
from backends.runs.ancestors import Chapter, chapters
from backends.runs.comparison_export import Kind, export
from backends.runs.side_by_side import Subject
from backends.ticks import duration
from backends.workspace import Workspace
from tui.background import in_background
from tui.screens import compare_view
from tui.screens.choose import Choice, Chooser
from tui.screens.compare_view import ComparedCurves
from tui.screens.live_panes import LivePanes
from tui.screens.monitor_choices import choose_metric
from tui.screens.monitor_curves import RunCurves, loss_metric
from tui.screens.monitor_sources import Watched
from tui.widgets.key_line import KeyLine
from tui.widgets.plot import Plot
from tui.widgets.table_view import TableView
from tui.widgets.top_line import TopLine

INTERVAL = 1.0  # s between two drawings of a growing log


class CompareScreen(LivePanes):
    """`subjects`: what is compared until `look_at` changes it. `folder`: where exports go."""

    CSS_PATH = "compare.tcss"
    PANES = ("curves", "figures", "arguments")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric", "metric", id="compare.metric", tooltip="Choose the metric of the curves"),
        Binding("e", "export", "export", id="compare.export", tooltip="Write CSV, JSON or SVG into the current folder"),
    ]  # fmt: skip

    def __init__(
        self,
        workspace: Workspace,
        subjects: Sequence[Subject],
        *,
        folder: Path | None = None,
        ascii_only: bool = False,
    ) -> None:
        super().__init__()
        self.workspace = workspace
        self.ascii_only = ascii_only
        self._folder = folder or Path.cwd()
        self._subjects: Sequence[Subject] = subjects
        self._curves = ComparedCurves([])

    def compose(self) -> ComposeResult:
        plain = self.ascii_only
        yield TopLine("compare", id="where", ascii_only=plain)
        yield Plot(self._curves, id="curves", ascii_only=plain)
        with Container(id="tables"):
            yield TableView("final figures", id="figures", ascii_only=plain)
            yield TableView(
                "arguments that differ", id="arguments", ascii_only=plain, empty="no argument differs"
            )
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        plot = self.query_one(Plot)
        plot.time_label = lambda seconds, step: duration(seconds)
        plot.legend = lambda lines, at: compare_view.legend(self._subjects, lines, at)
        plot.focus()
        self.look_at(self._subjects)

    def look_at(self, subjects: Sequence[Subject]) -> None:
        """Compare these."""
        self.close_sources()
        self._subjects = subjects
        self._curves.runs = [RunCurves(Record()) for _ in subjects]
        for subject, curves in zip(subjects, self._curves.runs, strict=True):
            self._follow(subject, curves)
        self._redraw()

    def _follow(self, subject: Subject, curves: RunCurves) -> None:
        follower = Watched(subject.name, subject.log, subject.run).follower()

        def arrived(update: Update) -> None:
            curves.record = update.record
            self._redraw()

        def past_came(past: tuple[Chapter, ...]) -> None:
            curves.past = past
            self._redraw()

        self.carry(follower.updates, arrived, close_source=follower.close, interval=INTERVAL)
        if (run := subject.run) is not None:
            self.carry(lambda: iter([tuple(chapters(self.workspace, run))]), past_came)

    def _redraw(self) -> None:
        plot, runs = self.query_one(Plot), self._curves.runs
        plot.metric = plot.metric or loss_metric(self._curves.metrics())
        plot.update()
        head = compare_view.head(self._subjects)
        self.query_one("#figures", TableView).update(head, compare_view.figure_rows(runs))
        rows = compare_view.argument_rows(self._subjects, runs)
        self.query_one("#arguments", TableView).update(head, rows)

    def action_metric(self) -> None:
        choose_metric(self.app, self.query_one(Plot), self._curves)

    def action_export(self) -> None:
        choices = [
            Choice("csv", "CSV", "every value, a row an iteration line"),
            Choice("json", "JSON", "figures, differing arguments, thinned curves"),
            Choice("svg", "SVG", "the curves as a picture, over the shown axes"),
        ]

        def chosen(kind: str | None) -> None:
            if kind is not None:
                self._export(cast("Kind", kind))

        self.app.push_screen(Chooser(f"export into {self._folder}", choices), chosen)

    def _export(self, kind: Kind) -> None:
        records, plot = [run.record for run in self._curves.runs], self.query_one(Plot)
        metric, x, log = plot.metric, plot.view.x, plot.view.log
        subjects, folder = self._subjects, self._folder

        def failed(error: Exception) -> None:
            words = error.strerror if isinstance(error, OSError) else str(error)
            self.app.notify(f"Nothing was written: {words}", severity="error", markup=False)

        in_background(
            self,
            lambda: export(kind, folder, subjects, records, metric, x=x, log=log),
            lambda path: self.app.notify(f"Written: {path}", markup=False),
            failed,
        )
