"""Checks a resume, fills the folder of a branch, and starts the run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from backends.errors import UserError
from backends.launch.commands import problems
from backends.launch.facts import Facts
from backends.launch.own_arguments import own_arguments
from backends.launch.placement import Placement, placed
from backends.launch.start import SUPERVISOR, start
from backends.launch.stop import stop_run
from backends.models.problem import Problem
from backends.runs.branching import make_branch, make_pin
from backends.runs.checkpoints import TRACKER, folder_name
from backends.runs.folder import NAME, RunFolder, claim_dated_folder, moment_of
from backends.runs.planning import writers_of
from backends.runs.processes import find_process
from backends.runs.resuming import Resumption, load_problems
from backends.workspace import Workspace


def resume_problems(
    resumption: Resumption, workspace: Workspace, facts: Facts | None = None
) -> list[Problem]:
    """All problems of the resume, errors first. The folder of a branch does not exist yet, so its origin is checked instead.
    `facts`: as in `problems`."""
    plan, source = resumption.plan, resumption.source
    if resumption.branches:
        found = problems(dataclasses.replace(plan, load=None), workspace, facts)
        found = [*load_problems(plan, workspace, source), *found]
    else:
        found = problems(plan, workspace, facts)
    own = own_arguments(resumption, workspace)
    return sorted([*([own] if own else []), *found], key=lambda problem: problem.severity != "error")


def placed_resumption(resumption: Resumption, workspace: Workspace) -> Resumption:
    """The resume with nodes and image chosen as for a launch, if no earlier run says them. Raises UserError for bad settings."""
    if not resumption.rebuilt:
        return resumption
    plan = resumption.plan
    plan = placed(plan, workspace, Placement(processes=plan.processes))
    return dataclasses.replace(resumption, plan=plan)


def start_resumption(
    resumption: Resumption, workspace: Workspace, program: Sequence[str] = SUPERVISOR
) -> RunFolder:
    """Start the run. Raises UserError; the folder of a branch is then removed."""
    if errors := [p for p in resume_problems(resumption, workspace) if p.severity == "error"]:
        raise UserError(errors[0].message, errors[0].remedy)
    plan, source = resumption.plan, resumption.source
    if not resumption.branches:
        call_off_automatic(workspace, source.save)
        return start(plan, workspace, program=program)
    if plan.save is None:
        raise ValueError("a branch has a folder")
    if plan.load and plan.load != plan.save:
        make_pin(source.save, source.iteration, Path(plan.load))
        return start(plan, workspace, program=program)
    wanted = Path(plan.save)
    if not NAME.fullmatch(f"{wanted.parent.name}/{wanted.name}"):
        raise UserError(
            f"{wanted} is no dated folder, and a branch has one.", "Leave --save and --load as they were."
        )
    branch = claim_dated_folder(wanted.parents[1], moment_of(f"{wanted.parent.name}/{wanted.name}"))
    try:
        make_branch(source.save, source.iteration, branch)
        plan = dataclasses.replace(plan.moved(plan.save, str(branch)), load=str(branch), save=str(branch))
        return start(plan, workspace, program=program)
    except UserError:
        _take_away(branch, folder_name(source.iteration))
        raise
    except OSError as error:
        _take_away(branch, folder_name(source.iteration))
        raise UserError(
            f"The branch {branch} cannot be made: {error.strerror}.",
            "It is a link to the checkpoint and a tracker file: its disk must take both.",
        ) from None


def call_off_automatic(workspace: Workspace, save: Path) -> None:
    """Call off the automatic resume of a run that is resumed by hand. Raises UserError when its supervisor does not answer."""
    me = find_process(os.getpid())  # the supervisor whose resume this is
    for folder in writers_of(workspace, save):
        state = folder.state()
        if state is None or state.again is None or not state.again.due or state.supervisor == me:
            continue
        for _ in stop_run(folder, workspace):
            pass


def _take_away(branch: Path, link: str) -> None:
    """Remove what `make_branch` made. The folder stays if it holds anything else."""
    for name in (link, TRACKER):
        with contextlib.suppress(OSError):
            (branch / name).unlink()
    with contextlib.suppress(OSError):
        branch.rmdir()
