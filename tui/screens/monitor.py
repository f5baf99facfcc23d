"""The monitor: one run, or any Megatron log, live.

What reads Megatron (parser, diagnosis, runs, telemetry) is imported by the thread that finds what is to be watched: the
frame of the screen is painted before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container

from backends.text import clean_line
from backends.workspace import Workspace
from tui.screens.monitor_keys import MonitorKeys
from tui.widgets.attention import AttentionPanel
from tui.widgets.curves import Line, View, XAxis
from tui.widgets.gpu_panel import GpuPanel
from tui.widgets.key_line import KeyLine
from tui.widgets.log_view import LogView
from tui.widgets.plot import Plot
from tui.widgets.status_line import Headline, StatusLine

if TYPE_CHECKING:
    from backends.runs.ancestors import Chapter
    from backends.runs.catalog import RunInfo
    from backends.runs.folder import RunFolder
    from backends.tracking.standing import Standing
    from tui.screens.monitor_model import MonitorModel
    from tui.screens.monitor_sources import Live, News, Reading, Watched

PLOTS = ("loss", "speed")
TICK = 1.0  # s between two looks at the clock; nothing is written when no word changes


def no_curves(metric: str, x: XAxis, start: float | None, stop: float | None, buckets: int) -> list[Line]:
    """The source of the plots before anything is known."""
    return []


class MonitorScreen(MonitorKeys):
    """Shows `run`, or `source` (a path, or the descriptor of a pipe); with neither, the newest run.

    `live` opens the readings of the GPUs here. A log alone is read-only: there is nothing to stop.
    """

    CSS_PATH = "monitor.tcss"
    PANES = (*PLOTS, "gpus", "attention", "log")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide"), (160, "-broad")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-high"), (44, "-tall")]  # noqa: RUF012

    def __init__(
        self,
        workspace: Workspace,
        run: RunFolder | None = None,
        source: Path | int | None = None,
        *,
        live: Callable[[], Live] | None = None,
        now: Callable[[], float] = time.time,
        ascii_only: bool = False,
    ) -> None:
        super().__init__()
        self.workspace = workspace
        self._wish = (run, source)
        self._live = live
        self._now = now
        self.ascii_only = ascii_only
        self._drawn: object = None  # version of the record that is on the screen
        self._headline: Headline | None = None
        self._waiting: News | None = None  # news that came while the view is paused

    def compose(self) -> ComposeResult:
        plain = self.ascii_only
        yield StatusLine(id="status", ascii_only=plain, now=self._now)
        with Container(id="plots"):
            yield Plot(no_curves, id="loss", ascii_only=plain, empty="")
            yield Plot(no_curves, id="speed", ascii_only=plain, empty="")
        with Container(id="middle"):
            yield GpuPanel(id="gpus", ascii_only=plain)
            yield AttentionPanel(id="attention", ascii_only=plain)
        yield LogView(id="log", ascii_only=plain)
        yield KeyLine(id="keys")

    def on_mount(self) -> None:
        self.query_one("#loss").focus()
        self._show_name(*self._wish)
        self.call_after_refresh(self.look_at, *self._wish)
        self.set_interval(TICK, self._redraw_headline)

    # Sources.

    def look_at(self, run: RunFolder | None, source: Path | int | None = None) -> None:
        """Show something else. A thread finds out what it is."""

        def find() -> tuple[MonitorModel, Watched | None]:
            from tui.screens.monitor_model import MonitorModel
            from tui.screens.monitor_sources import watched

            wanted = watched(self.workspace, run, source)
            return MonitorModel(wanted), wanted

        self.close_sources()
        self.carry(lambda: iter([find()]), lambda found: self._watch(*found))

    def _show_name(self, run: RunFolder | None, source: Path | int | None) -> None:
        """Show the name, before anything was read."""
        name = run.name if run else clean_line(str(source), 200) if isinstance(source, Path) else "monitor"
        self.query_one(StatusLine).update(Headline(name, "opening", "dim"))

    def _watch(self, model: MonitorModel, wanted: Watched | None) -> None:
        self._waiting, self.held = None, False
        self.model, self._headline, self._drawn = model, None, None
        self._forget()
        if wanted is None:
            for plot in self.query(Plot):
                plot.empty = "no run yet: `mdk-tui demo` starts one"
                plot.update()
            self.query_one(StatusLine).update(Headline("no run", "", "dim"))
        else:
            self._open(wanted)
        self.refresh_bindings()
        self._redraw()

    def _open(self, wanted: Watched) -> None:
        from tui.screens.monitor_sources import News, Readings, standings, states, this_machines_gpus

        follower, readings = wanted.follower(), Readings(wanted, self._live or this_machines_gpus)
        self.carry(lambda: wanted.news(follower), self._arrived, merge=News.then, close_source=follower.close)
        self.carry(readings, self._reading_came, close_source=readings.close)
        if (run := wanted.run) is not None:
            from backends.runs.ancestors import chapters

            closed = threading.Event()
            self.carry(lambda: states(run, closed), self._state_came, close_source=closed.set)
            self.carry(lambda: standings(run, closed), self._standing_came, close_source=closed.set)
            in_past = lambda: iter([tuple(chapters(self.workspace, run))])  # noqa: E731
            self.carry(in_past, self._past_came)

    def _forget(self) -> None:
        """Empty every pane before something else is shown."""
        model = cast("MonitorModel", self.model)
        log = self.query_one(LogView)
        log.note, log.search = (f"waiting for {model.waiting_for}" if model.waiting_for else ""), ""
        log.restart(model.wanted.file if model.wanted else None)
        self.query_one(AttentionPanel).update(())
        self.query_one(GpuPanel).forget()
        marker = "o" if self.ascii_only else "◇"
        for plot in self.query(Plot):
            pane = plot.id or ""
            plot.source, plot.newest = model.curves, model.curves.newest
            plot.marks = lambda x, plot=plot: model.curves.marks(plot.metric, x)
            plot.readout = lambda pane=pane: model.readout(pane, marker)
            plot.choose("")
            plot.look(View())

    # News from the sources.

    def _arrived(self, news: News) -> None:
        if self.held:
            self._waiting = news if self._waiting is None else self._waiting.then(news)
            return
        model, log = cast("MonitorModel", self.model), self.query_one(LogView)
        model.take(news)
        log.note = news.note or ("" if news.caught_up else "reading the log's history")
        log.past.before, log.caught_up = news.before, news.caught_up
        if news.reset:
            log.clear()
        log.add(news.lines)
        self._redraw()

    def _state_came(self, info: RunInfo) -> None:
        cast("MonitorModel", self.model).info = info
        self.refresh_bindings()
        self._redraw(force=True)

    def _standing_came(self, standing: Standing | None) -> None:
        cast("MonitorModel", self.model).tracking = standing
        self._redraw(force=True)

    def _reading_came(self, reading: Reading) -> None:
        cast("MonitorModel", self.model).take_reading(reading)
        if not self.held:
            self.query_one(GpuPanel).show(reading.snapshots or None, note=reading.note or None)

    def _past_came(self, chapters: tuple[Chapter, ...]) -> None:
        if chapters:
            cast("MonitorModel", self.model).curves.past = chapters
            self._redraw(force=True)

    # Drawing.

    def _redraw(self, *, force: bool = False) -> None:
        """Draw what the record holds, if it changed."""
        model = self.model
        if model is None or self.held or (model.version == self._drawn and not force):
            return
        self._drawn = model.version
        attention = self.query_one(AttentionPanel)
        attention.empty = "nothing needs attention" if model.caught_up else "reading the log"
        attention.update(model.look())
        self._give_room(model.may_plot)
        memory, expected = model.memory()
        self.query_one(GpuPanel).show(megatron_memory=memory, expected=expected)
        for plot in self.query(Plot):
            pane = plot.id or ""
            plot.metric = plot.metric or model.default_metric(pane)
            if model.wanted is not None:
                plot.empty = model.empty_words(pane)
            if plot.display:
                plot.update(None if force else model.record.iteration)
        self._redraw_headline()

    def _redraw_headline(self) -> None:
        if self.model is None or self.model.wanted is None or self.held:
            return
        head = self.model.headline(self._now())
        if head != self._headline:
            self._headline = head
            self.query_one(StatusLine).update(head)

    def watch_held(self, held: bool) -> None:
        """Say that the view is paused, or draw what came meanwhile."""
        head, waiting, self._headline = self._headline, self._waiting, None
        if held and head is not None:
            words = f"{head.phase.partition(':')[0]}: view paused"
            self.query_one(StatusLine).update(replace(head, phase=words, style="warning"))
        elif waiting is not None:
            self._waiting = None
            self._arrived(waiting)
        self._redraw(force=True)

    def _give_room(self, plots: bool) -> None:
        """Without plots (the job ended before its first iteration) the other panes take the whole screen."""
        if self.has_class("-no-plots") == (not plots):
            return
        if not plots and self.zoomed in PLOTS:
            self.zoom_pane(None)
        if not plots and isinstance(self.focused, Plot):
            # A plot that is hidden gives its focus to some other widget; the attention pane can take it only when it is shown.
            self.call_after_refresh(self.query_one(AttentionPanel).focus)
        self.set_class(not plots, "-no-plots")

    def panes(self) -> list[str]:
        gone = PLOTS if self.has_class("-no-plots") else ()
        return [pane for pane in self.PANES if pane not in gone]
