"""What screens that list runs have in common: the list has the focus, and what is marked can be resumed or served."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tui import run_actions
from tui.screens.place import PlaceScreen
from tui.widgets.listing import Listing

if TYPE_CHECKING:
    from backends.workspace import Workspace


class RunListScreen(PlaceScreen):
    """`now` tells runs of today from earlier ones."""

    def __init__(
        self, workspace: Workspace, *, ascii_only: bool = False, now: Callable[[], datetime] = datetime.now
    ) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._now = now

    def on_mount(self) -> None:
        self.query_one(Listing).focus()

    def resume(self, save: Path) -> None:
        """Show what going on from `save` would run; start it when it is wanted."""
        run_actions.propose(self.mdk, lambda: run_actions.resume_prospect(self.workspace, save))

    def serve(self, save: Path) -> None:
        """The same for a text server on it; the prompt then."""
        run_actions.propose(
            self.mdk,
            lambda: run_actions.serve_prospect(self.workspace, save),
            then=lambda run: self.mdk.action_go("prompt"),
        )
