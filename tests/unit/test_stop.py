"""Stops with real processes: after saving, at once, by force; withheld when saving would do harm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_jobs import PROGRAM, TRAINER, clean_up, start_scripted, state_of, wait_for, wait_for_phase

from backends.launch.adoption import looked_after
from backends.launch.stop import stop_run
from backends.launch.stop_steps import KILL_PAUSE, TERM_LIMIT, Stop
from backends.runs.catalog import RunInfo, describe, run_folders
from backends.runs.folder import RunFolder
from backends.runs.judgement import withheld
from backends.runs.plan import RunPlan
from backends.runs.processes import marked_processes
from backends.runs.requests import StopWithheld, waiting_request
from backends.runs.signs import Signs
from backends.workspace import Workspace

DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("training ...", flush=True)
time.sleep(600)
"""
# Goes on from iteration 100 and does not say so.
UNSAID = TRAINER.replace("range(1, 501)", "range(101, 501)")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path)
    yield workspace
    for folder in run_folders(workspace):
        clean_up(folder)


def look(folder: RunFolder, workspace: Workspace) -> RunInfo:
    return looked_after(folder, workspace, PROGRAM)


def stop(
    folder: RunFolder, workspace: Workspace, *, now: bool = False, force: bool = False, limit: float = 60
) -> list[RunInfo]:
    return list(stop_run(folder, workspace, now=now, force=force, limit=limit, look=look))


def resuming(workspace: Workspace) -> str:
    (workspace.root / "latest_checkpointed_iteration.txt").write_text("100")
    return str(workspace.root)


def test_a_graceful_stop_saves_and_leaves_nothing(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    mark = wait_for_phase(folder, "running").mark
    seen = stop(folder, workspace)
    assert (seen[-1].phase, seen[-1].exit_code, seen[-1].reason) == ("finished", 0, "Stopped on request.")
    assert "successfully saved checkpoint" in folder.log.read_text()
    assert marked_processes(mark) == []
    assert not folder.request_file.exists()


def test_a_stop_at_once_does_not_save_and_leaves_nothing(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    mark = wait_for_phase(folder, "running").mark
    last = stop(folder, workspace, now=True)[-1]
    assert (last.phase, last.signal, last.reason) == ("failed", 9, "Stopped on request, without saving.")
    assert "saving checkpoint" not in folder.log.read_text()
    assert marked_processes(mark) == []


def test_a_stopped_server_counts_as_finished(workspace: Workspace) -> None:
    program = "import time; print(' * Running on http://127.0.0.1:5000', flush=True); time.sleep(600)"
    folder = start_scripted(workspace, program, kind="serve")
    assert wait_for_phase(folder, "running").address == "http://127.0.0.1:5000"
    last = stop(folder, workspace)[-1]
    assert (last.phase, last.signal, last.address) == ("finished", 15, None)


def test_a_trainer_that_will_not_save_in_time_is_killed_with_its_children(workspace: Workspace) -> None:
    folder = start_scripted(workspace, DEAF)
    mark = wait_for_phase(folder, "running").mark
    wait_for(lambda: len(marked_processes(mark)) == 3)
    seen = stop(folder, workspace, limit=0.5)
    told = [info.stopping for info in seen if info.stopping]
    assert told[0].startswith("asked to save and exit, waiting")
    assert any("TERM" in words for words in told)
    assert (seen[-1].phase, seen[-1].signal) == ("failed", 9)
    assert marked_processes(mark) == []


def test_a_stop_is_withheld_before_a_resume_has_loaded(workspace: Workspace) -> None:
    folder = start_scripted(workspace, UNSAID, load=resuming(workspace))
    wait_for_phase(folder, "running")
    with pytest.raises(StopWithheld, match="random weights") as caught:
        stop(folder, workspace)
    assert "--now" in caught.value.remedy
    assert describe(folder).phase == "running" and waiting_request(folder) is None


def test_a_stop_is_not_withheld_once_the_checkpoint_is_loaded(workspace: Workspace) -> None:
    loaded = 'print("  successfully loaded checkpoint from X [ t 0, p 0 ] at iteration 100", flush=True)\n'
    folder = start_scripted(workspace, loaded + TRAINER, load=resuming(workspace))
    wait_for_phase(folder, "running")
    assert stop(folder, workspace)[-1].phase == "finished"


def test_a_forced_stop_saves_although_saving_would_do_harm(workspace: Workspace) -> None:
    folder = start_scripted(workspace, UNSAID, load=resuming(workspace))
    wait_for_phase(folder, "running")
    assert stop(folder, workspace, force=True)[-1].phase == "finished"


def test_a_stop_outlives_the_supervisor_that_took_it_up(workspace: Workspace) -> None:
    folder = start_scripted(workspace, DEAF)
    first = wait_for_phase(folder, "running")
    states = stop_run(folder, workspace, limit=2, look=look)
    wait_for(lambda: next(states).phase == "stopping")
    assert first.supervisor
    os.kill(first.supervisor.pid, 9)
    *_, last = states
    assert (last.phase, last.signal) == ("failed", 9)
    assert state_of(folder).supervisor != first.supervisor


def test_stopping_what_has_ended_changes_nothing(workspace: Workspace) -> None:
    folder = start_scripted(workspace, "print('hello')")
    before = wait_for_phase(folder, "failed")
    [info] = stop(folder, workspace)
    assert info.phase == "failed" and state_of(folder) == before
    assert not folder.request_file.exists()


def test_the_steps_of_a_graceful_stop() -> None:
    stop = Stop("why", graceful=True, limit=900, term_saves=True, started=100)
    assert [stop.due(100), stop.due(101), stop.due(999)] == ["ask", None, None]
    assert stop.progress(160, None) == "asked to save and exit, waiting (60 s of 900 s)"
    assert stop.progress(160, 40) == "saved iteration 40, waiting for its exit (60 s)"
    assert [stop.due(1000), stop.due(1001)] == ["term", None]
    assert [stop.due(1000 + TERM_LIMIT), stop.due(1000.5 + TERM_LIMIT)] == ["kill", None]
    assert stop.due(1000.5 + TERM_LIMIT + KILL_PAUSE) == "kill"


def test_a_stop_that_must_not_save_begins_with_kill_where_term_would_save() -> None:
    assert Stop("why", graceful=False, limit=0, term_saves=True, started=0).due(0) == "kill"
    assert Stop("why", graceful=False, limit=0, term_saves=False, started=0).due(0) == "term"


@pytest.mark.parametrize(
    ("plan", "signs", "harm"),
    [
        (RunPlan("train", "demo"), Signs(), None),
        (RunPlan("train", "demo", load="/x"), Signs(), "not loaded"),
        (RunPlan("train", "demo", load="/x"), Signs(loaded=True), None),
        (RunPlan("train", "demo"), Signs(nan_alert="loss is NaN"), "NaN alert"),
        (RunPlan("serve", "demo", load="/x"), Signs(), None),
    ],
)
def test_when_a_graceful_stop_would_do_harm(plan: RunPlan, signs: Signs, harm: str | None) -> None:
    why = withheld(plan, signs)
    assert why is None if harm is None else why and harm in why
