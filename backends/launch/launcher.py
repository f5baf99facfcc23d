"""The interface of a launcher: it checks a plan, makes its command, and knows how to stop the job gracefully."""

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

# For ssh below mpirun: it would wait for ever for a window that asks for a password or a host key.
NOBODY_TO_ASK = {"SSH_ASKPASS_REQUIRE": "never"}


@dataclass(frozen=True, slots=True)
class Command:
    """`env` is what is added to the environment; `cwd` is absolute. `batch` is the script that a batch system is given."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    batch: str = ""

    def shell(self) -> str:
        """The command as typed by hand: cd, exports, the command itself; for a batch system also the script."""
        if self.batch:
            return f"cd {shlex.quote(self.cwd)}\n{shlex.join(self.argv)} command.sh\n\n{self.batch}"
        return "\n".join([f"cd {shlex.quote(self.cwd)}", *self._exports(), shlex.join(self.argv)])

    def script(self, title: str) -> str:
        """The command as an executable script; a batch script is one already."""
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
    """One way of starting jobs. It has no state."""

    name: str

    def check(self, plan: RunPlan, workspace: Workspace) -> list[Problem]:
        """Problems: what this launcher cannot do, and programs or files that are missing."""
        ...

    def command(self, plan: RunPlan, workspace: Workspace) -> Command: ...

    def term_saves(self, plan: RunPlan) -> bool:
        """Whether TERM makes the job save. If so, a stop that must not save begins with KILL."""
        ...


class ProcessLauncher(Launcher, Protocol):
    """A launcher whose job is a process of this machine."""

    def stop_gracefully(self, job: Process) -> None:
        """Ask the job's main process to save and exit. Raises OSError."""
        ...


def saves_on_term(plan: RunPlan) -> bool:
    """Whether a rank saves on TERM before it ends."""
    return plan.kind == "train" and value_of(plan.arguments, EXIT_SIGNAL) is not None


def arguments_of(plan: RunPlan) -> tuple[str, ...]:
    """All Megatron arguments: the plan's, then `--load` and `--save`."""
    load = ("--load", plan.load) if plan.load else ()
    save = ("--save", plan.save) if plan.save else ()
    return (*plan.arguments, *load, *save)
