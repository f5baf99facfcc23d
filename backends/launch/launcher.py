"""What a launcher is: how a job is started and asked to end, on this machine, by mpirun, by Slurm."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from backends.models.arguments import EXIT_SIGNAL, value_of
from backends.models.problem import Problem
from backends.runs.plan import RunPlan
from backends.runs.processes import Process
from backends.workspace import Workspace

# For ssh below mpirun: a desktop's window that asks for a password or a host key would be waited for, for ever.
NOBODY_TO_ASK = {"SSH_ASKPASS_REQUIRE": "never"}


@dataclass(frozen=True, slots=True)
class Command:
    """`env` is what is added to the environment; `cwd` is absolute. `batch` is the script that a batch system is given."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    batch: str = ""

    def shell(self) -> str:
        """The same as typed by hand: where, what is added to the environment, the command; then its batch script."""
        if self.batch:
            return f"cd {shlex.quote(self.cwd)}\n{shlex.join(self.argv)} command.sh\n\n{self.batch}"
        return "\n".join([f"cd {shlex.quote(self.cwd)}", *self._exports(), shlex.join(self.argv)])

    def script(self, title: str) -> str:
        """The same as a program; a batch script is one."""
        if self.batch:
            return self.batch
        safe = " ".join(title.split())
        where = f"cd {shlex.quote(self.cwd)} || exit 1"
        return "\n".join(
            ["#!/bin/sh", f"# {safe}", where, *self._exports(), f"exec {shlex.join(self.argv)}", ""]
        )

    def _exports(self) -> list[str]:
        return [f"export {name}={shlex.quote(value)}" for name, value in self.env.items()]


class Launcher(Protocol):
    """One way of starting jobs; it holds no state."""

    name: str

    def check(self, plan: RunPlan, workspace: Workspace) -> list[Problem]:
        """What this launcher cannot do, or does not find."""
        ...

    def command(self, plan: RunPlan, workspace: Workspace) -> Command: ...

    def term_saves(self, plan: RunPlan) -> bool:
        """Whether TERM makes the job save: then a stop that must not save cannot begin with it."""
        ...


class ProcessLauncher(Launcher, Protocol):
    """One whose job is a process of this machine."""

    def stop_gracefully(self, job: Process) -> None:
        """Ask the job's main process to save and exit. Raises OSError."""
        ...


def saves_on_term(plan: RunPlan) -> bool:
    """Whether a rank that is told TERM saves before it ends."""
    return plan.kind == "train" and value_of(plan.arguments, EXIT_SIGNAL) is not None


def arguments_of(plan: RunPlan) -> tuple[str, ...]:
    """All Megatron arguments: the plan's, then where to load from and save to."""
    load = ("--load", plan.load) if plan.load else ()
    save = ("--save", plan.save) if plan.save else ()
    return (*plan.arguments, *load, *save)
