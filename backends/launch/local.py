"""The launcher `local`: one process on this machine, with the Python that runs mdk-tui."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys

from backends.launch.launcher import Command, arguments_of, saves_on_term
from backends.models.problem import Problem
from backends.runs.plan import RunPlan
from backends.runs.processes import Process
from backends.workspace import Workspace

MODULES = {"train": "backends.demo.train", "serve": "backends.demo.serve"}
DEMO_NEEDS = ("numpy", "autograd")
BY_MPIRUN = "Choose --launcher mpirun.", {"launcher": ("mpirun",)}


class Local:
    """The demo as a process of this machine, without mpirun."""

    name = "local"

    def check(self, plan: RunPlan, workspace: Workspace) -> list[Problem]:
        problems: list[Problem] = []
        if plan.trainer != "demo":
            message = f"The launcher local runs the demo, not {plan.trainer}."
            problems.append(Problem("error", "launcher", message, *BY_MPIRUN))
        missing = [name for name in DEMO_NEEDS if importlib.util.find_spec(name) is None]
        if plan.trainer == "demo" and missing:
            message = f"The demo computes with {' and '.join(missing)}, which this Python does not have."
            problems.append(Problem("error", "trainer", message, "pip install 'mdk-tui[demo]'"))
        if plan.processes != 1 or plan.hosts:
            message = "The launcher local starts one process on this machine."
            problems.append(Problem("error", "launcher", message, *BY_MPIRUN))
        return problems

    def command(self, plan: RunPlan, workspace: Workspace) -> Command:
        # A folder "backends" in the workspace must not shadow this package.
        env = {"PYTHONSAFEPATH": "1", **plan.environment}
        if plan.gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, plan.gpus))
        argv = (sys.executable, "-u", "-m", MODULES[plan.kind], *arguments_of(plan))
        return Command(argv, str(workspace.root), env)

    def term_saves(self, plan: RunPlan) -> bool:
        return saves_on_term(plan)

    def stop_gracefully(self, job: Process) -> None:
        os.kill(job.pid, signal.SIGTERM)
