"""Launch: the choices at the left; at the right what they mean: problems, estimate and command, always in view.

The choices become a plan in a thread, anew with every key; of several only the newest counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from backends.models.presets import PRESETS, Preset
from backends.models.problem import Problem
from backends.text import clean
from tui.background import in_background
from tui.bridge import Bridge
from tui.glyphs import glyphs
from tui.screens import launch_words
from tui.screens.edit_command import EditCommand
from tui.screens.launch_answer import Answer, answer_of, beginning_of
from tui.screens.launch_form import LaunchForm, changed
from tui.screens.launch_rows import Changed
from tui.screens.place import PlaceScreen
from tui.widgets.clipboard import copy

if TYPE_CHECKING:
    from backends.launch.choices import Choices
    from backends.runs.folder import RunFolder
    from backends.telemetry.readings import GpuReading
    from backends.workspace import Workspace

PAUSE = 0.06  # s without a key before the preview is worked out
EDITED = "The command was edited, so the form is not used. u goes back to the form.\n"
GPUS_AGE = 30.0  # s after which the GPUs are asked again when the screen is opened


class LaunchScreen(PlaceScreen):
    """`read_gpus` and `now`: the driver and the clock."""

    WHERE = "Launch"
    CSS_PATH = "launch.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "launch", "launch", id="launch.start", tooltip="Start the run that is shown", priority=True),
        Binding("ctrl+t", "remedy", "take the remedy", id="launch.remedy", tooltip="Apply the remedy of the marked row, or of the first problem", priority=True),
        Binding("e", "edit", "edit", id="launch.edit", tooltip="Edit the command (esc leaves a text field first)"),
        Binding("u", "undo", "undo edit", id="launch.undo", tooltip="Discard the edited command and go back to the form"),
        Binding("y", "copy", "copy", id="launch.copy", tooltip="Copy the command"),
        Binding("ctrl+y", "copy", "copy", show=False, id="launch.copy_too", tooltip="Copy the command, also from a text field", priority=True),
        Binding("z", "zoom", "zoom", id="launch.zoom", tooltip="Show only the preview at the right, or the form again"),
        Binding("pageup", "scroll(-1)", "up", show=False, id="launch.up", tooltip="Scroll the preview", priority=True),
        Binding("pagedown", "scroll(1)", "down", show=False, id="launch.down", tooltip="Scroll the preview", priority=True),
        Binding("up", "row(-1)", "row above", show=False, id="launch.above", tooltip="Go to the row above or below"),
        Binding("down", "row(1)", "row below", show=False, id="launch.below", tooltip="Go to the row above or below"),
    ]  # fmt: skip

    def __init__(
        self,
        workspace: Workspace,
        *,
        ascii_only: bool = False,
        read_gpus: Callable[[], tuple[GpuReading, ...] | None] | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        super().__init__(workspace, ascii_only=ascii_only)
        self._read_gpus = read_gpus
        self._now = now
        self._presets: dict[str, Preset] = dict(PRESETS)
        self._gpus: tuple[GpuReading, ...] | None = None
        self._asked = float("-inf")
        self._edited: str | None = None  # the command as it was edited by hand
        self._starting = False
        self._answer: Answer | None = None
        self._choices: Choices | None = None  # until the first are there
        self._launchers: list[str] = []
        self._mlflow = False
        self._working: Bridge[Answer] | None = None
        self._soon: Timer | None = None
        self._last_row: Widget | None = None

    # The choices.

    def content(self) -> Iterable[Widget]:
        with Horizontal():
            yield LaunchForm(id="form", ascii_only=self.ascii_only)
            with Vertical(id="right"):
                yield Static("", id="title", markup=False)
                yield Static("", id="gist", markup=False)
                with VerticalScroll(id="preview"):
                    yield Static(EDITED, id="edited", markup=False)
                    yield Static("", id="problems", markup=False)
                    yield Static("", id="estimate", markup=False)
                    yield Static("", id="command", markup=False)

    def on_mount(self) -> None:
        self.set_class(not self.workspace.megatron.is_dir(), "-demo")
        self._write("title", "working out the command")
        self.query_one("#row-preset").focus()
        self.in_background(lambda: beginning_of(self.workspace), self._begin)
        self.in_background(self._all_presets, self._presets_came)
        self._ask_gpus()

    def _begin(self, beginning: tuple[Choices, list[str], bool]) -> None:
        self._choices, self._launchers, self._mlflow = beginning
        self._offer()
        self._look()

    def _offer(self) -> None:
        if self._choices is not None:
            chosen = self._choices.preset.name
            self._form.offer(self._presets, chosen, self._launchers, mlflow=self._mlflow)

    def on_screen_resume(self) -> None:
        if self._choices is not None:
            self._ask_gpus()
            self._look()  # the name of the dated folder comes from the clock

    def on_descendant_focus(self) -> None:
        self._last_row = self.focused

    def _all_presets(self) -> dict[str, Preset]:
        from backends.models.presets import all_presets

        return all_presets(self.workspace)

    def _presets_came(self, presets: dict[str, Preset]) -> None:
        self._presets = presets
        self._offer()

    @property
    def _form(self) -> LaunchForm:
        return self.query_one(LaunchForm)

    def _ask_gpus(self) -> None:
        from backends.launch.facts import read_gpus

        if time.monotonic() - self._asked >= GPUS_AGE:
            self._asked = time.monotonic()
            self.in_background(self._read_gpus or read_gpus, self._gpus_came)

    def _gpus_came(self, gpus: tuple[GpuReading, ...] | None) -> None:
        self._gpus = gpus
        self._look()

    # The preview.

    def on_changed(self, event: Changed) -> None:
        event.stop()
        if self._choices is not None:
            self._choices = changed(self._choices, self._presets, event)
            self._look()

    def _look(self) -> None:
        """Work the preview out again, after a short time without another change."""
        if self._working is not None:
            self._working.close()
        if self._soon is not None:
            self._soon.stop()
        self._answer = None
        self._soon = self.set_timer(PAUSE, self._work)

    def _work(self) -> None:
        choices, gpus, edited, now = self._choices, self._gpus, self._edited, self._now()
        if choices is None:
            return
        self._working = self.in_background(
            lambda: answer_of(choices, self.workspace, gpus, edited, now), self._show
        )

    def _show(self, answer: Answer) -> None:
        choices = cast("Choices", self._choices)
        self._answer = answer
        sign = glyphs(self.ascii_only)
        self.set_class(choices.demo, "-demo")
        self.set_class(self._edited is not None, "-edited")
        self._form.disabled = self._edited is not None
        self._write("title", clean(choices.preset.title))
        self._write("gist", launch_words.gist(answer.problems, answer.preview, sign))
        self._write("problems", launch_words.problem_text(answer.problems, sign))
        preview = answer.preview
        self._write("estimate", launch_words.estimate_text(preview, self._now()) if preview else "")
        self._write("command", clean(preview.command.shell()) if preview else "")
        self._form.show(choices, answer)
        self.refresh_bindings()

    def _write(self, name: str, text: object) -> None:
        """Update the text only if it changed, so that nothing is sent to the terminal otherwise."""
        static = self.query_one(f"#{name}", Static)
        if static.content != text:
            static.update(text)  # pyright: ignore[reportArgumentType]

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if not self.is_mounted:  # keys may come before the form does
            return False
        if action == "undo":
            return self._edited is not None
        if action == "remedy":
            return self._edited is None and self._remedy() is not None
        return True

    def _remedy(self) -> Problem | None:
        """The problem of the marked row, else the first one whose remedy can be applied."""
        from backends.launch.form_fields import field_of

        problems = [problem for problem in (self._answer.problems if self._answer else ()) if problem.fix]
        marked = self._form.marked
        return next(
            (problem for problem in problems if field_of(problem.field) == marked),
            problems[0] if problems else None,
        )

    def action_remedy(self) -> None:
        from backends.launch.choices import with_remedy

        if (problem := self._remedy()) is not None and problem.fix and self._choices is not None:
            self._choices = with_remedy(self._choices, problem.fix, self._presets)
            self._look()

    def action_launch(self) -> None:
        answer = self._answer
        if self._starting:
            self.mdk.tell("The run is being started.")
        elif answer is None:
            self.mdk.tell("The command is still being worked out: press it again.", warning=True)
        elif answer.preview is None or answer.preview.forbidden is not None:
            wrong = answer.problems[0]
            self.mdk.tell(f"{wrong.message} {wrong.remedy}", warning=True)
        else:
            preview = answer.preview
            self._starting = True
            self.mdk.tell("Starting the run.")
            in_background(self, lambda: preview.start(self.workspace), self._started, self._not_started)

    def _started(self, run: RunFolder) -> None:
        self._starting = False
        self._edited = None
        self._answer = None  # each run needs a new preview: its folder and its port differ
        self.mdk.open_run(run)

    def _not_started(self, error: Exception) -> None:
        self._starting = False
        self.mdk.tell_failure(error)

    def action_edit(self) -> None:
        from backends.launch.editing import check_edited, editable

        if self._answer is not None and (preview := self._answer.preview) is not None:
            text = self._edited or editable(preview.command)
            self.app.push_screen(EditCommand(text, check_edited), self._edit_ended)

    def _edit_ended(self, text: str | None) -> None:
        if text is not None:
            self._edited = text
            self._look()

    def action_undo(self) -> None:
        self._edited = None
        self._look()

    def action_copy(self) -> None:
        if self._answer is not None and self._answer.preview is not None:
            copy(self.app, self._answer.preview.command.shell())

    def action_zoom(self) -> None:
        self.toggle_class("-zoomed")
        self.set_focus(self.query_one("#preview" if self.has_class("-zoomed") else "#row-preset"))

    def action_scroll(self, pages: int) -> None:
        pane = self.query_one("#preview", VerticalScroll)
        pane.scroll_relative(y=pages * max(1, pane.size.height - 2), animate=False)

    def action_row(self, step: int) -> None:
        """Go to the next row; if esc has left the form, back to the row before that."""
        if self.focused is None and self._last_row is not None:
            self.set_focus(self._last_row)
        elif step > 0:
            self.focus_next()
        else:
            self.focus_previous()
