"""The monitor: one run, or any Megatron log, live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Footer, Input

from backends.errors import UserError
from backends.megatron.diagnosis import diagnose
from backends.megatron.record import Record
from backends.runs.catalog import RunInfo
from backends.runs.folder import RunFolder
from backends.telemetry.readings import Snapshot
from backends.workspace import Workspace
from tui.bridge import Bridge
from tui.screens import monitor_view
from tui.screens.choose import Choice, Chooser
from tui.screens.details import Details
from tui.screens.monitor_sources import News, Watched, states, watched
from tui.screens.monitor_view import RecordCurves
from tui.screens.stop import StopChoice, StopProspect, StopScreen
from tui.widgets.attention import AttentionPanel
from tui.widgets.axes import number
from tui.widgets.clipboard import copy
from tui.widgets.curves import View
from tui.widgets.gpu_panel import GpuPanel
from tui.widgets.gpu_rows import megatron_line
from tui.widgets.log_buffer import LogFilter
from tui.widgets.log_view import LogView
from tui.widgets.plot import Plot
from tui.widgets.status_line import Headline, StatusLine

TICK = 1.0  # s between two looks at the clock; nothing is written when no word changes
PANES = ("loss", "speed", "gpus", "attention", "log")


class Snapshots:
    """The readings of this machine's GPUs, for as long as the monitor is open."""

    def __init__(self) -> None:
        self._collector: Any = None
        self._closed = False

    def __call__(self) -> Iterator[Snapshot]:
        from backends.telemetry.collector import Collector

        self._collector = Collector()
        if not self._closed:
            yield from self._collector.snapshots()

    def close(self) -> None:
        self._closed = True
        if self._collector is not None:
            self._collector.close()


class MonitorScreen(Screen[None]):
    """`run` or `source` (a path, or the descriptor of a pipe) say what is seen; neither: the newest run.

    `telemetry` yields readings of the GPUs here; None: there is no such panel (someone else's log). A log alone is
    read-only: there is nothing to stop.
    """

    CSS_PATH = "monitor.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide"), (160, "-broad")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-high"), (44, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric", "metric", id="monitor.metric", tooltip="Choose what the focused plot shows"),
        Binding("slash", "search", "find", key_display="/", id="monitor.search", tooltip="Search in the log (`n` goes on)"),
        Binding("f", "filter", "filter", id="monitor.filter", show=False, tooltip="Log lines of one rank, or only warnings and errors"),
        Binding("z", "zoom", "pane", id="monitor.zoom", tooltip="Fill the screen with the focused pane, or go back"),
        Binding("tab", "pane(1)", "next pane", id="monitor.next", tooltip="The next pane", show=False),
        Binding("shift+tab", "pane(-1)", "previous pane", id="monitor.previous", tooltip="The pane before", show=False),
        Binding("S", "stop", "stop", id="monitor.stop", tooltip="What stopping would do; asks before it does"),
        Binding("escape", "leave", "back", key_display="esc", id="monitor.leave", tooltip="Leave search, crosshair, zoom", show=False),
    ]  # fmt: skip

    def __init__(
        self,
        workspace: Workspace,
        run: RunFolder | None = None,
        source: Path | int | None = None,
        *,
        telemetry: Callable[[], Any] | None = Snapshots,
        now: Callable[[], float] = time.time,
        ascii_only: bool = False,
    ) -> None:
        super().__init__()
        self.workspace = workspace
        self._wish = (run, source)
        self._telemetry = telemetry
        self._now = now
        self.ascii_only = ascii_only
        self.watched: Watched | None = None
        self.record = Record()
        self._diagnosis = diagnose(self.record)
        self.info: RunInfo | None = None
        self.news: News | None = None  # the newest of the log
        self._curves = RecordCurves(self.record)
        self._bridges: list[Bridge[Any]] = []
        self._drawn = (-1, -1)  # identity and version of the record that is on the screen
        self._headline: Headline | None = None

    def compose(self) -> ComposeResult:
        plain = self.ascii_only
        yield StatusLine(id="status", ascii_only=plain, now=self._now)
        with Container(id="plots"):
            yield Plot(self._curves, id="loss", ascii_only=plain)
            yield Plot(self._curves, id="speed", ascii_only=plain)
        with Container(id="middle"):
            yield GpuPanel(id="gpus", ascii_only=plain)
            yield AttentionPanel(id="attention", ascii_only=plain)
        yield LogView(id="log", ascii_only=plain)
        field = Input(
            id="search", placeholder="search in the log; enter finds, n goes on", select_on_focus=True
        )
        field.cursor_blink = False
        yield field
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        for plot in self.query(Plot):
            plot.newest = lambda metric: monitor_view.newest(self.record, metric)
            plot.marks = lambda x, plot=plot: self._curves.marks(plot.metric, x)
        self.query_one("#loss", Plot).readout = lambda: monitor_view.loss_words(
            self.record, "o" if self.ascii_only else "◇"
        )
        self.query_one("#speed", Plot).readout = lambda: monitor_view.speed_words(self.record)
        self.query_one("#loss").focus()
        self.watch_what(watched(self.workspace, *self._wish))
        self.set_interval(TICK, self._tick)

    def on_unmount(self) -> None:
        self._close()

    # Sources.

    def watch_what(self, wanted: Watched | None) -> None:
        """Look at something else (None: nothing is there)."""
        self._close()
        self._forget()
        self.watched = wanted
        log = self.query_one(LogView)
        if wanted is None:
            for plot in self.query(Plot):
                plot.empty = "no run yet: `mdk-tui demo` starts one"
                plot.update()
            self.query_one(StatusLine).update(Headline("no run", "", "dim"))
        else:
            follower = wanted.follower()
            self._carry(
                lambda: wanted.news(follower),
                self._arrived,
                merge=News.then,
                close_source=follower.close,
            )
            if isinstance(wanted.log, Path) and not wanted.log.exists():
                log.note = f"waiting for {wanted.log.name}"
                log.show()
            if wanted.run is not None:
                closed = threading.Event()
                self._carry(lambda: states(wanted.run, closed), self._state_came, close_source=closed.set)  # pyright: ignore[reportArgumentType]
        if self._telemetry is not None:
            readings = self._telemetry()
            self._carry(readings, self._reading_came, close_source=readings.close)
        self.refresh_bindings()
        self._redraw()

    def _forget(self) -> None:
        """Empty every pane: what comes belongs to something else."""
        self.info, self.news, self._headline = None, None, None
        self.record = self._curves.record = Record()
        self._diagnosis = diagnose(self.record)
        self._drawn = (-1, -1)
        log = self.query_one(LogView)
        log.note, log.search = "", ""
        log.restart()
        self.query_one(AttentionPanel).update(())
        self.query_one(GpuPanel).display = self._telemetry is not None
        for plot in self.query(Plot):
            plot.choose("")
            plot.look(View())

    def _carry(
        self, items: Callable[[], Iterator[Any]], deliver: Callable[[Any], None], **options: Any
    ) -> None:
        self._bridges.append(Bridge(self, items, deliver, failed=self._source_failed, **options).start())

    def _close(self) -> None:
        for bridge in self._bridges:
            bridge.close()
        self._bridges.clear()

    def _source_failed(self, error: Exception) -> None:
        words = (
            f"{error.strerror}: {error.filename}"
            if isinstance(error, OSError)
            else f"{type(error).__name__}: {error}"
        )
        self.app.notify(f"Reading ended: {words}", severity="error", markup=False, timeout=15)

    def _arrived(self, news: News) -> None:
        log = self.query_one(LogView)
        self.record = self._curves.record = news.record
        self.news = news
        log.note = news.note or ("" if news.caught_up else "reading the log's history")
        if news.reset:
            log.clear()
        log.add(news.lines)
        self._redraw()

    def _state_came(self, info: RunInfo) -> None:
        self.info = info
        self.refresh_bindings()
        self._redraw(force=True)

    def _reading_came(self, snapshot: Snapshot) -> None:
        self.query_one(GpuPanel).show(snapshot)

    # Drawing.

    def _tick(self) -> None:
        self._redraw_headline()

    def _redraw(self, *, force: bool = False) -> None:
        """Bring everything up to the record, if it changed."""
        with self.record.lock:
            drawn = (id(self.record), self.record.version)
            if drawn == self._drawn and not force:
                return
            metrics = self.record.metrics()
            found = self._diagnosis = diagnose(self.record)
            attention = monitor_view.entries(
                self.record,
                found,
                run_phase=self.info.phase if self.info else None,
                reason=(self.info.stopping or self.info.reason or self.info.note) if self.info else None,
            )
            memory = dict(self.record.memory)
        self._drawn = drawn
        self._give_room(bool(metrics) or found.phase in ("starting", "running"))
        if memory:
            self.query_one(GpuPanel).show(megatron_memory=memory)
            if self._telemetry is None:
                self.query_one(AttentionPanel).footnote = megatron_line(memory)
        self.query_one(AttentionPanel).update(attention)
        loss, speed = self.query_one("#loss", Plot), self.query_one("#speed", Plot)
        loss.metric = loss.metric or monitor_view.loss_metric(metrics)
        speed.metric = speed.metric or monitor_view.throughput_metric(metrics)
        for plot in (loss, speed):
            if self.watched is not None:
                plot.empty = monitor_view.empty_words(plot.id or "", self.record, found)
            if plot.display:
                plot.update(self.record.iteration)
        self._redraw_headline()

    def _redraw_headline(self) -> None:
        if self.watched is None:
            return
        info = self.info
        with self.record.lock:
            head = monitor_view.headline(
                self.record,
                self._diagnosis,
                self.watched.name,
                run_phase=info.phase if info else None,
                started=info.started if info else None,
                ended=info.ended if info else None,
                written=self.news.written if self.news else None,
                now=self._now(),
            )
        if head != self._headline:
            self._headline = head
            self.query_one(StatusLine).update(head)

    # Panes.

    def _give_room(self, plots: bool) -> None:
        """Without plots (a job that ended before its first iteration) attention and log have all of the screen."""
        if self.has_class("-no-plots") == (not plots):
            return
        self.set_class(not plots, "-no-plots")
        if self.zoomed not in (None, *self.panes()):
            self.zoom_pane(None)
        if isinstance(self.focused, Plot) and not plots:
            self.query_one(AttentionPanel).focus()

    def panes(self) -> list[str]:
        """The panes that there are, in the order of tab."""
        gone = {"gpus"} if self._telemetry is None else set[str]()
        if self.has_class("-no-plots"):
            gone |= {"loss", "speed"}
        return [pane for pane in PANES if pane not in gone]

    @property
    def zoomed(self) -> str | None:
        return next((pane for pane in PANES if self.query_one(f"#{pane}").has_class("-zoomed")), None)

    def zoom_pane(self, pane: str | None) -> None:
        """Fill the screen with one pane; None: all of them again."""
        self.set_class(pane is not None, "-zoom")
        for name in PANES:
            widget = self.query_one(f"#{name}")
            widget.set_class(name == pane, "-zoomed")
            if (parent := widget.parent) is not self and parent is not None:
                parent.set_class(any(child.has_class("-zoomed") for child in parent.children), "-zoomed")  # pyright: ignore[reportAttributeAccessIssue]
        if pane is not None:
            self.query_one(f"#{pane}").focus()

    def action_zoom(self) -> None:
        if self.zoomed:
            self.zoom_pane(None)
        elif self.focused is not None and self.focused.id in PANES:
            self.zoom_pane(self.focused.id)

    def action_pane(self, step: int) -> None:
        """The next pane; on a narrow screen, and when zoomed, it comes up full, with the overview in the round."""
        panes = self.panes()
        if self.has_class("-narrow"):
            stations: list[str | None] = [None, *panes]
            pane = stations[(stations.index(self.zoomed) + step) % len(stations)]
            self.zoom_pane(pane)
            if pane is None:
                self.query_one(f"#{panes[0]}").focus()
            return
        now = self.focused.id if self.focused is not None and self.focused.id in panes else panes[-1]
        following = panes[(panes.index(str(now)) + step) % len(panes)]
        if self.zoomed:
            self.zoom_pane(following)
        else:
            self.query_one(f"#{following}").focus()

    def action_leave(self) -> None:
        """One thing at a time: the search, the crosshair, the zoom; then whatever the application does with esc."""
        log, plot = self.query_one(LogView), self.focused
        if self.focused is self.query_one("#search"):
            self._end_search(focus=True)
        elif isinstance(plot, Plot) and (plot.view.crosshair is not None or plot.view.window):
            plot.action_whole()
        elif log.search:
            log.look_for("")
        elif self.zoomed:
            self.zoom_pane(None)
        else:
            raise SkipAction()

    # Metric.

    def action_metric(self) -> None:
        plot = self.focused if isinstance(self.focused, Plot) else self.query_one("#loss", Plot)
        with self.record.lock:
            choices = [
                Choice(name, name, _newest(self.record.last.get(name))) for name in self.record.metrics()
            ]
        if not choices:
            self.app.notify("The log has no numbers yet.", markup=False)
            return

        def chosen(metric: str | None) -> None:
            if metric is not None:
                plot.choose(metric)

        self.app.push_screen(Chooser("metric", choices, plot.metric), chosen)

    # Log.

    def action_search(self) -> None:
        field = self.query_one("#search", Input)
        field.add_class("-open")
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._end_search(focus=True)
        self.query_one(LogView).look_for(event.value)

    def _end_search(self, *, focus: bool) -> None:
        self.query_one("#search").remove_class("-open")
        if focus:
            self.query_one(LogView).focus()

    def on_log_view_search_asked(self) -> None:
        self.action_search()

    def action_filter(self) -> None:
        log = self.query_one(LogView)
        now = log.buffer.filter
        choices = [
            Choice("all", "all lines"),
            Choice("warning", "warnings and errors"),
            Choice("error", "errors"),
            *(Choice(f"rank {rank}", f"rank {rank}") for rank in sorted(log.buffer.ranks)),
        ]
        current = "all" if now == LogFilter() else now.level if now.rank is None else f"rank {now.rank}"

        def chosen(key: str | None) -> None:
            if key is not None:
                rank = int(key.removeprefix("rank ")) if key.startswith("rank ") else None
                log.let_through(LogFilter(rank, key if key in ("warning", "error") else "debug"))

        self.app.push_screen(Chooser("log lines", choices, current), chosen)

    def on_log_view_filter_asked(self) -> None:
        self.action_filter()

    def on_log_view_copied(self, message: LogView.Copied) -> None:
        self._copy(message.text)

    def on_log_view_opened(self, message: LogView.Opened) -> None:
        line = message.line
        rank = "" if line.rank is None else f", rank {line.rank}"
        self.app.push_screen(Details(f"line {line.number:,}{rank}", line.text, self._copy))

    # Attention.

    def on_attention_panel_opened(self, message: AttentionPanel.Opened) -> None:
        self.app.push_screen(Details("attention", message.entry.whole(), self._copy))

    def on_attention_panel_copied(self, message: AttentionPanel.Copied) -> None:
        self._copy(message.text)

    def _copy(self, text: str) -> None:
        self.app.notify(copy(self.app, text), markup=False)

    # Stop.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self.info is not None and not self.info.over
        return True

    def action_stop(self) -> None:
        from backends.runs.judgement import withheld
        from backends.runs.signs import Signs
        from backends.settings import read_settings

        run, info = self.watched.run if self.watched else None, self.info
        if run is None or info is None:
            return
        try:
            state = run.state()
            why = withheld(run.plan(), state.signs if state else Signs())
            minutes = read_settings(self.workspace.settings).stop.limit_minutes
        except UserError as error:
            self.app.notify(str(error), severity="error", markup=False)
            return
        prospect = StopProspect(
            run.name, info.kind or "train", info.save, self.record.iteration, minutes, why
        )
        self.app.push_screen(StopScreen(prospect), lambda how: self._stop(run, how, minutes))

    def _stop(self, run: RunFolder, how: StopChoice | None, minutes: float) -> None:
        """Ask; the supervisor does it, and its progress comes back as the state of the run."""
        from backends.launch.ending import stop_run

        if how is None:
            return
        self._carry(
            lambda: stop_run(run, self.workspace, now=how == "now", limit=60 * minutes),
            self._state_came,
        )
        self.app.notify(
            f"{run.name} was asked to {'end now' if how == 'now' else 'save and end'}.", markup=False
        )


def _newest(value: object) -> str:
    return number(value) if isinstance(value, int | float) else ""
