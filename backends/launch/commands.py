"""Turns a RunPlan into its command: the same command is shown, written to `command.sh`, and run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from backends.errors import UserError
from backends.launch.facts import Facts, gather
from backends.launch.launcher import Command, ProcessLauncher
from backends.launch.local import Local
from backends.launch.mpirun import Mpirun
from backends.launch.site_checks import check_site
from backends.launch.slurm import Slurm
from backends.models.layout import check as check_layout
from backends.models.problem import Problem
from backends.runs.plan import RunPlan
from backends.runs.resuming import load_problems
from backends.tracking.handover import run_id_problems
from backends.workspace import Workspace

LAUNCHERS: dict[str, ProcessLauncher | Slurm] = {"local": Local(), "mpirun": Mpirun(), "slurm": Slurm()}


def launcher_of(plan: RunPlan) -> ProcessLauncher | Slurm:
    """Raises UserError when there is no such launcher."""
    if plan.launcher not in LAUNCHERS:
        known = ", ".join(LAUNCHERS)
        raise UserError(f"There is no launcher {plan.launcher!r}.", f"Launchers: {known}.", status=2)
    return LAUNCHERS[plan.launcher]


def commands(plan: RunPlan, workspace: Workspace) -> Command:
    """The command of `plan`. Raises UserError for an unknown launcher."""
    command = launcher_of(plan).command(plan, workspace)
    if command.batch:
        return dataclasses.replace(command, batch=plan.batch or command.batch)
    if plan.command:
        return dataclasses.replace(command, argv=plan.command, env=dict(plan.environment))
    return command


def problems(plan: RunPlan, workspace: Workspace, facts: Facts | None = None) -> list[Problem]:
    """All problems of `plan`, errors first: of its checkpoint, its layout (Megatron-LM), the plan itself, its launcher and this
    machine. The plan's own checks do not repeat a field that has a problem already.

    `facts`: data, disk and GPUs as known; None: read them from the disk.
    """
    known = facts or gather(plan, workspace)
    found = load_problems(plan, workspace)
    if plan.trainer == "megatron":
        found += check_layout(plan.arguments, known.resources(plan))
    said = {problem.field for problem in found}
    found += [problem for problem in plan.check() if problem.field not in said]
    found += [*launcher_of(plan).check(plan, workspace), *run_id_problems(plan, workspace)]
    missing = any(problem.field == "--data-path" for problem in found)
    found += [
        problem for problem in check_site(plan, known) if not (missing and problem.field == "--data-path")
    ]
    return sorted(found, key=lambda problem: problem.severity != "error")


def write_command(path: Path, command: Command, title: str) -> None:
    """`command.sh`. Raises OSError."""
    path.write_text(command.script(title), encoding="utf-8", errors="surrogateescape")
    path.chmod(0o755)
