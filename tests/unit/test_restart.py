"""A run that is stopped and started again: from its checkpoint, or from the start if it saved nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from scripted_jobs import PROGRAM, TRAINER, clean_up, scripted, state_of, wait_for, wait_for_phase

from backends.files import write_json
from backends.launch.restart import restart_plan, saves_first, start_again
from backends.launch.start import start
from backends.runs.catalog import describe
from backends.runs.checkpoints import TRACKER
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.plan import RunPlan
from backends.workspace import Workspace

NOW = datetime(2026, 11, 30, 5, 0, 0)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def started() -> Iterator[list[RunFolder]]:
    folders: list[RunFolder] = []
    yield folders
    for folder in folders:
        clean_up(folder)


def begin(plan: RunPlan, workspace: Workspace) -> RunFolder:
    return start(plan, workspace, program=PROGRAM)


def again(folder: RunFolder, workspace: Workspace) -> RunFolder:
    saves = saves_first(folder, describe(folder))
    plan = restart_plan(folder, workspace, NOW, saves=saves)
    return start_again(folder, workspace, plan, saves=saves, begin=begin)


def run(workspace: Workspace, program: str = TRAINER) -> RunFolder:
    save = workspace.checkpoints / "2026-11-30/05-00-00"
    plan = dataclasses.replace(scripted(program), save=str(save))
    folder = begin(dataclasses.replace(plan, arguments=(*plan.arguments, "--save-interval", "9")), workspace)
    wait_for_phase(folder, "running")
    return folder


def test_a_restart_before_the_first_iteration_saves_nothing(
    workspace: Workspace, started: list[RunFolder]
) -> None:
    flood = "import time\nprint('training ...', flush=True)\ntime.sleep(60)"
    started.append(run(workspace, flood))
    started.append(again(started[0], workspace))
    first, second = (folder.plan() for folder in started)
    assert wait_for_phase(started[0], "failed", "finished").over
    assert second.save != first.save and second.load is None and second.arguments == first.arguments
    wait_for_phase(started[1], "running")


def test_a_run_that_has_trained_saves_before_it_starts_again(
    workspace: Workspace, started: list[RunFolder]
) -> None:
    started.append(run(workspace))
    save = Path(started[0].plan().save or "")
    wait_for(lambda: state_of(started[0]).iteration)
    (save / "iter_0000009").mkdir(parents=True)
    (save / TRACKER).write_text("9")
    started.append(again(started[0], workspace))
    assert "successfully saved" in started[0].log.read_text() and state_of(started[0]).phase == "finished"
    plan = started[1].plan()
    assert (plan.load, plan.save, plan.parent) == (str(save), str(save), started[0].name)


def test_a_restart_without_new_iterations_continues_from_the_old_checkpoint(workspace: Workspace) -> None:
    save = workspace.checkpoints / "2026-11-30/05-00-00"
    (save / "iter_0000009").mkdir(parents=True)
    (save / TRACKER).write_text("9")
    folder = create_run_folder(workspace.runs, NOW)
    write_json(folder.plan_file, dataclasses.replace(scripted(TRAINER), save=str(save)).as_json())
    plan = restart_plan(folder, workspace, NOW, saves=False)
    assert plan.load == plan.save == str(save)


def test_an_edited_command_saves_elsewhere_too(workspace: Workspace) -> None:
    save = str(workspace.checkpoints / "2026-11-30/05-00-00")
    plan = dataclasses.replace(scripted(TRAINER), save=save, command=("x", f"--save={save}"))
    Path(save).mkdir(parents=True)
    folder = create_run_folder(workspace.runs, NOW)
    write_json(folder.plan_file, plan.as_json())
    anew = restart_plan(folder, workspace, NOW, saves=False)
    assert anew.command == ("x", f"--save={anew.save}") and anew.save != plan.save


def test_a_fine_tuning_that_is_started_again_does_not_begin_at_0(workspace: Workspace) -> None:
    save = str(workspace.checkpoints / "2026-11-30/05-00-00")
    plan = dataclasses.replace(scripted(TRAINER), save=save, arguments=("--finetune", "--train-iters", "500"))
    folder = create_run_folder(workspace.runs, NOW)
    write_json(folder.plan_file, plan.as_json())
    again = restart_plan(folder, workspace, NOW, saves=True)
    assert again.load == save and again.arguments == ("--train-iters", "500")
