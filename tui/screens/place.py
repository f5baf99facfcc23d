"""What the screens behind the digit keys have in common: first line, last line, and the runs as they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from backends.workspace import Workspace
from tui.background import in_background
from tui.bridge import Bridge
from tui.widgets.key_line import KeyLine
from tui.widgets.top_line import TopLine

if TYPE_CHECKING:
    from backends.runs.watching import SeenRun
    from tui.app import MdkApp

Result = TypeVar("Result")


class PlaceScreen(Screen[None]):
    """Subclasses define what is between the two lines (`content`) and what a change of the runs does (`runs_changed`)."""

    WHERE: ClassVar[str] = ""

    def __init__(self, workspace: Workspace, *, ascii_only: bool = False) -> None:
        super().__init__()
        self.workspace = workspace
        self.ascii_only = ascii_only

    @property
    def mdk(self) -> MdkApp:
        return cast("MdkApp", self.app)

    def in_background(self, work: Callable[[], Result], done: Callable[[Result], None]) -> Bridge[Result]:
        """`work` in a thread, then `done` with its result in the event loop. A failure is shown in a window."""
        return in_background(self, work, done, self.mdk.tell_failure)

    def content(self) -> Iterable[Widget]:
        raise NotImplementedError

    def runs_changed(self, runs: tuple[SeenRun, ...]) -> None:
        """Called in the event loop, with the runs newest first."""

    def compose(self) -> ComposeResult:
        yield TopLine(self.WHERE, str(self.workspace.root), id="where", ascii_only=self.ascii_only)
        yield from self.content()
        yield KeyLine()

    def on_mount(self) -> None:
        self.watch(self.app, "runs", self._runs_came)

    def _runs_came(self, runs: tuple[SeenRun, ...] | None) -> None:
        if runs is not None and self.query(TopLine):  # a screen that is being taken down has no lines left
            self.query_one(TopLine).update(runs)
            self.runs_changed(runs)
