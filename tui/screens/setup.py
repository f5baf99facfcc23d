"""Set-up: the steps from a bare server to the data, each with its state, its commands and their progress.

The commands run as jobs of their own (backends/setup/job.py), which continue without this screen or the connection.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from backends.files import named_errors
from backends.setup.command_text import command_text, read_commands
from backends.setup.data_step import corpus_path, whole_check
from backends.setup.job import cancel_job, job_folder, start_job
from backends.setup.jsonl import preview
from backends.setup.patches_step import reverse_actions, trial_actions
from backends.setup.step import Action, Site, Step
from backends.text import clean, clean_line
from tui.background import in_background
from tui.screens import setup_view
from tui.screens.steps_screen import StepsScreen
from tui.widgets.clipboard import copy
from tui.widgets.listing import Listing
from tui.widgets.text_pane import TextPane

if TYPE_CHECKING:
    from tui.screens.setup_options import Changes

ONLY_FOR = {"preview": "data", "check_all": "data", "trial": "patches", "reverse": "patches"}


class SetupScreen(StepsScreen):
    WHERE = "Set-up"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,r", "run_step", "run", id="setup.run", tooltip="Run the commands that are shown; long or large ones ask first"),
        Binding("e", "edit", "edit", id="setup.edit", tooltip="Edit the commands", show=False),
        Binding("y", "copy", "copy", id="setup.copy", tooltip="Copy the commands or the output", show=False),
        Binding("v", "verify", "verify", id="setup.verify", tooltip="Check all steps again"),
        Binding("ctrl+c", "cancel", "cancel", id="setup.cancel", tooltip="End the running step and everything it started", show=False),
        Binding("x", "cancel", "cancel", id="setup.cancel", tooltip="End the running step and everything it started"),
        Binding("o", "options", "options", id="setup.options", tooltip="Change the settings of this step in mdk.toml"),
        Binding("p", "preview", "preview", id="setup.preview", tooltip="Show the first documents of the corpus"),
        Binding("w", "check_all", "check all", id="setup.whole", tooltip="Check every line of the corpus instead of a sample"),
        Binding("n", "trial", "dry run", id="setup.trial", tooltip="Try the patches without changing anything"),
        Binding("u", "reverse", "undo", id="setup.reverse", tooltip="Take all patches back, after asking"),
        Binding("d", "doctor", "doctor", id="setup.doctor", tooltip="Check GPUs, ports, limits, logout and more"),
        Binding("z", "zoom", "pane", id="setup.zoom", tooltip="Fill the screen with the focused pane, or go back", show=False),
    ]  # fmt: skip

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if not self.is_mounted or not self.query(Listing):
            return True
        step = self.marked.name
        if action == "cancel":
            return self._phase(step) in ("running", "interrupted")  # what a killed job started may still run
        if action == "options":
            from tui.screens.setup_options import OPTIONS

            return step in OPTIONS
        return ONLY_FOR.get(action, step) == step

    # Running.

    def action_run_step(self) -> None:
        step, standing = self.marked, self._standings.get(self.marked.name)
        if standing is None:
            self.mdk.tell("Still looking at the disk: press it again.", warning=True)
        elif self._phase(step.name) == "running":
            self.mdk.tell(f"{step.title} runs already; x cancels it.")
        elif standing.refusal is not None:
            self.mdk.tell_failure(standing.refusal)
        elif not standing.actions:
            self.look_again()
            self.mdk.tell("There is nothing to run here: looking again.")
        elif standing.weight:
            self._ask(step, f"Run {step.title}?", standing.weight, standing.actions)
        else:
            self._start(step, standing.actions)

    def _ask(self, step: Step, title: str, words: str, actions: Sequence[Action]) -> None:
        from tui.screens.commands_question import CommandsQuestion

        def answered(wanted: bool | None) -> None:
            if wanted:
                self._start(step, actions)

        self.app.push_screen(CommandsQuestion(title, words, actions), answered)

    def _start(self, step: Step, actions: Sequence[Action]) -> None:
        folder = job_folder(self.workspace, step.name)
        in_background(
            self,
            lambda: start_job(folder, actions, os.environ),
            lambda _: None,  # its progress is seen
            self.mdk.tell_failure,
        )

    def action_edit(self) -> None:
        from tui.screens.edit_command import EditCommand

        step, standing = self.marked, self._standings.get(self.marked.name)
        if standing is None or not standing.actions or self._phase(step.name) == "running":
            self.mdk.tell("There is no command to edit at this moment.", warning=True)
            return
        read = partial(read_commands, folder=self.workspace.root)
        weight = standing.weight

        def edited(text: str | None) -> None:
            if text is not None:
                self._ask(step, f"Run {step.title} as edited?", weight, read(text))

        title = f"{step.title}: a line is a command; there is no shell"
        self.app.push_screen(EditCommand(clean(command_text(standing.actions)), read, title), edited)

    def action_cancel(self) -> None:
        from tui.screens.commands_question import CommandsQuestion

        step = self.marked
        lost = setup_view.LOST.get(step.name, setup_view.NOTHING_LOST)

        def cancelled(found: bool) -> None:
            self.mdk.tell(f"{step.title} is cancelled." if found else f"{step.title} had ended already.")

        def answered(wanted: bool | None) -> None:
            if wanted:
                folder = job_folder(self.workspace, step.name)
                self.in_background(lambda: cancel_job(folder), cancelled)

        words = f"Everything that this step started is ended. {lost}"
        self.app.push_screen(CommandsQuestion(f"Cancel {step.title}?", words), answered)

    def action_copy(self) -> None:
        job, standing = self.job(self.marked.name), self._standings.get(self.marked.name)
        if isinstance(self.focused, TextPane) and self.focused.id == "output" and job is not None:
            copy(self.app, "\n".join(job.lines))
        elif job is not None and job.state.phase == "running":
            copy(self.app, clean(command_text(job.actions)))
        elif standing is not None and standing.actions:
            copy(self.app, clean(command_text(standing.actions)))
        elif standing is not None:
            found = standing.finding
            copy(self.app, clean("\n".join([found.evidence, *found.details, found.remedy])))

    # Data and patches.

    def _with_actions(
        self, make: Callable[[Site], Sequence[Action]], then: Callable[[Sequence[Action]], None]
    ) -> None:
        """`make` the commands in a thread, because it asks programs, then call `then` with them."""
        site = self._site
        if site is None:
            self.mdk.tell("Still looking at the disk: press it again.", warning=True)
            return

        def made(actions: Sequence[Action]) -> None:
            if actions:
                then(actions)
            else:
                self.mdk.tell("There is nothing to run here.")

        self.in_background(lambda: make(site), made)

    def action_trial(self) -> None:
        step = self.marked
        self._with_actions(trial_actions, lambda actions: self._start(step, actions))

    def action_reverse(self) -> None:
        step = self.marked
        words = "The patches are taken back; files that were edited since are left alone."
        self._with_actions(
            reverse_actions, lambda actions: self._ask(step, "Take the patches back?", words, actions)
        )

    def action_check_all(self) -> None:
        step = self.marked
        self._with_actions(whole_check, lambda actions: self._start(step, actions))

    def action_preview(self) -> None:
        site = self._site
        if site is None:
            return
        corpus = corpus_path(site)

        def read() -> str:
            with named_errors(corpus, remedy="Download it, or name another .jsonl (o)."):
                found = preview(corpus, site.settings.data.key)
            texts = [f"document {number}\n{text}" for number, text in enumerate(found, 1)]
            return clean("\n\n".join(texts)) or "None of the first lines holds a document."

        self.in_background(read, partial(self._show_text, clean_line(corpus.name, 60)))

    def _show_text(self, title: str, text: str) -> None:
        from tui.screens.details import Details

        self.app.push_screen(Details(title, text))

    # Other screens.

    def action_options(self) -> None:
        from tui.screens.setup_options import SetupOptions, write_changes

        site, path = self._site, self.workspace.settings
        if site is None:
            self.mdk.tell("Still looking at the disk: press it again.", warning=True)
            return

        def written(_: None) -> None:
            self.mdk.tell(f"Written to {path}.")
            self.look_again()

        def chosen(found: Changes | None) -> None:
            if found:
                self.in_background(lambda: write_changes(path, found), written)

        self.app.push_screen(SetupOptions(self.marked.name, site.settings, path), chosen)

    def action_doctor(self) -> None:
        from tui.screens.doctor import DoctorScreen

        site = partial(self._make_site, self.workspace)
        self.app.push_screen(DoctorScreen(site, ascii_only=self.ascii_only))

    def action_zoom(self) -> None:
        if self.has_class("-zoom"):
            self.remove_class("-zoom")
            for pane in self.query(TextPane):
                pane.remove_class("-zoomed")
        elif isinstance(self.focused, TextPane):
            self.add_class("-zoom")
            self.focused.add_class("-zoomed")
