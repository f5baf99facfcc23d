"""The questions of the monitor: which metric, which log lines, which text to search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from textual.app import App
from textual.screen import Screen
from textual.widgets import Input

from backends.ticks import number
from tui.background import in_background
from tui.screens.choose import Choice, Chooser
from tui.widgets.log_buffer import LogFilter
from tui.widgets.log_view import LogView
from tui.widgets.plot import Plot

if TYPE_CHECKING:
    from backends.runs.catalog import RunInfo
    from tui.app import MdkApp
    from tui.screens.monitor_sources import Watched


class Metrics(Protocol):
    """A source of curves."""

    def metrics(self) -> list[str]: ...
    def newest(self, metric: str) -> float | None: ...


def choose_metric(app: App[Any], plot: Plot, curves: Metrics) -> None:
    """Ask for one of the metrics in the log and in the readings recorded with it."""
    choices = [
        Choice(name, name, "" if (value := curves.newest(name)) is None else number(value))
        for name in curves.metrics()
    ]
    if not choices:
        app.notify("The log has no metrics yet.", markup=False)
        return

    def chosen(metric: str | None) -> None:
        if metric is not None:
            plot.choose(metric)

    app.push_screen(Chooser("metric", choices, plot.metric), chosen)


def show_samples(screen: Screen[Any], info: RunInfo) -> None:
    """Show the answers of a run's checkpoints as they come, or explain how to get some."""
    from backends.inference.samples import NAME, read
    from tui.screens.samples import SamplesScreen

    def failed(error: Exception) -> None:
        screen.app.notify(f"The samples cannot be read: {error}", severity="error", markup=False)

    def show(there: bool) -> None:
        if not there:
            words = 'No samples yet. Name prompts in mdk.toml before the run starts: [samples] prompts = ["Once"].'
            screen.app.notify(words, severity="warning", markup=False)
        elif screen.is_current:
            screen.app.push_screen(SamplesScreen(info.run, lambda: read(info.path), failed))

    in_background(screen, (info.path / NAME).exists, show, failed)


def choose_other(app: MdkApp, wanted: Watched) -> None:
    """Ask for another run, and open the comparison with it."""
    from backends.runs.side_by_side import subjects

    own = str(wanted.run.path if wanted.run else wanted.log)
    choices = [
        Choice(str(seen.info.path), seen.info.run, seen.info.title)
        for seen in app.runs or ()
        if seen.info.kind == "train" and str(seen.info.path) != own
    ]
    if not choices or isinstance(wanted.log, int):
        app.notify(
            "There is no other run in this workspace. To compare any two logs: mdk-tui compare A B",
            markup=False,
        )
        return

    def chosen(other: str | None) -> None:
        if other is not None:
            in_background(
                app, lambda: subjects(app.workspace, [own, other]), app.open_comparison, app.tell_failure
            )

    app.push_screen(Chooser("compare with", choices), chosen)


def choose_filter(app: App[Any], log: LogView) -> None:
    """Ask which lines are shown: all, one rank's, or warnings and errors."""
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

    app.push_screen(Chooser("show log lines", choices, current), chosen)


class SearchField(Input):
    """The search field in the last line: enter searches; esc, or losing the focus, closes it."""

    DEFAULT_CSS = "SearchField, SearchField:focus { dock: bottom; height: 1; border: none; padding: 0 1; background: $surface; }"
    BINDINGS = [("escape", "leave", "leave")]  # noqa: RUF012

    def __init__(self, log: LogView) -> None:
        super().__init__(
            log.search,
            placeholder="search the log; enter finds, n finds the next",
            select_on_focus=True,
            id="search",
        )
        self.cursor_blink = False
        self._log = log

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._log.look_for(event.value)
        self.action_leave()

    def action_leave(self) -> None:
        self.screen.set_focus(self._log)

    def on_blur(self) -> None:
        self.remove()


def ask_search(screen: Screen[Any], log: LogView) -> None:
    """Open the search field and give it the focus."""
    if not screen.query(SearchField):
        field = SearchField(log)
        screen.mount(field)
        screen.set_focus(field)  # at once, so that the next keys go into it
