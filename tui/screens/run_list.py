"""What Home and Runs have in common: a list with the focus, whose runs can be resumed and served."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tui.screens import run_actions
from tui.screens.place import PlaceScreen
from tui.widgets.listing import Listing

if TYPE_CHECKING:
    from backends.workspace import Workspace


class RunListScreen(PlaceScreen):
    """`now`: the clock, which tells the runs of today from earlier ones."""

    def __init__(
        self, workspace: Workspace, *, ascii_only: bool = False, now: Callable[[], datetime] = datetime.now
    ) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._now = now

    def on_mount(self) -> None:
        self.query_one(Listing).focus()

    def resume(self, save: Path) -> None:
        run_actions.resume(self.mdk, save)

    def serve(self, save: Path) -> None:
        """Serve the newest checkpoint of `save`, then go to Prompt."""
        run_actions.serve(self.mdk, save, then=lambda run: self.mdk.action_go("prompt"))
