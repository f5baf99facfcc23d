"""The steps in the tutorial's order."""

from __future__ import annotations

import difflib

from backends.errors import UserError
from backends.setup.data_step import DataStep
from backends.setup.image_step import ImageStep
from backends.setup.megatron_step import MegatronStep
from backends.setup.mpi_step import MpiStep
from backends.setup.patches_step import PatchesStep
from backends.setup.step import Step
from backends.setup.workspace_step import WorkspaceStep

STEPS: tuple[Step, ...] = (WorkspaceStep(), MegatronStep(), ImageStep(), MpiStep(), DataStep(), PatchesStep())


def find_step(name: str) -> Step:
    """The step called `name`. Raises UserError that names the nearest one."""
    for step in STEPS:
        if step.name == name:
            return step
    near = difflib.get_close_matches(name, [s.name for s in STEPS], n=1)
    names = ", ".join(s.name for s in STEPS)
    raise UserError(
        f"There is no step {name!r}.", f"Did you mean {near[0]!r}?" if near else f"Steps: {names}.", status=2
    )
