"""What the screens that digits lead to have in common: the first line, the last line, the runs as they change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from backends.workspace import Workspace
from tui.widgets.key_line import KeyLine
from tui.widgets.top_line import TopLine

if TYPE_CHECKING:
    from backends.runs.watching import SeenRun
    from tui.app import MdkApp


class PlaceScreen(Screen[None]):
    """Subclasses say what is between the lines (`content`) and what to do when the runs changed (`runs_changed`)."""

    WHERE: ClassVar[str] = ""

    def __init__(self, workspace: Workspace, *, ascii_only: bool = False) -> None:
        super().__init__()
        self.workspace = workspace
        self.ascii_only = ascii_only

    @property
    def mdk(self) -> MdkApp:
        return cast("MdkApp", self.app)

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
