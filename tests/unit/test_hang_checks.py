"""Hung jobs are ended: an mpirun that hangs after its ranks, and a server that waits for a checkpoint in vain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_jobs import clean_up, wait_for_phase

from backends.files import write_json
from backends.inference.serving import serve_plan
from backends.launch.hang_checks import (
    AFTER_END,
    AFTER_RANKS,
    QUIET,
    QUIET_ELSEWHERE,
    HungLauncher,
    VainWait,
    command_name,
    hang_checks_of,
)
from backends.launch.job import Job
from backends.launch.start import start
from backends.runs.automatic import Again
from backends.runs.catalog import run_folders
from backends.runs.checkpoints import TRACKER
from backends.runs.folder import RunFolder, create_run_folder, moment_of
from backends.runs.judgement import Ending, ending
from backends.runs.plan import RunPlan
from backends.runs.ports import free_port
from backends.runs.processes import Process
from backends.runs.signs import Signs
from backends.runs.state import JobExit, RunState
from backends.workspace import Workspace

WRAPPER, MPIRUN, DAEMON, RANK, SSH = (Process(pid, 1, 1) for pid in (1, 2, 3, 4, 5))
NAMES = {1: "python3", 2: "mpirun", 3: "prted", 4: "python", 5: "ssh"}
DONE = Signs(working=True, ended=True)


def hung(*alive: Process, remote: bool = False) -> HungLauncher:
    job = Job(RunFolder(Path("/none")), "m", lambda job: None, MPIRUN, WRAPPER)
    return HungLauncher(job, remote, lambda: [WRAPPER, *alive], NAMES.__getitem__)


def test_an_mpirun_without_ranks_is_ended_when_the_log_is_quiet() -> None:
    assert hung(MPIRUN, DAEMON).look(DONE, QUIET, 0.0) == AFTER_END
    assert hung(MPIRUN).look(Signs(working=True), QUIET, 0.0) == AFTER_RANKS
    assert hung(MPIRUN).look(DONE, QUIET - 1, 0.0) is None
    assert hung(MPIRUN, RANK).look(DONE, 10 * QUIET, 0.0) is None, "it may still evaluate, or save"


def test_ranks_on_other_nodes_are_judged_by_the_log_alone() -> None:
    assert hung(MPIRUN, remote=True).look(DONE, QUIET, 0.0) is None
    assert hung(MPIRUN, remote=True).look(DONE, QUIET_ELSEWHERE, 0.0) == AFTER_END
    assert hung(MPIRUN, remote=True).look(Signs(working=True), QUIET_ELSEWHERE, 0.0) is None
    assert hung(MPIRUN, SSH).look(Signs(working=True), QUIET_ELSEWHERE, 0.0) is None, (
        "ssh leads to another node"
    )


def test_processes_are_read_rarely() -> None:
    looks: list[int] = []
    job = Job(RunFolder(Path("/none")), "m", lambda job: None, MPIRUN, WRAPPER)
    watch = HungLauncher(job, False, lambda: looks.append(1) or [RANK], NAMES.__getitem__)
    for tick in range(20):
        watch.look(DONE, QUIET, tick / 2)
    assert len(looks) == 2


def test_a_reaped_launcher_s_status_says_nothing_of_the_training() -> None:
    killed = JobExit(None, 9)
    assert ending("train", killed, DONE, stopped=AFTER_END, reaped=True) == Ending("finished", AFTER_END)
    assert ending("train", killed, Signs(), stopped=AFTER_RANKS, reaped=True) == Ending("failed", AFTER_RANKS)
    assert ending("train", killed, DONE, stopped="Stopped on request.").phase == "failed"


def test_a_process_is_known_by_its_program(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/comm").write_text("mpirun\n")
    assert command_name(7, tmp_path) == "mpirun" and command_name(8, tmp_path) == ""


# A server that waits for a first checkpoint.


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path)
    (tmp_path / "save").mkdir()
    yield workspace
    for folder in run_folders(workspace):
        clean_up(folder)


def training(workspace: Workspace, name: str, state: RunState) -> RunFolder:
    folder = create_run_folder(workspace.runs, moment_of(name))
    write_json(folder.plan_file, RunPlan("train", "demo", save=str(workspace.root / "save")).as_json())
    folder.write_state(state)
    return folder


def waiting(workspace: Workspace) -> VainWait:
    plan = serve_plan(workspace, workspace.root / "save", port=1, wait=True)
    [found] = hang_checks_of(plan, Job(RunFolder(Path("/none")), "m", lambda job: None), workspace)
    assert isinstance(found, VainWait)
    return found


def test_a_server_waits_while_a_checkpoint_may_still_come(workspace: Workspace) -> None:
    save = workspace.root / "save"
    failed = training(workspace, "2026-11-30/05-00-00", RunState("failed"))
    why = waiting(workspace).look(Signs(), 0.0, 0.0)
    assert why == "2026-11-30/05-00-00 failed before its first checkpoint: there is nothing to serve."
    assert waiting(workspace).look(Signs(working=True), 0.0, 0.0) is None
    failed.write_state(RunState("failed", again=Again(1, 3, at=1e12)))
    assert waiting(workspace).look(Signs(), 0.0, 0.0) is None, "it is resumed by itself"
    failed.write_state(RunState("failed"))
    (save / TRACKER).write_text("5")
    assert waiting(workspace).look(Signs(), 0.0, 0.0) is None, "it only has to be loaded"
    (save / TRACKER).unlink()
    live = create_run_folder(workspace.runs, moment_of("2026-11-30/05-30-00"))
    write_json(live.plan_file, RunPlan("train", "demo", save=str(save)).as_json())
    assert waiting(workspace).look(Signs(), 0.0, 0.0) is None, "another run saves there now"


def test_a_waiting_server_ends_with_its_training(workspace: Workspace) -> None:
    training(workspace, "2026-11-30/05-00-00", RunState("failed"))
    plan = serve_plan(workspace, workspace.root / "save", port=free_port(), wait=True)
    folder = start(dataclasses.replace(plan, title="server"), workspace)
    state = wait_for_phase(folder, "finished", "failed")
    assert state.reason and "nothing to serve" in state.reason
