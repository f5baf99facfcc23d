"""With real processes: a job outlives its screen, its terminal and its supervisor, and its exit code is still known."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from scripted_jobs import (
    PROGRAM,
    TRAINER,
    Scripted,
    clean_up,
    scripted,
    start_scripted,
    state_of,
    wait_for,
    wait_for_phase,
)
from waiting import LIMIT

from backends.errors import UserError
from backends.files import write_json
from backends.launch import supervision, wrapper
from backends.launch.adoption import looked_after
from backends.launch.start import start, start_supervisor
from backends.launch.state_file import StateFile
from backends.launch.stop import stop_run
from backends.runs.catalog import describe, run_folders, runs
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.processes import Machine, Process, is_alive, marked_processes, this_machine
from backends.runs.resuming import check_idle
from backends.runs.state import JobExit, RunState
from backends.workspace import Workspace

STARTER = """
import sys
from pathlib import Path
from scripted_jobs import start_scripted
from backends.workspace import Workspace
start_scripted(Workspace(Path(sys.argv[1])))
print("started", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    workspace = Workspace(tmp_path)
    yield workspace
    for folder in run_folders(workspace):
        clean_up(folder)


def let_it_end(workspace: Workspace, status: int = 0) -> None:
    """The scripted trainer looks for this file after each iteration."""
    (workspace.root / "end.part").write_text(str(status))
    (workspace.root / "end.part").rename(workspace.root / "end")


def starter(workspace: Workspace, *, own_group: bool = False) -> subprocess.Popen[bytes]:
    """A process that starts a run, says so and then waits, as a screen does."""
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, str(workspace.root)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=own_group,
    )


def only_run(workspace: Workspace) -> RunFolder:
    folder = wait_for(lambda: next(run_folders(workspace), None))
    wait_for_phase(folder, "running")
    return folder


def test_a_job_that_ends_well_is_finished_with_its_exit_code(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    wait_for_phase(folder, "running")
    let_it_end(workspace)
    state = wait_for_phase(folder, "finished", "failed", "lost")
    assert (state.phase, state.exit_code, state.signal, state.train_iters) == ("finished", 0, None, 500)
    assert state.ended and marked_processes(state.mark) == []
    wait_for(lambda: not is_alive(state.supervisor))


def test_status_0_without_an_end_mark_is_a_failure(workspace: Workspace) -> None:
    state = wait_for_phase(start_scripted(workspace, "print('hello')"), "finished", "failed")
    assert (state.phase, state.exit_code) == ("failed", 0)
    assert state.reason and "training was done" in state.reason


def test_the_signal_that_ended_a_job_is_known(workspace: Workspace) -> None:
    state = wait_for_phase(
        start_scripted(workspace, "import os; os.kill(os.getpid(), 9)"), "finished", "failed"
    )
    assert (state.phase, state.exit_code, state.signal) == ("failed", None, 9)


def test_a_program_that_does_not_exist_is_a_failure_that_the_log_explains(workspace: Workspace) -> None:
    program = "import os; os.execv('/no/such/program', ['x'])"
    folder = start_scripted(workspace, program)
    assert wait_for_phase(folder, "finished", "failed").exit_code == 1
    assert "FileNotFoundError" in folder.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_the_screen_is_killed_and_the_job_goes_on(workspace: Workspace, number: signal.Signals) -> None:
    screen = starter(workspace)
    folder = only_run(workspace)
    screen.send_signal(number)
    screen.communicate()
    before = folder.log.stat().st_size
    wait_for(lambda: folder.log.stat().st_size > before)
    let_it_end(workspace, status=3)
    state = wait_for_phase(folder, "finished", "failed", "lost")
    assert (state.phase, state.exit_code) == ("failed", 3)


def test_the_process_group_of_the_screen_is_killed_and_the_job_goes_on(workspace: Workspace) -> None:
    screen = starter(workspace, own_group=True)
    folder = only_run(workspace)
    os.killpg(screen.pid, signal.SIGKILL)
    screen.communicate()
    let_it_end(workspace)
    assert wait_for_phase(folder, "finished", "failed", "lost").exit_code == 0


def test_the_terminal_is_closed_and_the_job_goes_on(workspace: Workspace) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(Path(__file__).parent)
        os.execv(sys.executable, [sys.executable, "-c", STARTER, str(workspace.root)])
    folder = only_run(workspace)
    os.close(terminal)
    os.waitpid(pid, 0)
    let_it_end(workspace)
    assert wait_for_phase(folder, "finished", "failed", "lost").phase == "finished"


def test_the_supervisor_is_killed_and_the_next_who_looks_adopts_the_job(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    first = wait_for_phase(folder, "running")
    assert first.supervisor and first.job
    os.kill(first.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(first.supervisor))
    seen = describe(folder)
    assert (seen.phase, seen.orphaned) == ("running", True)

    info = looked_after(folder, workspace, PROGRAM)
    assert (info.phase, info.orphaned, info.pid) == ("running", False, first.job.pid)
    assert is_alive(state_of(folder).supervisor)
    let_it_end(workspace, status=5)
    state = wait_for_phase(folder, "finished", "failed", "lost")
    assert (state.phase, state.exit_code) == ("failed", 5)
    assert state.iteration and state.started == first.started


def test_the_job_ends_while_nobody_supervises_it_and_its_exit_code_is_known(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    first = wait_for_phase(folder, "running")
    assert first.supervisor
    os.kill(first.supervisor.pid, signal.SIGKILL)
    let_it_end(workspace)
    wait_for(folder.job_exit)
    wait_for(lambda: not is_alive(first.leader))
    assert describe(folder).phase == "finished"  # said without writing anything

    info = looked_after(folder, workspace, PROGRAM)
    assert (info.phase, info.exit_code) == ("finished", 0)
    assert wait_for_phase(folder, "finished").exit_code == 0


def test_supervisor_and_job_are_killed_and_the_run_is_lost(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    first = wait_for_phase(folder, "running")
    assert first.supervisor
    for process in [first.supervisor, *marked_processes(first.mark)]:
        os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(first.supervisor) and not marked_processes(first.mark))
    assert describe(folder).phase == "lost"
    looked_after(folder, workspace, PROGRAM)
    assert wait_for_phase(folder, "lost").reason
    assert [info.phase for info in runs(workspace)] == ["lost"]


def test_two_who_look_at_once_give_a_run_one_supervisor(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    first = wait_for_phase(folder, "running")
    assert first.supervisor
    os.kill(first.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(first.supervisor))
    argv = [*PROGRAM, str(folder.path), str(workspace.root), "--ready", "1"]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) for _ in range(2)]
    assert [json.loads(process.communicate()[0]) for process in both] == [{}, {}]
    adopted = folder.supervisor_log.read_text() if folder.supervisor_log.exists() else ""
    wait_for(lambda: len(supervisors(folder)) == 1)
    assert adopted.count("adopted") <= 1


def supervisors(folder: RunFolder) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder.path).encode() in words and b"scripted_jobs.py" in b" ".join(words):
            found.append(int(path.parent.name))
    return found


def test_processes_that_a_job_leaves_behind_are_ended(workspace: Workspace) -> None:
    """Ranks outlive an mpirun that was killed: they have left its group, not its session, and carry the mark."""
    program = "import subprocess; subprocess.Popen(['sleep', '600'], process_group=0)"
    if sys.version_info < (3, 11):
        program = "import os, subprocess; subprocess.Popen(['sleep', '600'], preexec_fn=os.setpgrp)"
    folder = start_scripted(workspace, program)
    state = wait_for_phase(folder, "finished", "failed")
    assert marked_processes(state.mark) == []


def test_a_resume_from_random_weights_is_killed_before_it_can_save(workspace: Workspace) -> None:
    save = workspace.root / "save"
    save.mkdir()
    (save / "latest_checkpointed_iteration.txt").write_text("100")
    missing = (
        "WARNING: could not find the metadata file X/latest_checkpointed_iteration.txt \\n"
        "    will not load any checkpoints and will start from random\\n"
    )
    folder = start_scripted(workspace, f'print("{missing}", end="")\n{TRAINER}', load=str(save))
    state = wait_for_phase(folder, "finished", "failed")
    assert state.phase == "failed" and state.reason and "random weights" in state.reason
    assert "successfully saved" not in folder.log.read_text()
    assert marked_processes(state.mark) == []


HANGS = """
print("training ...", flush=True)
print(" [2026-11-30 05:00:00] iteration        7/     500 | consumed samples:            7 | elapsed time per iteration (ms): 100.0"
      " | learning rate: 1.000000E-04 | global batch size:     1 | lm loss: 5.000000E+00 | loss scale: 1.0 | grad norm: 1.000"
      " | number of skipped iterations:   0 | number of nan iterations:   0 |", flush=True)
print("Traceback (most recent call last):\\n  File 'x.py', line 1, in f\\nRuntimeError: NCCL error: unhandled system error", flush=True)
import time
time.sleep(600)
"""


def test_ranks_that_hang_after_an_error_are_ended_where_that_is_wanted(workspace: Workspace) -> None:
    """And are resumed by themselves then: whoever ended them was a machine."""
    workspace.settings.write_text(
        "[stop]\nhang_minutes = 0.02\n[resume]\nautomatic = 2\npause_minutes = 10\n"
    )
    folder = start_scripted(workspace, HANGS)
    state = wait_for_phase(folder, "finished", "failed")
    assert state.phase == "failed" and state.reason and "It hung after an error" in state.reason
    assert "NCCL error" in state.reason and marked_processes(state.mark) == []
    assert state.again and state.again.dropped == "its tracker file names no checkpoint."


@pytest.mark.parametrize("hung", [True, False])
def test_a_hung_run_that_is_ended_may_be_resumed(workspace: Workspace, hung: bool) -> None:
    workspace.settings.write_text("[resume]\nautomatic = 2\npause_minutes = 10\n")
    folder = start_scripted(workspace, HANGS)
    wait_for(lambda: state_of(folder).signs.last_error)
    look = lambda folder, workspace: looked_after(folder, workspace, PROGRAM)  # noqa: E731
    *_, info = stop_run(folder, workspace, now=not hung, hung=hung, look=look)
    state = state_of(folder)
    assert info.phase == "failed" and ("hung" in (info.reason or "")) == hung
    assert (state.again is not None) == hung, "a stop by hand is no crash"
    assert marked_processes(state.mark) == []


def test_a_resume_whose_words_are_lost_is_known_by_the_iterations_that_it_repeats(
    workspace: Workspace,
) -> None:
    save = workspace.root / "save"
    save.mkdir()
    (save / "latest_checkpointed_iteration.txt").write_text("100")
    folder = start_scripted(workspace, TRAINER, load=str(save))
    state = wait_for_phase(folder, "finished", "failed")
    assert state.phase == "failed" and state.reason and "random weights" in state.reason
    assert state.iteration and state.iteration < 100 and "successfully saved" not in folder.log.read_text()


def test_a_run_whose_state_is_damaged_is_not_started_a_second_time(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    first = wait_for_phase(folder, "running")
    assert first.supervisor
    os.kill(first.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(first.supervisor))
    whole = folder.state_file.read_bytes()
    folder.state_file.write_bytes(whole[:40])
    with pytest.raises(UserError, match="is damaged"):
        start_supervisor(folder, workspace, os.environ, PROGRAM)
    assert {p.pid for p in marked_processes(first.mark)} == {
        first.job and first.job.pid,
        first.leader and first.leader.pid,
    }
    folder.state_file.write_bytes(whole)
    assert looked_after(folder, workspace, PROGRAM).phase == "running"


def test_two_runs_never_save_into_one_folder(workspace: Workspace) -> None:
    """Also when both passed the check before either had begun."""
    save = workspace.root / "save"
    arguments = ("--train-iters", "500", "--save-interval", "100")
    plan = dataclasses.replace(scripted(TRAINER), save=str(save), arguments=arguments)
    folder = start(plan, workspace, program=PROGRAM)
    with pytest.raises(UserError, match="saves into"):
        start(plan, workspace, program=PROGRAM)
    assert [run.name for run in run_folders(workspace)] == [folder.name]


def test_a_run_of_a_silent_machine_may_live_on_and_is_only_branched_from(workspace: Workspace) -> None:
    save = workspace.root / "save"
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 5))
    write_json(folder.plan_file, dataclasses.replace(scripted(TRAINER), save=str(save)).as_json())
    folder.write_state(RunState(phase="running", machine=Machine("elsewhere", "b"), heartbeat=1000.0))
    assert describe(folder).phase == "lost"
    with pytest.raises(UserError, match="may live on") as caught:
        check_idle(workspace, save)
    assert "--iteration" in caught.value.remedy


def test_a_run_folder_that_is_removed_keeps_no_supervisor_for_ever(workspace: Workspace) -> None:
    folder = start_scripted(workspace)
    first = wait_for_phase(folder, "running")
    shutil.rmtree(folder.path)
    let_it_end(workspace)
    wait_for(lambda: not is_alive(first.supervisor))
    assert marked_processes(first.mark) == []


def test_an_exit_code_that_cannot_be_written_is_still_known(workspace: Workspace) -> None:
    """Its place is taken by a folder: nothing can be renamed there."""
    folder = start_scripted(workspace)
    wait_for_phase(folder, "running")
    folder.exit_file.mkdir()
    let_it_end(workspace, status=5)
    state = wait_for_phase(folder, "finished", "failed", "lost")
    assert (state.phase, state.exit_code) == ("failed", 5)


def test_a_full_disk_is_reported_and_the_job_goes_on(workspace: Workspace) -> None:
    """A file size limit stands in for the full disk; the job itself is not under it."""
    folder = start_scripted(workspace)
    first = wait_for_phase(folder, "running")
    assert first.supervisor
    _, hard = resource.prlimit(first.supervisor.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(first.supervisor.pid, resource.RLIMIT_FSIZE, (200, hard))
    said = wait_for(folder.supervisor_log.read_text)
    assert "state.json cannot be written" in said and "The job goes on" in said
    assert is_alive(first.supervisor) and is_alive(first.job)
    assert state_of(folder).phase == "running"  # the old one, whole

    resource.prlimit(first.supervisor.pid, resource.RLIMIT_FSIZE, (hard, hard))
    let_it_end(workspace)
    assert wait_for_phase(folder, "finished").exit_code == 0


def test_a_read_only_folder_is_reported_with_a_remedy() -> None:
    """Not even root makes folders in /proc."""
    with pytest.raises(UserError, match=r"/proc/outputs/runs/.* cannot be made") as caught:
        start_scripted(Workspace(Path("/proc")))
    assert "-w DIR" in caught.value.remedy


def test_a_file_in_place_of_a_folder_is_reported_with_a_remedy(workspace: Workspace) -> None:
    workspace.outputs.write_text("in the way")
    with pytest.raises(UserError, match="cannot be made") as caught:
        start_scripted(workspace)
    assert "-w DIR" in caught.value.remedy


def test_two_starters_in_the_same_second_get_two_folders(workspace: Workspace) -> None:
    both = [starter(workspace) for _ in range(2)]
    for process in both:
        assert process.stdout and process.stdout.readline() == b"started\n"
    folders = list(run_folders(workspace))
    assert len(folders) == 2
    marks = {wait_for_phase(folder, "running").mark for folder in folders}
    assert len(marks) == 2
    for process in both:
        process.communicate(b"\n")


def test_a_job_that_cannot_be_started_is_an_error_and_a_failed_run(workspace: Workspace) -> None:
    with pytest.raises(UserError, match="could not be started"):
        start_scripted(workspace, "no program holds a zero byte \0")
    [info] = runs(workspace)
    assert info.phase == "failed" and info.reason and "could not be started" in info.reason


# What Open MPI 5.0.11 prints when its listener thread fails; FAILURES of its starts do.
FAILS_TO_START = """
import sys
with open("starts", "a+") as file:
    file.write("x")
    file.seek(0)
    starts = len(file.read())
if starts <= FAILURES:
    print(BEFORE, end="")
    print("-" * 74, "The PMIx server's listener thread failed to start. We cannot", "continue.", "-" * 74, sep="\\n")
    sys.exit(213)
"""


@pytest.mark.parametrize(
    ("failures", "before", "starts"), [(1, "", 2), (2, "", 3), (3, "", 3), (1, "a rank's word\\n", 1)]
)
def test_an_mpirun_that_started_no_rank_is_started_again_twice_at_most(
    workspace: Workspace, failures: int, before: str, starts: int
) -> None:
    program = FAILS_TO_START.replace("FAILURES", str(failures)).replace("BEFORE", repr(before))
    folder = start_scripted(workspace, program + TRAINER)
    if starts > failures:
        running = wait_for_phase(folder, "running")
        assert {process.pid for process in marked_processes(running.mark)} == {
            running.job and running.job.pid,
            running.leader and running.leader.pid,
        }
    let_it_end(workspace)
    state = wait_for_phase(folder, "finished", "failed", "lost")
    assert (state.phase, state.exit_code) == (("finished", 0) if starts > failures else ("failed", 213))
    assert len((workspace.root / "starts").read_text()) == starts
    told = [
        line for line in folder.log.read_text().splitlines() if line.startswith("mdk-tui: mpirun could not")
    ]
    assert [line.rpartition(", ")[2] for line in told] == ["1 of 2.", "2 of 2."][: starts - 1]


def test_the_mark_of_an_outer_run_is_not_inherited(workspace: Workspace) -> None:
    environment = {**os.environ, "MDK_RUN": "outer"}
    folder = start(scripted(TRAINER), workspace, environment=environment, program=PROGRAM)
    state = wait_for_phase(folder, "running")
    assert state.supervisor and state.supervisor not in marked_processes("outer")
    assert {p.pid for p in marked_processes(state.mark)} == {
        state.job and state.job.pid,
        state.leader and state.leader.pid,
    }


class Wedged:
    """What a job has left hangs in the kernel until `until` holds: KILL is taken, and nothing happens."""

    main: Process | None = None
    leader: Process | None = None
    waits = False
    note: str | None = None

    def __init__(self, until: Callable[[], bool]) -> None:
        self._until, self.told = until, set[int]()

    def lives(self) -> bool:
        return False

    def wait(self, seconds: float) -> None: ...

    def exit(self) -> JobExit | None:
        return JobExit(None, 9)

    def processes(self) -> list[Process]:
        return [] if self._until() else [Process(4242, 1, 1)]

    def ask_to_save(self) -> None: ...

    def signal_all(self, number: int) -> None:
        self.told.add(number)


def test_processes_that_survive_kill_are_reported_while_they_last(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "SWEEP_LIMIT", 0.01)
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 5))
    write_json(folder.plan_file, scripted(TRAINER).as_json())
    first = RunState(phase="running", machine=this_machine(), heartbeat=time.time())
    job = Wedged(lambda: "KILL does not end what it left (4242)" in (state_of(folder).note or ""))
    folder.write_state(first)
    state_file = StateFile(folder, first, print)
    supervision.Supervision(folder, folder.plan(), Scripted(), job, state_file).run()
    assert signal.SIGKILL in job.told
    assert (state_of(folder).phase, state_of(folder).note) == ("failed", None)


def test_a_signal_before_the_job_has_begun_ends_it(tmp_path: Path) -> None:
    for attempt in range(10):
        reader, writer = os.pipe()
        words = [sys.executable, "-I", "-S", wrapper.__file__, str(writer), str(tmp_path / str(attempt))]
        with (
            subprocess.Popen([*words, "sleep", "1000"], pass_fds=(writer,)) as process,
            os.fdopen(reader) as told,
        ):
            os.close(writer)
            os.kill(int(told.readline()), signal.SIGTERM)
            assert process.wait(LIMIT) == 128 + signal.SIGTERM
