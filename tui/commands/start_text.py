"""Starts a run, or shows what would run, as lines of text: for the commands that start runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from backends.errors import UserError
from backends.launch.preview import preview_of
from backends.launch.start import start
from backends.models.problem import Problem
from backends.runs.catalog import RunInfo, describe
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.telemetry.readings import GpuReading
from backends.text import clean, clean_line
from backends.workspace import Workspace


def print_dry_run(
    plan: RunPlan,
    workspace: Workspace,
    *,
    as_json: bool,
    found: Sequence[Problem] | None = None,
    more: Mapping[str, Any] | None = None,
    gpus: tuple[GpuReading, ...] | None = None,
) -> None:
    """Print the command word for word, and the problems. `found`: the problems, if they are known; `more`: keys for the JSON."""
    preview = preview_of(plan, workspace, gpus)
    command = preview.command
    against = preview.problems if found is None else found
    if as_json:
        listed = [problem.as_json() for problem in against]
        shown = {"argv": list(command.argv), "cwd": command.cwd, "env": dict(command.env), "problems": listed}
        if command.batch:
            shown["batch"] = command.batch
        click.echo(json.dumps({**shown, "load": plan.load, "save": plan.save, **(more or {})}))
        return
    click.echo(clean(command.shell()))
    print_problems(against)


def print_problems(found: Sequence[Problem]) -> None:
    for problem in found:
        click.echo(
            f"{problem.severity}: {clean_line(problem.message)} {clean_line(problem.remedy)}", err=True
        )


def launch(
    plan: RunPlan, workspace: Workspace, *, as_json: bool, gpus: tuple[GpuReading, ...] | None = None
) -> RunFolder:
    """Print the warnings, start `plan` and say so. Raises UserError."""
    preview = preview_of(plan, workspace, gpus)
    if (problem := preview.forbidden) is not None:
        raise UserError(problem.message, problem.remedy)
    print_problems(preview.problems)
    folder = start(plan, workspace)
    print_started(describe(folder), as_json=as_json)
    return folder


def print_started(info: RunInfo, *, as_json: bool, more: Mapping[str, Any] | None = None) -> None:
    """`more`: keys for the JSON."""
    if as_json:
        click.echo(json.dumps({**info.as_json(), **(more or {})}))
        return
    click.echo(f"{info.run} runs, independent of this terminal.")
    if info.save:
        click.echo(f"  checkpoints  {info.save}")
    click.echo(f"  log          {info.path / 'output.log'}")
    click.echo(f"  monitor      mdk-tui attach {info.run}")
    click.echo(f"  end it       mdk-tui stop {info.run}")
