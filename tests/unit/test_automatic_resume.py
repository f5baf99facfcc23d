"""The automatic resume of a crashed run: when it happens, how it is announced, and how a stop calls it off."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from demo_runs import SMALL, write_corpus
from log_lines import iteration as iteration_line
from scripted_jobs import clean_up, state_of, wait_for, wait_for_phase

from backends.launch.adoption import looked_after
from backends.launch.resume import start_resumption
from backends.launch.start import start
from backends.launch.stop import stop_run
from backends.megatron.parser import Parser
from backends.runs.automatic import LONGEST_PAUSE, Again, automatic_resume
from backends.runs.catalog import describe, run_folders
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.planning import train_plan
from backends.runs.processes import is_alive
from backends.runs.resuming import resumption
from backends.runs.signs import SignReader, Signs
from backends.runs.state import RunState
from backends.workspace import Workspace

CANCELLED = "slurmstepd: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-30T10:00:00"
TRAIN = RunPlan("train", "demo", arguments=("--train-iters", "100"), save="/base/save")
CRASHED = Signs(iteration=50, working=True)


def decided(plan: RunPlan = TRAIN, signs: Signs = CRASHED, tracked: Any = 40, limit: int = 3) -> Again | None:
    return automatic_resume(plan, signs, tracked, limit=limit, pause=60.0, now=1000.0)


def test_a_crash_is_followed_by_a_pause_that_doubles() -> None:
    pauses: list[float] = []
    for attempt in range(8):
        again = decided(dataclasses.replace(TRAIN, attempt=attempt), limit=8)
        assert again is not None and again.due and again.attempt == attempt + 1
        pauses.append(again.at - 1000)
    assert pauses == [60, 120, 240, 480, 960, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_it_is_off_unless_it_is_wanted() -> None:
    assert decided(limit=0) is None
    assert decided(RunPlan("serve", "demo", load="/x")) is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"plan": dataclasses.replace(TRAIN, attempt=3)}, "3 times already"),
        ({"signs": dataclasses.replace(CRASHED, error_kind="out-of-memory")}, "occur again (out-of-memory)"),
        ({"signs": dataclasses.replace(CRASHED, error_kind="no-data")}, "occur again"),
        ({"signs": dataclasses.replace(CRASHED, error_kind="checkpoint-mismatch")}, "occur again"),
        ({"signs": dataclasses.replace(CRASHED, interrupted=True)}, "somebody interrupted"),
        ({"tracked": None}, "tracker file names no checkpoint"),
        ({"plan": dataclasses.replace(TRAIN, save=None)}, "names no checkpoint"),
        ({"signs": Signs(working=True)}, "before its first iteration"),
        ({"tracked": 100}, "last iteration"),
    ],
)
def test_a_run_that_would_fail_again_is_not_resumed_and_the_reason_is_given(
    changes: dict[str, Any], word: str
) -> None:
    again = decided(**changes)
    assert again is not None and not again.due and word in (again.dropped or "") and word in again.words()


def test_an_automatic_resume_describes_its_state() -> None:
    due = Again(2, 3, at=datetime(2026, 11, 30, 14, 2, 10).timestamp())
    assert due.words() == "Resumes by itself at 14:02:10 (2 of 3)."
    assert "as 2026-11-30/14-02-10 (2 of 3)" in dataclasses.replace(due, run="2026-11-30/14-02-10").words()
    for again in (due, dataclasses.replace(due, dropped="it was.")):
        state = RunState("failed", again=again)
        assert RunState.from_json(state.as_json()).again == again
    assert RunState.from_json({"again": {"attempt": "2"}}).again is None


def test_the_cause_of_a_crash_is_kept_beside_its_consequences(logs: Path) -> None:
    reader = SignReader(Signs(), Parser())
    reader.feed((logs / "2xh200-oom-then-hangs.log").read_bytes())
    reader.finish()
    assert reader.signs.error_kind == "out-of-memory" and "out of memory" in (reader.signs.error or "")


@pytest.mark.parametrize(
    ("end", "by_somebody"),
    [
        ("KeyboardInterrupt\n", True),
        ("RuntimeError: NCCL error: unhandled system error\nKeyboardInterrupt\n", True),
        (f"{CANCELLED} ***\n", True),
        (f"{CANCELLED} DUE TO TIME LIMIT ***\n", False),
        (f"{CANCELLED} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n", False),
        (f"{CANCELLED} ***\n".replace("JOB 7", "STEP 7.0"), False),  # srun's own, after a rank that failed
        (f"KeyboardInterrupt\n{iteration_line(6)}", False),  # an attempt before this one
    ],
)
def test_an_interruption_by_a_person_is_distinguished_from_other_ends(end: str, by_somebody: bool) -> None:
    reader = SignReader(Signs(), Parser())
    reader.feed((iteration_line(5) + end).encode())
    reader.finish()
    assert reader.signs.interrupted == by_somebody
    assert not reader.signs.ended


# With real processes.


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path)
    yield workspace
    for folder in run_folders(workspace):
        clean_up(folder)


def crashed(workspace: Workspace, limit: int, pause: float, more: str = "") -> RunFolder:
    """A run of the demo that was killed after its first checkpoint."""
    folder = training(workspace, limit, pause, more)
    crash(folder)
    return folder


def training(workspace: Workspace, limit: int, pause: float, more: str = "") -> RunFolder:
    """A run of the demo."""
    workspace.settings.write_text(f"[resume]\nautomatic = {limit}\npause_minutes = {pause / 60}\n{more}")
    corpus = write_corpus(workspace.root / "corpus.jsonl")
    words = (
        "--train-iters",
        "1000000",
        "--save-interval",
        "5",
        "--data-path",
        str(corpus),
        "--eval-iters",
        "0",
    )
    return start(train_plan("demo", SMALL, words, workspace.root / "save"), workspace)


def crash(folder: RunFolder) -> None:
    wait_for(lambda: state_of(folder).signs.saved)
    job = state_of(folder).job
    assert job is not None
    os.kill(job.pid, signal.SIGKILL)


def newest(workspace: Workspace) -> RunFolder:
    return next(run_folders(workspace))


def test_a_crash_is_resumed_as_often_as_the_settings_say_and_no_more(workspace: Workspace) -> None:
    folder = crashed(workspace, limit=2, pause=0.2)
    seen = [folder]
    for attempt in (1, 2):
        again = wait_for(lambda run=seen[-1]: (state_of(run).again or Again(0, 0)).run)
        seen.append(RunFolder(workspace.runs / again))
        assert seen[-1].plan().attempt == attempt and seen[-1].plan().parent == seen[-2].name
        assert f"Resumed by itself as {again} ({attempt} of 2)" in (describe(seen[-2]).again or "")
        assert state_of(seen[-2]).phase == "failed"
        crash(seen[-1])
    last = wait_for(lambda: state_of(seen[-1]).again)
    assert last.dropped == "it has been resumed 2 times already." and len(list(run_folders(workspace))) == 3
    for run in seen[1:]:
        assert (
            "successfully loaded checkpoint" in run.log.read_text()
            and "from random" not in run.log.read_text()
        )
    # By hand it goes on, and the count begins anew.
    by_hand = resumption(workspace, None, None, (), datetime.now())
    assert by_hand.plan.attempt == 0


def test_a_stop_calls_it_off(workspace: Workspace) -> None:
    told = workspace.root / "told"
    notify = f'[notify]\ncommand = ["sh", "-c", \'echo "$1" >>"$0"\', "{told}", "{{subject}}"]\n'
    folder = crashed(workspace, limit=1, pause=600, more=notify)
    wait_for_phase(folder, "failed")
    wait_for(lambda: told.exists() and "Resumes by itself at" in told.read_text())
    assert describe(folder).again_due and "Resumes by itself at" in (describe(folder).again or "")
    *_, info = stop_run(folder, workspace)
    assert not info.again_due and "called off" in (info.again or "") and info.phase == "failed"
    wait_for(lambda: not is_alive(state_of(folder).supervisor))
    wait_for(lambda: f"{folder.name} Not resumed by itself: it was called off." in told.read_text())
    assert len(list(run_folders(workspace))) == 1


def test_a_resume_by_hand_calls_off_the_automatic_one(workspace: Workspace) -> None:
    folder = crashed(workspace, limit=1, pause=600)
    wait_for_phase(folder, "failed")
    by_hand = start_resumption(resumption(workspace, None, None, (), datetime.now()), workspace)
    assert not describe(folder).again_due
    assert [run.name for run in run_folders(workspace)] == [by_hand.name, folder.name]


def test_a_supervisor_killed_while_it_waits_is_replaced(workspace: Workspace) -> None:
    folder = crashed(workspace, limit=1, pause=3)
    first = wait_for_phase(folder, "failed")
    assert first.supervisor is not None
    os.kill(first.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(first.supervisor))
    assert describe(folder).orphaned
    looked_after(folder, workspace)
    again = wait_for(lambda: (state_of(folder).again or Again(0, 0)).run)
    assert newest(workspace).name == again


def test_ending_a_hung_run_does_not_wait_for_its_automatic_resume(workspace: Workspace) -> None:
    folder = training(workspace, limit=1, pause=600)
    wait_for(lambda: state_of(folder).signs.saved)
    *_, info = stop_run(folder, workspace, hung=True)
    assert info.phase == "failed" and info.again_due and "It hung" in (info.reason or "")
    *_, info = stop_run(folder, workspace)
    assert not info.again_due and "called off" in (info.again or "")


def test_a_restart_of_the_machine_drops_the_automatic_resume(
    workspace: Workspace,
) -> None:
    folder = crashed(workspace, limit=1, pause=600)
    first = wait_for_phase(folder, "failed")
    assert first.supervisor is not None
    os.kill(first.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(first.supervisor))
    folder.write_state(
        dataclasses.replace(first, machine=dataclasses.replace(first.machine, boot_id="before"))
    )
    by_hand = start_resumption(resumption(workspace, None, None, (), datetime.now()), workspace)
    assert "was restarted in the meantime" in (describe(folder).again or "")
    assert [run.name for run in run_folders(workspace)] == [by_hand.name, folder.name]


def test_a_run_that_was_stopped_does_not_come_back(workspace: Workspace) -> None:
    workspace.settings.write_text("[resume]\nautomatic = 3\npause_minutes = 0\n")
    corpus = write_corpus(workspace.root / "corpus.jsonl")
    words = (
        "--train-iters",
        "1000000",
        "--save-interval",
        "5",
        "--data-path",
        str(corpus),
        "--eval-iters",
        "0",
    )
    folder = start(train_plan("demo", SMALL, words, workspace.root / "save"), workspace)
    wait_for(lambda: state_of(folder).signs.saved)
    *_, info = stop_run(folder, workspace, now=True)
    assert (info.phase, info.again) == ("failed", None)
