"""Launch: choices at the left; at the right what they mean: problems with remedies, then the command word for word."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Select, Static

from backends.errors import UserError
from backends.models.presets import PRESETS, TINY, find
from backends.text import clean
from tui.background import in_background
from tui.bridge import Bridge
from tui.glyphs import Glyphs, glyphs
from tui.screens.place import PlaceScreen
from tui.widgets.clipboard import copy

if TYPE_CHECKING:
    from backends.runs.plan import Problem, RunPlan
    from backends.workspace import Workspace

FIELDS = (("iterations", "as the preset says"), ("save", "outputs/checkpoints"), ("more", "none"))
LABELS = {"iterations": "iterations", "save": "save base", "more": "more Megatron arguments"}


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the choices would do. `refusal` instead of a plan where they make none."""

    plan: RunPlan | None
    command: str
    problems: tuple[Problem, ...]
    refusal: str = ""

    @property
    def forbidden(self) -> str:
        """Why it cannot be started; "" when it can."""
        error = next((problem.message for problem in self.problems if problem.severity == "error"), "")
        return self.refusal or error


class LaunchScreen(PlaceScreen):
    WHERE = "Launch"
    CSS = """
    LaunchScreen #form { width: 40%; max-width: 44; padding: 1 2 0 1; }
    LaunchScreen #outlook { width: 1fr; padding: 1 1 0 2; }
    LaunchScreen Label { color: $foreground 55%; margin-top: 1; }
    LaunchScreen Input, LaunchScreen Input:focus { border: none; height: 1; padding: 0 1; background: $surface; }
    LaunchScreen Input:focus { background: $primary 30%; }
    LaunchScreen #command { color: $foreground 70%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "launch", "launch", id="launch.start", tooltip="Start what is shown; nothing else does", priority=True),
        Binding("ctrl+y", "copy", "copy", id="launch.copy", tooltip="Copy the command", priority=True),
    ]  # fmt: skip

    def __init__(self, workspace: Workspace, *, ascii_only: bool = False) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._outlook: Outlook | None = None
        self._working: Bridge[Outlook] | None = None

    def content(self) -> Iterable[Widget]:
        with Horizontal():
            with VerticalScroll(id="form", can_focus=False):
                yield Label("preset", markup=False)
                options = [(name, name) for name in PRESETS]
                yield Select(options, value=TINY.name, allow_blank=False, id="preset", compact=True)
                for name, placeholder in FIELDS:
                    yield Label(LABELS[name], markup=False)
                    field = Input(placeholder=placeholder, id=name)
                    field.cursor_blink = False
                    yield field
            with VerticalScroll(id="outlook"):
                yield Static("", id="title", markup=False)
                yield Static("", id="problems", markup=False)
                yield Static("", id="command", markup=False)

    def on_mount(self) -> None:
        self.query_one("#preset").focus()
        self._look()

    def on_screen_resume(self) -> None:
        self._look()  # the dated folder is of now

    def on_input_changed(self) -> None:
        self._look()

    def on_select_changed(self) -> None:
        self._look()

    def _look(self) -> None:
        """Work the outlook out again in a thread; of several only the newest counts."""
        if self._working is not None:
            self._working.close()
        self._outlook = None
        name = str(self.query_one("#preset", Select).value)
        iterations, base, more = (self.query_one(f"#{field}", Input).value for field, _ in FIELDS)
        self._working = in_background(
            self,
            lambda: outlook_of(self.workspace, name, iterations, base, more, now=datetime.now()),
            lambda outlook: self._show(name, outlook),
            self.mdk.tell_failure,
        )

    def _show(self, name: str, outlook: Outlook) -> None:
        self._outlook = outlook
        self.query_one("#title", Static).update(Text(find(name).title, style="bold"))
        self.query_one("#problems", Static).update(problem_text(outlook, glyphs(self.ascii_only)))
        self.query_one("#command", Static).update(Text(f"\n{outlook.command}"))

    def action_launch(self) -> None:
        outlook = self._outlook
        if outlook is None:
            self.mdk.tell("Still working out what that would run: press it again.", warning=True)
        elif outlook.plan is None or outlook.forbidden:
            self.mdk.tell(outlook.forbidden, warning=True)
        else:
            from backends.launch.start import start

            plan = outlook.plan
            self.mdk.tell("Starting the run.")
            in_background(self, lambda: start(plan, self.workspace), self.mdk.open_run, self.mdk.tell_failure)

    def action_copy(self) -> None:
        if self._outlook is not None:
            self.mdk.tell(copy(self.app, self._outlook.command))


def problem_text(outlook: Outlook, sign: Glyphs) -> Content:
    """Problems with their remedies; what forbids to start first."""
    parts: list[tuple[str, str]] = []
    if outlook.refusal:
        parts.append((f"\n{sign.failed} {clean(outlook.refusal)}\n", "$text-error"))
    for problem in sorted(outlook.problems, key=lambda problem: problem.severity != "error"):
        mark, style = (sign.failed, "$text-error") if problem.severity == "error" else ("!", "$text-warning")
        parts += [(f"\n{mark} {clean(problem.message)}", style), (f"\n  {clean(problem.remedy)}\n", "")]
    return Content.assemble(*parts)


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
        return Outlook(plan, clean(shlex.join(commands(plan, workspace).argv)), found)
    except UserError as error:
        return Outlook(None, "", (), str(error))
    except ValueError as error:
        return Outlook(None, "", (), f"The arguments cannot be read: {error}.")
