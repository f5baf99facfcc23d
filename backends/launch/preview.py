"""What a plan would do, before anything is started: its command, its problems, its estimate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backends.launch.commands import commands, problems
from backends.launch.facts import Facts, gather
from backends.launch.launcher import Command
from backends.launch.resume import resume_problems, start_resumption
from backends.launch.site_checks import estimate_of
from backends.launch.start import start
from backends.models.estimate import Estimate
from backends.models.problem import Problem
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.ports import MASTER_PORT, unseen_port, with_master_port
from backends.runs.resuming import Resumption
from backends.telemetry.readings import GpuReading
from backends.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Preview:
    """`plan` runs `command`, word for word. `estimate` is None for the demo."""

    plan: RunPlan
    command: Command
    problems: tuple[Problem, ...]
    estimate: Estimate | None
    facts: Facts
    resumption: Resumption | None = None

    @property
    def forbidden(self) -> Problem | None:
        """The first problem for which it cannot be started."""
        return next((problem for problem in self.problems if problem.severity == "error"), None)

    def start(self, workspace: Workspace) -> RunFolder:
        """Raises UserError."""
        if self.resumption is not None:
            return start_resumption(replace(self.resumption, plan=self.plan), workspace)
        return start(self.plan, workspace)


def preview_of(
    plan: RunPlan,
    workspace: Workspace,
    gpus: tuple[GpuReading, ...] | None = None,
    resumption: Resumption | None = None,
) -> Preview:
    """The preview of `plan`. `gpus`: from `read_gpus`, None for unknown. `resumption`: the checkpoint that `plan` continues.

    Raises UserError for an unknown launcher.
    """
    facts = gather(plan, workspace, gpus)
    unnamed = MASTER_PORT not in plan.environment
    plan = with_master_port(plan, workspace)
    if resumption is not None:
        found = resume_problems(replace(resumption, plan=plan), workspace, facts)
    else:
        found = problems(plan, workspace, facts)
    # A port that the plan names was probed on the first node, or chosen by the user.
    found += unseen_port(plan) if unnamed else []
    found.sort(key=lambda problem: problem.severity != "error")
    return Preview(plan, commands(plan, workspace), tuple(found), estimate_of(plan, facts), facts, resumption)
