"""Launch: choices at the left, what they mean at the right: problems, then the command word for word."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Input, Label, Select, Static

from backends.errors import UserError
from backends.models.presets import PRESETS, TINY, find
from backends.runs.plan import Problem, RunPlan
from backends.workspace import Workspace
from tui.screens.runs import start_and_show
from tui.widgets.clipboard import copy

FIELDS = (
    ("iterations", "--train-iters", "the preset's"),
    ("save base", "", "outputs/checkpoints"),
    ("more", "", "Megatron arguments"),
)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the choices would do. `refusal` instead of a plan where they make none."""

    plan: RunPlan | None
    command: str
    problems: tuple[Problem, ...]
    refusal: str = ""


class LaunchScreen(Screen[None]):
    DEFAULT_CSS = """
    LaunchScreen #form { width: 44; padding: 1 2; }
    LaunchScreen #outlook { width: 1fr; padding: 1 2; border-left: solid $primary 30%; }
    LaunchScreen Label { color: $text-muted; margin-top: 1; }
    LaunchScreen Input { border: none; height: 1; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+r",
            "launch",
            "launch",
            id="launch.start",
            tooltip="Run the command that is shown",
            priority=True,
        ),
        Binding("ctrl+y", "copy", "copy", id="launch.copy", tooltip="Copy the command", priority=True),
        Binding(
            "escape",
            "leave",
            "back",
            key_display="esc",
            id="launch.back",
            tooltip="Out of the field, then home",
        ),
    ]

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace
        self._outlook = Outlook(None, "", ())

    def compose(self) -> ComposeResult:
        yield Static(
            Text.assemble((" mdk-tui", "bold"), f"  Launch   {self.workspace.root}"), id="where", markup=False
        )
        with Horizontal():
            with VerticalScroll(id="form"):
                yield Label("preset")
                yield Select(
                    [(preset.name, name) for name, preset in PRESETS.items()],
                    value=TINY.name,
                    allow_blank=False,
                    id="preset",
                    compact=True,
                )
                for name, _, placeholder in FIELDS:
                    yield Label(name, markup=False)
                    field = Input(placeholder=placeholder, id=name.replace(" ", "-"))
                    field.cursor_blink = False
                    yield field
            with VerticalScroll(id="outlook"):
                yield Static("…", id="title", markup=False)
                yield Static("", id="problems", markup=False)
                yield Static("", id="command", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#preset").focus()
        self._look()

    def on_input_changed(self) -> None:
        self._look()

    def on_select_changed(self) -> None:
        self._look()

    def _look(self) -> None:
        """Work the outlook out again in a thread; of several only the newest counts."""
        name = str(self.query_one("#preset", Select).value)
        values = tuple(self.query_one(f"#{field[0].replace(' ', '-')}", Input).value for field in FIELDS)
        self.run_worker(
            lambda: self._work_out(name, values),
            thread=True,
            exclusive=True,
            exit_on_error=False,
            group="outlook",
        )

    def _work_out(self, name: str, values: tuple[str, ...]) -> None:
        outlook = outlook_of(self.workspace, name, *values, now=datetime.now())
        self.app.call_from_thread(self._show, name, outlook)

    def _show(self, name: str, outlook: Outlook) -> None:
        self._outlook = outlook
        self.query_one("#title", Static).update(Text(find(name).title, style="bold"))
        words = Text()
        if outlook.refusal:
            words.append(f"✗ {outlook.refusal}\n", style="red")
        for problem in outlook.problems:
            sign, style = ("✗", "red") if problem.severity == "error" else ("!", "yellow")
            words.append(f"\n{sign} {problem.message}", style=style)
            words.append(f"\n  {problem.remedy}")
        self.query_one("#problems", Static).update(words)
        self.query_one("#command", Static).update(Text(f"\n{outlook.command}"))

    def action_launch(self) -> None:
        plan, errors = self._outlook.plan, [p for p in self._outlook.problems if p.severity == "error"]
        if plan is None or errors:
            self.notify(self._outlook.refusal or errors[0].message, severity="error", markup=False)
            return
        self.run_worker(
            lambda: start_and_show(self, plan, self.workspace),
            thread=True,
            exclusive=True,
            exit_on_error=False,
            group="start",
        )

    def action_copy(self) -> None:
        self.notify(copy(self.app, self._outlook.command), markup=False)

    def action_leave(self) -> None:
        if isinstance(self.focused, Input):
            self.query_one("#preset").focus()
        else:
            self.app.action_go("home")  # pyright: ignore[reportAttributeAccessIssue]


def outlook_of(
    workspace: Workspace, name: str, iterations: str, base: str, more: str, *, now: datetime
) -> Outlook:
    """What these choices would run, and what speaks against it."""
    from backends.launch.commands import commands, problems
    from backends.runs.planning import new_save_folder, train_plan

    preset = find(name)
    try:
        changes = (("--train-iters", iterations.strip()) if iterations.strip() else ()) + tuple(
            shlex.split(more)
        )
        save = new_save_folder(
            Path(base.strip()).expanduser() if base.strip() else workspace.checkpoints, now
        )
        plan = train_plan(
            preset.trainer, preset.arguments, changes, save, preset=preset.name, title=preset.title
        )
        found = tuple(problems(plan, workspace))
        return Outlook(plan, shlex.join(commands(plan, workspace).argv), found)
    except UserError as error:
        return Outlook(None, "", (), str(error))
    except ValueError as error:
        return Outlook(None, "", (), f"The arguments cannot be read: {error}.")
