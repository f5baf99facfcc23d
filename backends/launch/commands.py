"""A RunPlan becomes a command, word for word: the one that is shown, that `command.sh` holds, and that runs."""

from __future__ import annotations

from pathlib import Path

from backends.errors import UserError
from backends.launch.launcher import Command, Launcher
from backends.launch.local import Local
from backends.launch.mpirun import Mpirun
from backends.models.layout import Resources
from backends.models.layout import check as check_layout
from backends.models.problem import Problem
from backends.runs.plan import RunPlan
from backends.runs.resuming import load_problems
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
    """Everything that speaks against `plan`: its own checks, its launcher's, those of what it loads and of its layout."""
    found = [*plan.check(), *launcher_of(plan).check(plan, workspace), *load_problems(plan, workspace)]
    if plan.trainer == "megatron":
        said = {problem.field for problem in found}
        nodes = max(1, len(plan.hosts))
        resources = Resources(plan.processes, gpus_per_node=max(1, plan.processes // nodes))
        found += [p for p in check_layout(plan.arguments, resources) if p.field not in said]
    return found


def write_command(path: Path, command: Command, title: str) -> None:
    """`command.sh`. Raises OSError."""
    path.write_text(command.script(title), encoding="utf-8", errors="surrogateescape")
    path.chmod(0o755)
