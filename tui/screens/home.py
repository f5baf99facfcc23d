"""Home: what runs, what ran, what to do next."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from backends.runs.catalog import RunInfo
from backends.workspace import Workspace
from tui.screens.run_list import RunWatch, phase_text, progress_text, when_text

SHOWN = 6  # runs that ran


class HomeScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "do what is next", id="home.next", tooltip="Do what is proposed as next"),
        Binding("3", "app.go('launch')", "launch", id="home.launch", tooltip="Start a run"),
        Binding("4", "app.go('monitor')", "monitor", id="home.monitor", tooltip="Watch the newest run"),
        Binding("5", "app.go('prompt')", "prompt", id="home.prompt", tooltip="Talk to a model"),
        Binding("6", "app.go('runs')", "runs", id="home.runs", tooltip="All runs"),
    ]
    DEFAULT_CSS = """
    HomeScreen VerticalScroll { padding: 1 2; }
    HomeScreen .head { color: $text-muted; margin-top: 1; }
    """

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace
        self._runs: list[RunInfo] | None = None
        self._watch = RunWatch(self, workspace, self._came)

    def compose(self) -> ComposeResult:
        yield Static(id="where", markup=False)
        with VerticalScroll():
            yield Static("Running", classes="head")
            yield Static("…", id="running", markup=False)
            yield Static("Next", classes="head")
            yield Static("…", id="next", markup=False)
            yield Static("Ran", classes="head")
            yield Static("…", id="ran", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#where", Static).update(
            Text.assemble((" mdk-tui", "bold"), f"  Home   {self.workspace.root}")
        )
        self._watch.start()

    def on_screen_suspend(self) -> None:
        self._watch.pause()

    def on_screen_resume(self) -> None:
        self._watch.resume()

    def _came(self, found: list[RunInfo]) -> None:
        if found == self._runs:
            return
        self._runs = found
        alive, over = [i for i in found if not i.over], [i for i in found if i.over]
        self.query_one("#running", Static).update(_lines(alive) if alive else Text("nothing", style="dim"))
        self.query_one("#ran", Static).update(
            _lines(over[:SHOWN]) if over else Text("nothing yet", style="dim")
        )
        self.query_one("#next", Static).update(proposal(found)[1])

    def action_next(self) -> None:
        what = proposal(self._runs or [])[0]
        if what == "resume":
            self.app.action_go("runs")  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self.app.action_go(what)  # pyright: ignore[reportAttributeAccessIssue]


def _lines(infos: list[RunInfo]) -> Text:
    rows = [
        Text.assemble(
            f"{i.run}  ", phase_text(i), f"  {progress_text(i):>16}  {when_text(i):<16}  ", (i.title, "dim")
        )
        for i in infos
    ]
    return Text("\n").join(rows)


def proposal(infos: list[RunInfo]) -> tuple[str, Text]:
    """(the screen that `enter` opens, what is said): what a person would do now."""
    alive = [i for i in infos if not i.over]
    trains = [i for i in alive if i.kind == "train"]
    if trains:
        more = "   5  talk to it" if any(i.kind == "serve" and i.address for i in alive) else ""
        return "monitor", Text(f"enter  watch {trains[0].run}{more}")
    if any(i.kind == "serve" and i.address for i in alive):
        return "prompt", Text("enter  talk to the model that answers now")
    last = next((i for i in infos if i.kind == "train"), None)
    if last is None:
        return "launch", Text("enter  start a run: the preset tiny needs no GPU and learns within a minute")
    if last.phase in ("failed", "lost"):
        why = f"  ({last.reason})" if last.reason else ""
        return "resume", Text(
            f"enter  {last.run} {last.phase}{why}: resume it from its last checkpoint (6, then r)"
        )
    return "runs", Text(f"enter  {last.run} is finished: serve it, or train it further (6)")
