"""The application: its screens and the keys to them, its look, and the watch over the runs. No feature logic."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen

from backends.errors import UserError
from backends.text import clean
from backends.workspace import Workspace
from tui.appearance import Appearance
from tui.bridge import Bridge
from tui.glyphs import plain_key
from tui.screens.page_actions import show_mlflow, show_tensorboard, stop_pages
from tui.survival import SurvivingApp
from tui.themes import THEMES

if TYPE_CHECKING:
    from backends.runs.folder import RunFolder
    from backends.runs.side_by_side import Subject
    from backends.runs.watching import SeenRun
    from tui.screens.monitor import MonitorScreen


@dataclass(frozen=True, slots=True)
class Opening:
    """The first screen. The monitor shows `run`, or `source` (a log, or the descriptor of a pipe), else the newest run; the
    comparison shows `compared`."""

    screen: str = "home"
    run: RunFolder | None = None
    source: Path | int | None = None
    compared: Sequence[Subject] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A screen that a digit opens. `screen`: its module in tui.screens and its class there."""

    name: str
    key: str
    title: str
    screen: str


PLACES = (
    Place("home", "1", "Home", "home.HomeScreen"),
    Place("setup", "2", "Set-up", "setup.SetupScreen"),
    Place("launch", "3", "Launch", "launch.LaunchScreen"),
    Place("monitor", "4", "Monitor", "monitor.MonitorScreen"),
    Place("prompt", "5", "Prompt", "prompt.PromptScreen"),
    Place("runs", "6", "Runs", "runs.RunsScreen"),
    Place("nodes", "7", "Nodes", "nodes.NodesScreen"),
    Place("resume", "8", "Resume", "resume.ResumeScreen"),
)


class MdkApp(SurvivingApp):
    """`runs` are the runs of the workspace, newest first, kept up to date by a thread; None until they were read once.

    `watch` yields the runs until its event is set; the default also gives a run whose supervisor was killed a new one.
    """

    TITLE = "mdk-tui"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(p.key, f"go('{p.name}')", p.title, show=False, id=f"app.{p.name}", tooltip="Go to " + ", ".join(place.title for place in PLACES))
            for p in PLACES
        ),
        Binding("escape", "back", "back", key_display="esc", show=False, id="app.back", tooltip="Leave a text field; go back to the previous screen"),
        Binding("question_mark", "help", "help", key_display="?", id="app.help", tooltip="Show what the keys of this screen do"),
        Binding("q", "quit", "quit", id="app.quit", tooltip="Quit; runs go on"),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, id="app.suspend", tooltip="Suspend mdk-tui; the shell's fg brings it back"),
        Binding("ctrl+p", "command_palette", "palette", priority=True, id="app.palette", tooltip="Find a command by name"),
    ]  # fmt: skip

    runs: reactive[tuple[SeenRun, ...] | None] = reactive(None, repaint=False)

    def __init__(
        self,
        workspace: Workspace,
        look: Appearance = Appearance(),  # noqa: B008
        opening: Opening = Opening(),
        *,
        watch: Callable[[threading.Event], Iterator[tuple[SeenRun, ...]]] | None = None,
    ) -> None:
        self.DEFAULT_MODE = opening.screen  # pyright: ignore[reportAttributeAccessIssue] (or Textual makes, styles and draws an empty screen first)
        # Textual chooses its colour filter here, before it knows the theme; the wrong one turns the default colour into black.
        super().__init__(ansi_color=True if look.own_colours else None)
        self.workspace = workspace
        self.ascii_only = look.ascii_only
        self.set_class(look.ascii_only, "-ascii")
        for theme in THEMES:
            self.register_theme(theme)
        if look.theme in self.available_themes:
            self.theme = look.theme
        if look.calm:
            self.animation_level = "none"
        self._opening = opening
        self._watch = watch or self._look_after_runs
        self._before: list[str] = []  # screens that esc leads back to
        self._monitor: MonitorScreen | None = None
        self._failed_place = opening.screen
        self._watch_ended = threading.Event()
        for name, factory in self._factories().items():
            self.add_mode(name, factory)

    def _factories(self) -> dict[str, Callable[[], Screen[Any]]]:
        """Each screen is imported when it is first shown, so that the first paint waits for one import only."""
        made = {place.name: partial(self._make, place.screen) for place in PLACES}
        return {**made, "monitor": self._make_monitor, "compare": self._make_comparison, "failure": _failure}

    def _make(self, screen: str) -> Screen[Any]:
        module, _, name = screen.partition(".")
        kind = getattr(importlib.import_module(f"tui.screens.{module}"), name)
        return kind(self.workspace, ascii_only=self.ascii_only)

    def _make_monitor(self) -> Screen[Any]:
        from tui.screens.monitor import MonitorScreen

        opening = self._opening
        self._monitor = MonitorScreen(self.workspace, opening.run, opening.source, ascii_only=self.ascii_only)
        return self._monitor

    def _make_comparison(self) -> Screen[Any]:
        from tui.screens.compare import CompareScreen

        return CompareScreen(self.workspace, self._opening.compared, ascii_only=self.ascii_only)

    def on_mount(self) -> None:
        self.call_after_refresh(self._start_watching)
        # After ctrl+z and fg the terminal is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))

    def on_unmount(self) -> None:
        self._watch_ended.set()

    # Runs.

    def _start_watching(self) -> None:
        ended = self._watch_ended
        Bridge(
            self,
            lambda: self._watch(ended),
            self._runs_came,
            close_source=ended.set,
            failed=self.tell_failure,
        ).start()

    def _look_after_runs(self, ended: threading.Event) -> Iterator[tuple[SeenRun, ...]]:
        from backends.launch.adoption import looked_after
        from backends.runs.watching import watch_runs

        yield from watch_runs(self.workspace, ended, lambda folder: looked_after(folder, self.workspace))

    def _runs_came(self, seen: tuple[SeenRun, ...]) -> None:
        self.runs = seen

    def open_run(self, run: RunFolder) -> None:
        """Open the monitor on `run`."""
        self._opening = Opening("monitor", run)
        if self._monitor is not None:
            self._monitor.look_at(run)
        self.action_go("monitor")

    def open_comparison(self, compared: Sequence[Subject]) -> None:
        """Open the comparison of runs and logs."""
        from tui.screens.compare import CompareScreen

        self._opening = replace(self._opening, compared=compared)
        self.action_go("compare")
        if isinstance(self.screen, CompareScreen) and self.screen.is_mounted:
            self.screen.look_at(compared)

    # Moving between screens.

    def action_go(self, place: str) -> None:
        if place == self.current_mode:
            return
        if self.current_mode in {p.name for p in PLACES}:
            self._before = [*(name for name in self._before if name != self.current_mode), self.current_mode]
        self.switch_mode(place)

    async def action_back(self) -> None:
        from textual.widgets import Input, TextArea

        if isinstance(self.focused, Input | TextArea):
            self.screen.set_focus(None)
        elif self._before:
            self.switch_mode(self._before.pop())
        elif self.current_mode != "home":
            self.switch_mode("home")

    def action_help(self) -> None:
        from tui.screens.help import HelpScreen

        title = next((p.title for p in PLACES if p.name == self.current_mode), "")
        self.push_screen(HelpScreen(title, self.screen.active_bindings.values()))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a dialog is open, only its own keys and quit work."""
        if isinstance(self.screen, ModalScreen):
            return action not in ("go", "back", "help")
        return True

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Everything that a key does here, and what has no key."""
        named: set[str] = set()
        for active in screen.active_bindings.values():
            binding = active.binding
            if (
                binding.id
                and active.enabled
                and not binding.id.startswith("app.")
                and binding.tooltip not in named
            ):
                named.add(binding.tooltip)
                act = partial(self.run_action, binding.action, active.node)
                yield SystemCommand(binding.tooltip, f"key {self.get_key_display(binding)}", act)
        for place in PLACES:
            go = partial(self.action_go, place.name)
            yield SystemCommand(f"Go to {place.title}", f"key {place.key}", go)
        yield SystemCommand("Open MLflow", "Start its pages and show the address", lambda: show_mlflow(self))
        yield SystemCommand(
            "Open TensorBoard",
            "Start it for the newest run and show the address",
            lambda: show_tensorboard(self),
        )
        yield SystemCommand("Close MLflow and TensorBoard", "End their servers", lambda: stop_pages(self))
        yield SystemCommand("Help", "Show what the keys of this screen do (key ?)", self.action_help)
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)
        yield SystemCommand("Quit", "Runs go on (key q)", self.action_quit)

    def get_key_display(self, binding: Binding) -> str:
        shown = super().get_key_display(binding)
        return plain_key(shown) if self.ascii_only else shown

    # Messages. Text from outside is never markup.

    def tell(self, text: str, *, warning: bool = False) -> None:
        """Show a toast."""
        self.notify(clean(text), severity="warning" if warning else "information", markup=False, timeout=6)

    def tell_failure(self, error: Exception) -> None:
        """Show a window whose text can be copied: what went wrong and what to try, or a report."""
        from tui.screens.details import Details

        if isinstance(error, UserError):
            title, text = "This did not work", "\n\n".join(filter(None, (error.message, error.remedy)))
        else:
            title, text = "Something failed in the background", self.note_failure(error)
        self.push_screen(Details(title, clean(text)))

    # Failures.

    async def replace_failed_screen(self) -> None:
        place = self.current_mode
        if place == "failure":
            return
        self._failed_place = place
        await self.switch_mode("failure")
        await self.remove_mode(place)
        self.add_mode(place, self._factories()[place])

    def action_try_again(self) -> None:
        """Leave the failure report and open the failed screen again, newly made."""
        self.switch_mode(self._failed_place)


def _failure() -> Screen[Any]:
    from tui.screens.failure import FailureScreen

    return FailureScreen()
