"""The keys of the monitor: what each does, and when it is available."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.reactive import reactive

from tui.screens.live_panes import LivePanes
from tui.widgets.attention import AttentionPanel
from tui.widgets.clipboard import copy
from tui.widgets.log_view import LogView
from tui.widgets.plot import Plot

if TYPE_CHECKING:
    from tui.app import MdkApp
    from tui.screens.monitor_model import MonitorModel


class MonitorKeys(LivePanes):
    """A screen with the panes of the monitor. `model` is None until something was found; while `held`, nothing new is drawn."""

    model: MonitorModel | None = None
    held: reactive[bool] = reactive(False, repaint=False, init=False)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "metric", "metric", id="monitor.metric", tooltip="Choose the metric of the focused plot"),
        Binding("slash", "search", "find", key_display="/", priority=True, id="monitor.search", tooltip="Search the log"),
        Binding("f", "filter", "filter", id="monitor.filter", show=False, tooltip="Show only one rank, or only warnings and errors"),
        Binding("c", "compare", "compare", id="monitor.compare", tooltip="Compare this run with another one"),
        Binding("a", "samples", "answers", id="monitor.samples", tooltip="Show how the answers to fixed prompts changed over the checkpoints"),
        Binding("S", "stop", "stop", id="monitor.stop", tooltip="Stop the run, after asking"),
        Binding("R", "again", "again", show=False, id="monitor.again", tooltip="Stop the run and start it again, after asking"),
        Binding("space", "pause", "pause", show=False, id="monitor.pause", tooltip="Pause the view, or continue; nothing is lost meanwhile"),
        Binding("escape", "leave", "back", key_display="esc", id="monitor.leave", tooltip="End the crosshair, the search or the zoom", show=False),
    ]  # fmt: skip

    def action_leave(self) -> None:
        """End the crosshair, else the search, else the zoom; else esc goes to the application."""
        log, plot = self.query_one(LogView), self.focused
        if isinstance(plot, Plot) and (plot.view.crosshair is not None or plot.view.window):
            plot.action_whole()
        elif log.search:
            log.look_for("")
        elif self.zoomed:
            self.zoom_pane(None)
        else:
            raise SkipAction()

    def action_pause(self) -> None:
        """Pause all panes, or draw what came meanwhile."""
        self.held = not self.held

    def action_metric(self) -> None:
        from tui.screens.monitor_choices import choose_metric

        plot = self.focused if isinstance(self.focused, Plot) else self.query_one("#loss", Plot)
        if self.model is not None:
            choose_metric(self.app, plot, self.model.curves)

    def action_compare(self) -> None:
        from tui.screens.monitor_choices import choose_other

        if self.model is not None and self.model.wanted is not None:
            choose_other(cast("MdkApp", self.app), self.model.wanted)

    def action_samples(self) -> None:
        from tui.screens.monitor_choices import show_samples

        if self.model is not None and self.model.info is not None:
            show_samples(self, self.model.info)

    def action_search(self) -> None:
        from tui.screens.monitor_choices import ask_search

        ask_search(self, self.query_one(LogView))

    def action_filter(self) -> None:
        from tui.screens.monitor_choices import choose_filter

        choose_filter(self.app, self.query_one(LogView))

    def on_log_view_search_asked(self) -> None:
        self.action_search()

    def on_log_view_filter_asked(self) -> None:
        self.action_filter()

    def on_log_view_copied(self, message: LogView.Copied) -> None:
        copy(self.app, message.text)

    def on_log_view_opened(self, message: LogView.Opened) -> None:
        line = message.line
        rank = "" if line.rank is None else f", rank {line.rank}"
        self._show_whole(f"line {line.number:,}{rank}", line.text)

    def on_attention_panel_opened(self, message: AttentionPanel.Opened) -> None:
        self._show_whole("attention", message.entry.whole())

    def on_attention_panel_pointed(self, message: AttentionPanel.Pointed) -> None:
        """Show an entry's line in the log pane, also when another pane fills the screen."""
        log = self.query_one(LogView)
        if self.zoomed:
            self.zoom_pane("log")
        self.set_focus(log)
        self.call_after_refresh(log.go_to, message.line)  # its size may be new

    def on_attention_panel_copied(self, message: AttentionPanel.Copied) -> None:
        copy(self.app, message.text)

    def _show_whole(self, title: str, text: str) -> None:
        from tui.screens.details import Details

        self.app.push_screen(Details(title, text))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "search":  # has priority, so that the keys after it go into the field
            return not self.query("#search")
        info = self.model.info if self.model else None
        if action == "samples":
            return info is not None and info.kind == "train"
        return action not in ("stop", "again") or (info is not None and not info.over)

    def action_again(self) -> None:
        from tui.screens.run_actions import start_again

        if self.model is not None and self.model.info is not None:
            start_again(cast("MdkApp", self.app), self.model.info)

    def action_stop(self) -> None:
        from tui.screens.run_actions import ask_stop

        if self.model is not None and self.model.info is not None:
            ask_stop(cast("MdkApp", self.app), self.model.info)
