"""The preview of the choices in the launch form, worked out in a thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backends.errors import UserError
from backends.models.problem import Problem

if TYPE_CHECKING:
    from datetime import datetime

    from backends.launch.choices import Choices
    from backends.launch.preview import Preview
    from backends.models.acceleration import Effect
    from backends.telemetry.readings import GpuReading
    from backends.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Answer:
    """A preview of the choices, or why there is none, and what each acceleration would change."""

    preview: Preview | None
    refusal: Problem | None
    on: dict[str, bool]
    recompute: str
    effects: dict[str, Effect]

    root: str = ""  # of the workspace

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Paths in the workspace are relative to it: the first line of the screen shows the workspace."""
        found = (self.refusal,) if self.refusal else self.preview.problems if self.preview else ()
        return tuple(
            replace(problem, message=problem.message.replace(f"{self.root}/", "")) for problem in found
        )


def beginning_of(workspace: Workspace) -> tuple[Choices, list[str], bool]:
    """The first choices, the launchers, and whether MLflow is installed. Call it in a thread: its imports take time."""
    from backends.launch.choices import Choices
    from backends.launch.commands import LAUNCHERS
    from backends.models.megatron_presets import DEFAULT
    from backends.models.presets import PRESETS, TINY
    from backends.tracking.place import has_mlflow

    first = PRESETS[DEFAULT] if workspace.megatron.is_dir() else TINY
    return Choices(first), list(LAUNCHERS), has_mlflow()


def answer_of(
    choices: Choices,
    workspace: Workspace,
    gpus: tuple[GpuReading, ...] | None,
    edited_text: str | None,
    now: datetime,
) -> Answer:
    """What these choices would run, what that takes, and its problems. Call it in a thread: it reads the disk."""
    from backends.launch.choices import accelerations_of, effects_of, plan_of
    from backends.launch.editing import edited
    from backends.launch.preview import preview_of

    root = str(workspace.root)
    try:
        arguments = choices.arguments
        on, recompute = accelerations_of(arguments)
    except UserError as error:
        return Answer(None, _refusal(error, "more"), {}, "none", {}, root)
    try:
        plan, resumption = plan_of(choices, workspace, now, len(gpus) if gpus else None)
        preview = preview_of(plan, workspace, gpus, resumption)
        if edited_text is not None:
            preview = preview_of(edited(preview.plan, workspace, edited_text), workspace, gpus, resumption)
    except UserError as error:
        return Answer(
            None, _refusal(error, "load" if choices.text("load") else "gpus"), on, recompute, {}, root
        )
    effects = (
        effects_of(arguments, preview.plan.processes, preview.facts.vocab_size) if not choices.demo else {}
    )
    return Answer(preview, None, on, recompute, effects, root)


def _refusal(error: UserError, field: str) -> Problem:
    return Problem("error", field, error.message, error.remedy)
