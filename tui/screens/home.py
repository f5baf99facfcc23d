"""Home: what runs, what to do next, what ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget

from tui.background import in_background
from tui.glyphs import glyphs
from tui.screens import home_view, run_actions
from tui.screens.run_list import RunListScreen
from tui.widgets.listing import Listing

if TYPE_CHECKING:
    from backends.runs.watching import SeenRun
    from backends.workspace import Workspace


class HomeScreen(RunListScreen):
    WHERE = "Home"
    CSS = "HomeScreen Listing { margin: 1 1 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "open", id="home.take", tooltip="Do what is marked: open a run, take a step"),
        Binding("a", "step('watch')", "watch", id="home.watch", tooltip="The monitor on what trains"),
        Binding("r", "step('resume')", "resume", id="home.resume", tooltip="Go on from the last checkpoint of the run that ended badly; the command is shown first"),
        Binding("t", "step('talk')", "talk", id="home.talk", tooltip="Talk to the model that is served"),
        Binding("v", "step('serve')", "serve", id="home.serve", tooltip="Serve the newest checkpoint; the command is shown first"),
        Binding("d", "step('demo')", "demo", id="home.demo", tooltip="Train a tiny GPT here; the command is shown first"),
        Binding("s", "step('setup')", "set-up", id="home.setup", tooltip="The steps from a bare server to data"),
        Binding("n", "step('launch')", "new run", id="home.launch", tooltip="Choose and start a run"),
        Binding("6", "app.go('runs')", "all runs", id="home.runs", tooltip="Go to Runs"),
    ]  # fmt: skip

    def __init__(
        self, workspace: Workspace, *, ascii_only: bool = False, now: Callable[[], datetime] = datetime.now
    ) -> None:
        super().__init__(workspace, ascii_only=ascii_only, now=now)
        self._runs: tuple[SeenRun, ...] | None = None
        self._set_up: bool | None = None  # whether Megatron-LM is there; None until it was looked
        self._steps: dict[str, home_view.Step] = {}

    def content(self) -> Iterable[Widget]:
        yield Listing(id="list", ascii_only=self.ascii_only)

    def on_mount(self) -> None:
        self._show()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show)  # the rows depend on the width

    def on_screen_resume(self) -> None:
        self._show()
        in_background(self, self.workspace.megatron.is_dir, self._looked, self.mdk.tell_failure)

    def _looked(self, set_up: bool) -> None:
        self._set_up = set_up
        self._show()

    def runs_changed(self, runs: tuple[SeenRun, ...]) -> None:
        self._runs = runs
        self._show()

    def _show(self) -> None:
        runs, set_up = self._runs, bool(self._set_up)
        if self._set_up is None:
            runs = None  # the steps are shown once, when all is known
        found = home_view.steps(runs, set_up=set_up) if runs is not None else []
        if [step.deed for step in found] != list(self._steps):
            self.call_after_refresh(self.refresh_bindings)
        self._steps = {step.deed: step for step in found}
        listing = self.query_one(Listing)
        listing.update(
            home_view.rows(runs, glyphs(self.ascii_only), self._now(), listing.body_size[0], set_up=set_up)
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return parameters[0] in self._steps if action == "step" else True

    def action_take(self) -> None:
        kind, _, what = (self.query_one(Listing).marked or "").partition(":")
        if kind == "run":
            from backends.runs.folder import RunFolder

            self.mdk.open_run(RunFolder(Path(what)))
        elif kind == "step":
            self.action_step(what)

    def action_step(self, deed: str) -> None:
        """Take a step. Steps that start something ask first."""
        from backends.runs.folder import RunFolder

        step = self._steps[deed]
        save = Path(step.run.info.save or "") if step.run else Path()
        if step.deed == "watch" and step.run:
            self.mdk.open_run(RunFolder(step.run.info.path))
        elif step.deed == "talk":
            self.mdk.action_go("prompt")
        elif step.deed in ("launch", "setup"):
            self.mdk.action_go(step.deed)
        elif step.deed == "resume":
            self.resume(save)
        elif step.deed == "serve":
            self.serve(save)
        elif step.deed == "demo":
            run_actions.demo(self.mdk)
