"""The application: which screens there are, how they are reached, themes. No feature logic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from backends.workspace import Workspace

MODES_IN_ORDER = (
    ("home", "1", "Home"),
    ("launch", "3", "Launch"),
    ("monitor", "4", "Monitor"),
    ("prompt", "5", "Prompt"),
    ("runs", "6", "Runs"),
)


class MdkApp(App[None]):
    """`first` is the screen to begin with; `run` or `source` say what its monitor shows.

    `environment` decides about colours and animations; `ascii_only` draws with letters alone.
    """

    TITLE = "mdk-tui"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(key, f"go('{mode}')", title, show=False, id=f"app.{mode}", tooltip=f"Go to {title}")
            for mode, key, title in MODES_IN_ORDER
        ),
        Binding("question_mark", "help", "help", key_display="?", id="app.help", tooltip="What the keys of this screen do"),
        Binding("q", "leave", "quit", id="app.quit", tooltip="Leave; runs go on"),
        Binding("ctrl+q", "leave", "quit", show=False, id="app.quit_always", tooltip="Leave, from a text field too"),
    ]  # fmt: skip

    def __init__(
        self,
        workspace: Workspace,
        *,
        first: str = "home",
        run: Any = None,
        source: Path | int | None = None,
        environment: Mapping[str, str] | None = None,
        ascii_only: bool = False,
        theme: str | None = None,
    ) -> None:
        super().__init__()
        self.workspace = workspace
        self.ascii_only = ascii_only
        self._wish = (run, source)
        self._first = first
        given = environment or {}
        if given.get("SSH_CONNECTION") or given.get("SSH_TTY"):
            self.animation_level = "none"
        if theme:
            self.theme = theme
        elif "NO_COLOR" in given:
            self.theme = "ansi-dark"  # NO_COLOR alone still leaves greys
        for mode, factory in self._factories().items():
            self.add_mode(mode, factory)

    def _factories(self) -> dict[str, Callable[[], Screen[Any]]]:
        """Each screen is imported when it is first shown: the first paint waits for one of them only."""
        workspace, plain = self.workspace, self.ascii_only

        def home() -> Screen[Any]:
            from tui.screens.home import HomeScreen

            return HomeScreen(workspace)

        def launch() -> Screen[Any]:
            from tui.screens.launch import LaunchScreen

            return LaunchScreen(workspace)

        def monitor() -> Screen[Any]:
            from tui.screens.monitor import MonitorScreen, Snapshots

            run, source = self._wish
            telemetry = None if source is not None else Snapshots
            return MonitorScreen(workspace, run, source, telemetry=telemetry, ascii_only=plain)

        def prompt() -> Screen[Any]:
            from tui.screens.prompt import PromptScreen

            return PromptScreen(workspace)

        def runs() -> Screen[Any]:
            from tui.screens.runs import RunsScreen

            return RunsScreen(workspace)

        return {"home": home, "launch": launch, "monitor": monitor, "prompt": prompt, "runs": runs}

    def on_mount(self) -> None:
        self.switch_mode(self._first)

    def action_go(self, mode: str) -> None:
        self.switch_mode(mode)

    def show_run(self, run: Any) -> None:
        """The monitor on `run` (a RunFolder)."""
        from tui.screens.monitor import MonitorScreen
        from tui.screens.monitor_sources import watched

        self._wish = (run, None)
        stack = self._screen_stacks.get("monitor")
        self.switch_mode("monitor")
        if stack and isinstance(stack[0], MonitorScreen):
            stack[0].watch_what(watched(self.workspace, run, None))

    def action_help(self) -> None:
        from tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self.screen))

    def action_leave(self) -> None:
        self.exit()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for mode, _, title in MODES_IN_ORDER:
            yield SystemCommand(title, f"Go to {title}", lambda mode=mode: self.action_go(mode))
        yield SystemCommand("Keys", "What the keys of this screen do", self.action_help)
        yield SystemCommand("Theme", "Choose other colours", self.action_change_theme)
        yield SystemCommand("Quit", "Leave; runs go on", self.action_leave)
