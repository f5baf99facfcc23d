"""Stops a run and starts it again: the tutorial's advice for a first start that floods its log with notices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from backends.launch.start import start
from backends.launch.stop import stop_run
from backends.models.arguments import without
from backends.runs.catalog import RunInfo, describe
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import NAME, RunFolder
from backends.runs.judgement import withheld
from backends.runs.plan import RunPlan
from backends.runs.planning import ONE_LOAD, continue_plan, new_save_folder
from backends.runs.requests import DEFAULT_LIMIT
from backends.runs.signs import Signs
from backends.workspace import Workspace


def saves_first(folder: RunFolder, info: RunInfo) -> bool:
    """Whether the stop should save: there are iterations to lose, and saving does no harm."""
    state = folder.state()
    return bool(info.iteration) and withheld(folder.plan(), state.signs if state else Signs()) is None


def restart_plan(folder: RunFolder, workspace: Workspace, now: datetime, *, saves: bool) -> RunPlan:
    """The plan that continues from the run's checkpoint, or from the one that its stop will save. Without any checkpoint the
    run's own plan, in a new dated folder. Raises UserError."""
    plan = folder.plan()
    if plan.kind != "train" or plan.save is None:
        return plan
    save = Path(plan.save)
    if saves:
        arguments = without(plan.arguments, *ONE_LOAD)
        return dataclasses.replace(
            plan, arguments=arguments, load=plan.save, command=(), batch="", parent=folder.name
        )
    if read_tracker(save).problem is None:
        return continue_plan(workspace, save, ())
    if plan.load is not None or not NAME.fullmatch(f"{save.parent.name}/{save.name}"):
        return plan
    anew = str(new_save_folder(save.parents[1], now))
    return dataclasses.replace(plan.moved(plan.save, anew), save=anew)


def start_again(
    folder: RunFolder,
    workspace: Workspace,
    plan: RunPlan,
    *,
    saves: bool,
    limit: float = DEFAULT_LIMIT,
    begin: Callable[[RunPlan, Workspace], RunFolder] = start,
) -> RunFolder:
    """Stop the run, wait until no process of it is left, and start `plan`: its `restart_plan` with the same `saves`.

    `limit`: s for it to save and exit. Blocks. Raises UserError, also when the stop did not save as it should have; a stop
    that was requested goes on.
    """
    if not describe(folder).over:
        for _ in stop_run(folder, workspace, now=not saves, limit=limit):
            pass
    return begin(plan, workspace)
