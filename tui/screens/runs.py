"""Runs: all of them, newest first; open, resume, serve, stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from backends.errors import UserError
from backends.runs.catalog import RunInfo
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.workspace import Workspace
from tui.screens.confirm import Confirm
from tui.screens.run_list import RunWatch, phase_text, progress_text, when_text

COLUMNS = ("run", "phase", "kind", "iteration", "when", "what")


class RunsScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", id="runs.open", tooltip="The monitor on this run"),
        Binding("r", "resume", "resume", id="runs.resume", tooltip="Continue from its newest checkpoint; shows the command first"),
        Binding("v", "serve", "serve", id="runs.serve", tooltip="The text server on its newest checkpoint; shows the command first"),
        Binding("S", "stop", "stop…", id="runs.stop", tooltip="End this run; asks first"),
        Binding("escape", "app.go('home')", "back", key_display="esc", id="runs.back", tooltip="Home"),
    ]  # fmt: skip

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace
        self._infos: dict[str, RunInfo] = {}
        self._watch = RunWatch(self, workspace, self._came)

    def compose(self) -> ComposeResult:
        yield Static(
            Text.assemble((" mdk-tui", "bold"), f"  Runs   {self.workspace.runs}"), id="where", markup=False
        )
        table: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=False)
        yield table
        yield Static(id="reason", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for column in COLUMNS:
            table.add_column(column, key=column)
        table.focus()
        self._watch.start()

    def on_screen_suspend(self) -> None:
        self._watch.pause()

    def on_screen_resume(self) -> None:
        self._watch.resume()

    def _came(self, found: list[RunInfo]) -> None:
        """Only cells that changed are written again."""
        table: DataTable[Text] = self.query_one(DataTable)
        new = {info.run: info for info in found}
        if list(new) != list(self._infos):
            at = self._chosen()
            table.clear()
            for info in found:
                table.add_row(*_cells(info), key=info.run)
            if at is not None and at.run in new:
                table.move_cursor(row=list(new).index(at.run))
        else:
            for name, info in new.items():
                before = _cells(self._infos[name])
                for column, old, cell in zip(COLUMNS, before, _cells(info), strict=True):
                    if old != cell:
                        table.update_cell(name, column, cell)
        self._infos = new
        self._describe()

    def on_data_table_row_highlighted(self) -> None:
        self._describe()

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def _chosen(self) -> RunInfo | None:
        row = self.query_one(DataTable).cursor_row
        infos = list(self._infos.values())
        return infos[row] if 0 <= row < len(infos) else None

    def _describe(self) -> None:
        info = self._chosen()
        words = (
            "There are no runs yet: 3 starts one."
            if info is None
            else " · ".join(w for w in (info.reason, info.note, info.save) if w)
        )
        self.query_one("#reason", Static).update(
            Text(words or "", style="dim", no_wrap=True, overflow="ellipsis")
        )

    # What can be done with a run

    def action_open(self) -> None:
        if info := self._chosen():
            self.app.show_run(RunFolder(info.path))  # pyright: ignore[reportAttributeAccessIssue]

    def action_resume(self) -> None:
        info = self._chosen()
        if info is None or info.kind != "train" or not info.save:
            self.notify("Only a training run that saves can be resumed.", markup=False, severity="warning")
        elif not info.over:
            self.notify(f"{info.run} still runs.", markup=False, severity="warning")
        else:
            from backends.runs.planning import continue_plan

            save = Path(info.save)
            self._propose("Resume", lambda: continue_plan(self.workspace, save, ()))

    def action_serve(self) -> None:
        info = self._chosen()
        if info is None or info.kind != "train" or not info.save:
            self.notify("Choose a training run that saved a checkpoint.", markup=False, severity="warning")
            return
        from backends.runs.planning import free_port, serve_plan

        save = Path(info.save)
        self._propose("Serve", lambda: serve_plan(self.workspace, save, port=free_port()))

    def action_stop(self) -> None:
        info = self._chosen()
        if info is None or info.over:
            self.notify("This run is over.", markup=False, severity="warning")
        else:
            self.action_open()
            self.notify("S in the monitor stops it: it shows first what will happen.", markup=False)

    def _propose(self, title: str, make: Callable[[], RunPlan]) -> None:
        """Show the command of a plan; start it when confirmed. Planning and starting happen in a thread."""
        self.run_worker(lambda: self._plan(title, make), thread=True, exit_on_error=False, group="plan")

    def _plan(self, title: str, make: Callable[[], RunPlan]) -> None:
        from backends.launch.commands import commands

        try:
            plan = make()
            command = commands(plan, self.workspace)
        except UserError as error:
            self.app.call_from_thread(self.notify, str(error), severity="error", markup=False, timeout=12)
            return
        confirm = Confirm(title, f"{title} runs this, independent of this terminal:", command.argv)
        self.app.call_from_thread(
            self.app.push_screen, confirm, lambda yes: self._start(plan) if yes else None
        )

    def _start(self, plan: RunPlan) -> None:
        self.run_worker(
            lambda: start_and_show(self, plan, self.workspace),
            thread=True,
            exit_on_error=False,
            group="start",
        )


def start_and_show(screen: Screen[None], plan: RunPlan, workspace: Workspace) -> None:
    """In a thread: start `plan`, then open the monitor on it; a refusal becomes a toast."""
    from backends.launch.start import start

    app = screen.app
    try:
        folder = start(plan, workspace)
    except UserError as error:
        app.call_from_thread(app.notify, str(error), severity="error", markup=False, timeout=15)
        return
    app.call_from_thread(app.show_run, folder)  # pyright: ignore[reportAttributeAccessIssue]


def _cells(info: RunInfo) -> tuple[Text, ...]:
    return (
        Text(info.run),
        phase_text(info),
        Text(info.kind or "?"),
        Text(progress_text(info), justify="right"),
        Text(when_text(info)),
        Text(info.title, style="dim"),
    )
