"""A RunPlan becomes a command, word for word: the one that is shown, that `command.sh` holds, and that runs."""

from __future__ import annotations

from pathlib import Path

from backends.errors import UserError
from backends.launch.launcher import Command, Launcher
from backends.launch.local import Local
from backends.launch.mpirun import Mpirun
from backends.models.problem import Problem
from backends.runs.plan import RunPlan
from backends.workspace import Workspace

LAUNCHERS: dict[str, Launcher] = {"local": Local(), "mpirun": Mpirun()}


def launcher_of(plan: RunPlan) -> Launcher:
    """Raises UserError when there is no such launcher."""
    if plan.launcher not in LAUNCHERS:
        known = ", ".join(LAUNCHERS)
        raise UserError(f"There is no launcher {plan.launcher!r}.", f"Launchers: {known}.", status=2)
    return LAUNCHERS[plan.launcher]


def commands(plan: RunPlan, workspace: Workspace) -> Command:
    """What `plan` runs. Raises UserError for an unknown launcher."""
    return launcher_of(plan).command(plan, workspace)


def problems(plan: RunPlan, workspace: Workspace) -> list[Problem]:
    """Everything that speaks against `plan`: its own checks, then its launcher's."""
    return [*plan.check(), *launcher_of(plan).check(plan, workspace)]


def write_command(path: Path, command: Command, title: str) -> None:
    """`command.sh`. Raises OSError."""
    path.write_text(command.script(title), encoding="utf-8", errors="surrogateescape")
    path.chmod(0o755)
