"""A step as a job: it outlives its starter, is watched through its files, is cancelled as a whole, and never runs twice."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import LIMIT, until

from backends.errors import UserError
from backends.runs.processes import MARK, Machine, find_process, is_alive
from backends.setup.command_text import command_text, read_commands
from backends.setup.job import JobFolder, cancel_job, job_folder, perform, prepare, start_job
from backends.setup.job_state import JobState, action_from_json, action_json
from backends.setup.job_watch import JobWatch, watch_jobs
from backends.setup.standing import progress_words, with_job
from backends.setup.step import Action, Finding
from backends.workspace import Workspace


def shell(title: str, program: str, folder: Path) -> Action:
    return Action(title, ("bash", "-c", program), folder)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    made = job_folder(Workspace(tmp_path), "data")
    yield made
    cancel_job(made, limit=5)


def phase(folder: JobFolder) -> str:
    state = folder.state()
    return state.phase if state else "none"


# Running.


def test_a_job_runs_its_commands_and_keeps_what_they_print(folder: JobFolder, tmp_path: Path) -> None:
    start_job(
        folder, [shell("one", "echo first", tmp_path), shell("two", "echo second >&2", tmp_path)], os.environ
    )
    until(lambda: phase(folder) == "finished", "the end")
    view = JobWatch(folder).look()
    assert view is not None and view.title == "two"
    assert [line for line in view.lines if not line.startswith("+")] == ["# one", "first", "# two", "second"]


def test_a_job_that_fails_says_why_and_runs_nothing_more(folder: JobFolder, tmp_path: Path) -> None:
    broken = shell("write", "echo 'tar: No space left on device'; exit 3", tmp_path)
    start_job(folder, [broken, shell("never", "touch never", tmp_path)], os.environ)
    until(lambda: phase(folder) == "failed", "the end")
    state = folder.state()
    assert state is not None and "The disk is full" in state.message and state.remedy
    assert not (tmp_path / "never").exists()
    found = with_job(Finding("data", "pending", "to do"), JobWatch(folder).look())
    assert (found.verdict, found.evidence) == ("failed", state.message)


def test_it_outlives_the_program_that_started_it(folder: JobFolder, tmp_path: Path) -> None:
    (tmp_path / "go").mkdir()
    program = (
        "import os, sys; from pathlib import Path; from backends.setup.job import *; from backends.setup.step import Action\n"
        "f = JobFolder(Path(sys.argv[1])); go = sys.argv[2]\n"
        "start_job(f, [Action('wait', ('bash', '-c', 'while [ -d go ]; do sleep 0.05; done; echo woken'), Path(go))], os.environ)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(folder.path), str(tmp_path)], start_new_session=True
    )
    until(lambda: phase(folder) == "running", "the start")
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait(LIMIT)
    assert phase(folder) == "running"
    (tmp_path / "go").rmdir()
    until(lambda: phase(folder) == "finished", "the end")
    assert "woken" in folder.log.read_text()


def test_a_step_never_runs_twice_at_once(folder: JobFolder, tmp_path: Path) -> None:
    start_job(folder, [shell("wait", "sleep 60", tmp_path)], os.environ)
    with pytest.raises(UserError, match="runs already") as refused:
        start_job(folder, [shell("again", "true", tmp_path)], os.environ)
    assert "--cancel" in refused.value.remedy
    with pytest.raises(UserError, match="runs already"):
        prepare(folder, [])


def test_two_starts_in_the_same_moment_do_not_write_the_same_files(folder: JobFolder, tmp_path: Path) -> None:
    """Both saw that nothing runs; the lock lets one of them go on."""
    wait = [shell("wait", "touch begun; while [ ! -e go ]; do sleep 0.05; done", tmp_path)]
    prepare(folder, wait)
    first = threading.Thread(target=perform, args=(folder, wait, os.environ, io.BytesIO()))
    first.start()
    until((tmp_path / "begun").exists, "the start")
    try:
        with pytest.raises(UserError, match="started twice"):
            perform(folder, wait, os.environ, io.BytesIO())
    finally:
        (tmp_path / "go").touch()
        first.join(LIMIT)
    assert phase(folder) == "finished"


# Cancelling.


def test_cancel_ends_everything_that_was_started(folder: JobFolder, tmp_path: Path) -> None:
    """Also processes that ignore TERM or have a process group of their own."""
    program = "trap '' TERM; setsid sleep 300 & echo $! > pid; echo begun; while :; do sleep 0.1; done"
    start_job(folder, [shell("stubborn", program, tmp_path)], os.environ)
    until(lambda: "begun\n" in folder.log.read_text(), "the command's start")
    stray = int((tmp_path / "pid").read_text())
    assert cancel_job(folder, limit=1)
    assert phase(folder) == "cancelled"
    assert find_process(stray) is None
    assert not cancel_job(folder), "nothing is left to cancel"


def test_after_a_cancel_the_step_can_be_run_again(folder: JobFolder, tmp_path: Path) -> None:
    start_job(folder, [shell("wait", "sleep 60", tmp_path)], os.environ)
    cancel_job(folder)
    start_job(folder, [shell("quick", "echo done", tmp_path)], os.environ)
    until(lambda: phase(folder) == "finished", "the end")
    assert "sleep" not in folder.log.read_text()


def test_a_killed_job_was_interrupted_and_what_it_left_is_ended_first(
    folder: JobFolder, tmp_path: Path
) -> None:
    start_job(folder, [shell("wait", "echo begun; sleep 300", tmp_path)], os.environ)
    until(lambda: "begun\n" in folder.log.read_text(), "the command's start")
    state = folder.state()
    assert state is not None and state.process is not None
    os.kill(state.process.pid, signal.SIGKILL)
    until(lambda: phase(folder) == "interrupted", "the end")
    with pytest.raises(UserError, match="still run"):
        start_job(folder, [shell("again", "true", tmp_path)], os.environ)
    assert cancel_job(folder)
    start_job(folder, [shell("again", "true", tmp_path)], os.environ)
    until(lambda: phase(folder) == "finished", "the end")


def test_a_foreground_step_is_cancelled_as_by_ctrl_c(folder: JobFolder, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from backends.setup.job import *; from backends.setup.step import Action\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's `pytest &` has it ignored
        "f = JobFolder(Path(sys.argv[1])); a = [Action('wait', ('sleep', '300'), Path('/'))]\n"
        "prepare(f, a); perform(f, a, os.environ, sys.stdout.buffer)"
    )
    foreground = subprocess.Popen(
        [sys.executable, "-c", program, str(folder.path)],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    until(lambda: phase(folder) == "running", "the start")
    assert cancel_job(folder, LIMIT)
    assert foreground.wait(LIMIT) != 0
    assert phase(folder) == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_foreground_step_ends_its_command_when_it_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    """By a signal, as a closed terminal or an administrator sends it. The clone is a stand-in that only waits."""
    (tmp_path / "outputs").mkdir()
    git = tmp_path / "bin/git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\necho $$ > pid\nexec sleep 300\n")
    git.chmod(0o755)
    program = "import signal, sys; signal.signal(int(sys.argv.pop(1)), signal.SIG_DFL); from tui.cli import main; main()"
    foreground = subprocess.Popen(
        [sys.executable, "-c", program, str(int(number)), "-w", str(tmp_path), "setup", "megatron", "--yes"],
        env={**os.environ, "PATH": f"{git.parent}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
    )
    pid = tmp_path / "outputs/pid"
    until(lambda: pid.exists() and pid.read_text().endswith("\n"), "the command's start")
    foreground.send_signal(number)
    assert foreground.wait(LIMIT) == 128 + number
    assert phase(job_folder(Workspace(tmp_path), "megatron")) == "cancelled"
    assert not is_alive(find_process(int(pid.read_text())))


# Refusals.


def test_an_unwritable_workspace_is_named() -> None:
    """Not even root makes a folder in /proc."""
    with pytest.raises(UserError, match="cannot be written"):
        prepare(job_folder(Workspace(Path("/proc")), "data"), [])


def test_a_workspace_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file")
    with pytest.raises(UserError, match="cannot be written") as refused:
        prepare(job_folder(Workspace(tmp_path), "data"), [])
    assert "-w DIR" in refused.value.remedy


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"phase": "x"}',
        '{"phase": "running"}',
        '{"phase": "running", "machine": {}, "started": "x"}',
    ],
)
def test_a_damaged_state_file_gives_no_job(folder: JobFolder, content: str) -> None:
    folder.path.mkdir(parents=True)
    folder.state_file.write_text(content)
    assert folder.state() is None
    assert JobWatch(folder).look() is None


# Watching.


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def written(folder: JobFolder, actions: list[Action], tmp_path: Path) -> JobState:
    """A job that runs, as far as its files say: on another machine, so that nobody looks for its process."""
    prepare(folder, actions)
    state = replace(JobState.started_by(None, True, "", 1.0), machine=Machine("node2", "boot"))
    folder.state_file.write_text(json.dumps(state.as_json()))
    return state


def test_progress_rewritten_in_one_line_is_live(folder: JobFolder, tmp_path: Path) -> None:
    written(folder, [shell("clone", "git", tmp_path)], tmp_path)
    clock = Clock()
    watch = JobWatch(folder, clock)

    def prints(text: str, seconds: float) -> None:
        with folder.log.open("a") as log:
            log.write(text)
        clock.now += seconds

    prints("# clone\nReceiving objects:  20% (200/1000), 1.00 MiB | 1.00 MiB/s\r", 0)
    first = watch.look()
    assert first and first.progress and (first.progress.fraction, first.left) == (0.2, None)
    prints("Receiving objects:  40% (400/1000), 2.00 MiB | 1.00 MiB/s\r", 10)
    second = watch.look()
    assert second and second.left == pytest.approx(30)
    assert second.lines == ("# clone", "Receiving objects:  40% (400/1000), 2.00 MiB | 1.00 MiB/s")
    assert progress_words(second) == "clone: receiving objects 400 of 1,000   40 %   1.00 MiB/s"
    prints("\nnext\n", 1)
    third = watch.look()
    assert third and third.lines[-2:] == ("Receiving objects:  40% (400/1000), 2.00 MiB | 1.00 MiB/s", "next")


def test_hostile_output_is_cleaned_and_a_long_log_is_read_from_its_end(
    folder: JobFolder, tmp_path: Path
) -> None:
    written(folder, [shell("x", "true", tmp_path)], tmp_path)
    folder.log.write_bytes(b"line\n" * 1_000_000 + b"\x1b]52;c;aGk=\x07[/x] \xff\n" + b"y" * 100_000)
    view = JobWatch(folder).look()
    assert view and view.lines[-1] == "[/x] \ufffd" and len(view.lines) <= 500


def test_the_share_of_a_preprocessing_is_known_from_the_corpus(folder: JobFolder, tmp_path: Path) -> None:
    written(folder, [replace(shell("preprocess", "true", tmp_path), documents=2000)], tmp_path)
    folder.log.write_text("# preprocess\nProcessed 500 documents (100.0 docs/s, 1.0 MB/s).\n")
    view = JobWatch(folder).look()
    assert view and view.progress and view.progress.fraction == 0.25
    found = with_job(Finding("data", "pending", "to do", "do it"), view)
    assert (found.verdict, found.remedy) == ("running", "")
    assert found.evidence == "preprocess: 500 documents   25 %   100 documents/s, 1.0 MiB/s"


def test_jobs_are_reported_only_when_they_change(tmp_path: Path) -> None:
    workspace, ended = Workspace(tmp_path), threading.Event()
    seen = watch_jobs(workspace, ["data", "image"], ended, interval=0.01)
    assert next(seen) == {}
    start_job(job_folder(workspace, "image"), [shell("x", "echo hello", tmp_path)], os.environ)
    shown: list[tuple[str, tuple[str, ...]]] = []
    for jobs in seen:
        shown.append((jobs["image"].state.phase, jobs["image"].lines))
        if shown[-1][0] == "finished":
            ended.set()
    assert len(set(shown)) == len(shown), "nothing is told twice"
    assert "hello" in shown[-1][1]


def test_a_job_that_is_over_is_not_read_again(folder: JobFolder, tmp_path: Path) -> None:
    start_job(folder, [shell("one", "echo first", tmp_path)], os.environ)
    until(lambda: phase(folder) == "finished", "the end")
    watch = JobWatch(folder)
    assert watch.look() is watch.look()
    start_job(folder, [shell("two", "echo second", tmp_path)], os.environ)
    until(lambda: phase(folder) == "finished", "the end")
    view = watch.look()
    assert view is not None and view.lines[-1] == "second"


# Commands as text.


def test_commands_can_be_edited_and_read_back(tmp_path: Path) -> None:
    actions = [
        Action("one", ("echo", "a b", "$HOME", "it's"), tmp_path, {"A": "1 2"}),
        Action("two", ("cat",), tmp_path, stdin=tmp_path / "in put"),
        Action("three", ("ls",), Path("/")),
    ]
    text = command_text(actions)
    assert text.splitlines()[:2] == ["# one", f"cd {tmp_path}"]
    assert read_commands(text, Path("/elsewhere")) == actions


WORDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8).filter(
    lambda word: not set(word) <= set(";&|<>()")
)


@given(st.lists(WORDS, min_size=1, max_size=4).filter(lambda w: "=" not in w[0] and w[0] != "cd"))
def test_any_words_survive(words: list[str]) -> None:
    action = Action("x", tuple(words), Path("/"))
    assert read_commands(command_text([action]), Path("/")) == [action]
    assert action_from_json(json.loads(json.dumps(action_json(action)))) == action


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo 'open", "No closing quotation"),
        ("a | b", "only a shell"),
        ("a && b", "only a shell"),
        ("a > b", "only a shell"),
        ("A=1", "runs nothing"),
    ],
)
def test_lines_that_only_a_shell_could_run_are_refused_by_number(
    line: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words) as refused:
        read_commands(f"true\n{line}\n", tmp_path)
    assert "Line 2" in refused.value.message


def test_the_mark_of_a_run_is_not_handed_down(folder: JobFolder, tmp_path: Path) -> None:
    """A set-up started from within a run must not be swept with it."""
    start_job(folder, [shell("x", f"echo mark ${MARK}", tmp_path)], {**os.environ, MARK: "somebody"})
    until(lambda: phase(folder) == "finished", "the end")
    state = folder.state()
    assert state is not None and f"mark {state.mark}" in folder.log.read_text()
