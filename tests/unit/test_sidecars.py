"""The sidecars of a job: notifications, and companions that are started again."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_jobs import clean_up, start_scripted, wait_for, wait_for_phase

from backends.files import hold_lock
from backends.launch.notification import LIMIT, Notifier, Standing, news
from backends.launch.sidecars import RESTART_PAUSE, RESTARTS, Companion
from backends.runs.automatic import Again
from backends.runs.plan import RunPlan
from backends.runs.signs import Signs
from backends.runs.state import RunState
from backends.settings import NotifySettings
from backends.workspace import Workspace

RUNNING = RunState(phase="running", iteration=4310)
PLAN = RunPlan("train", "demo", launcher="local", title="gpt3-7b")


def after(**signs: str) -> RunState:
    return dataclasses.replace(RUNNING, signs=Signs(**signs))  # pyright: ignore[reportArgumentType]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_news_is_what_is_new() -> None:
    broken = after(error="CUDA out of memory", nan_alert="the loss is NaN")
    assert list(news(RUNNING, RUNNING)) == []
    assert list(news(RUNNING, broken)) == ["an error is in the log: CUDA out of memory", "the loss is NaN"]
    assert list(news(broken, broken)) == []


def test_the_end_is_reported_with_its_reason() -> None:
    failed = dataclasses.replace(RUNNING, phase="failed", reason="It left with status 1.")
    finished = dataclasses.replace(RUNNING, phase="finished")
    assert list(news(RUNNING, failed)) == ["failed at iteration 4,310: It left with status 1."]
    assert list(news(RUNNING, finished)) == ["finished at iteration 4,310"]


def test_a_crash_is_reported_with_its_automatic_resume_and_its_outcome() -> None:
    due = Again(1, 3, at=0.0)
    failed = dataclasses.replace(RUNNING, phase="failed", reason="It left with status 1.", again=due)
    resumed = dataclasses.replace(failed, again=dataclasses.replace(due, run="2026-11-30/10-00-00"))
    assert list(news(RUNNING, failed)) == [f"failed at iteration 4,310: It left with status 1. {due.words()}"]
    assert list(news(failed, resumed)) == ["Resumed by itself as 2026-11-30/10-00-00 (1 of 3)."]
    assert list(news(resumed, resumed)) == []


def test_a_lasting_notice_is_sent_once_after_its_patience() -> None:
    queue = Standing(60.0)
    assert list(queue.look("waits: Priority", 0)) == list(queue.look("waits: Priority", 59)) == []
    assert list(queue.look("waits: Resources", 60)) == ["waits: Resources"]
    assert list(queue.look("waits: Priority", 500)) == list(queue.look(None, 510)) == []
    assert list(queue.look("waits: BeginTime", 520)) == []
    assert list(queue.look("waits: BeginTime", 580)) == ["waits: BeginTime"]


def test_a_long_queue_and_silent_nodes_are_reported(tmp_path: Path) -> None:
    clock, said, told = Clock(), list[str](), tmp_path / "told"
    settings = NotifySettings(
        ("sh", "-c", 'printf "%s\\n" "$1" >>"$0"', str(told), "{subject}"), queue_minutes=30
    )
    silent: list[str] = []
    watching = Notifier(
        "a/b", PLAN, RUNNING, settings, said.append, clock, lambda: silent[0] if silent else None
    )

    def after_a_look(state: RunState, words: str) -> bool:
        watching.look(state)
        return told.exists() and words in told.read_text()

    queued = dataclasses.replace(RUNNING, phase="starting", note="Slurm job 7 waits: Priority.")
    watching.look(queued)
    clock.now = 30 * 60.0
    wait_for(lambda: after_a_look(queued, "mdk-tui: a/b Slurm job 7 waits: Priority."))
    silent.append("No iteration for 12 min: node2 does not answer.")
    wait_for(lambda: after_a_look(RUNNING, "No iteration for 12 min: node2 does not answer."))
    silent[0] = "No iteration for 22 min: node2 does not answer."
    watching.look(RUNNING)
    watching.close(RUNNING)
    assert len(told.read_text().splitlines()) == 2 and said == []


def notifier(program: str, said: list[str], clock: Clock) -> Notifier:
    command = (sys.executable, "-c", program, "{subject}")
    return Notifier("2026-11-30/09-32-12", PLAN, RUNNING, NotifySettings(command), said.append, clock)


def test_the_command_gets_the_subject_and_the_text(tmp_path: Path) -> None:
    told = tmp_path / "told"
    program = (
        f"import os, sys; open({str(tmp_path / 'part')!r}, 'w').write(sys.argv[1] + '\\n' + sys.stdin.read());"
        f"os.rename({str(tmp_path / 'part')!r}, {str(told)!r})"
    )
    said: list[str] = []
    notifier(program, said, Clock()).close(
        dataclasses.replace(RUNNING, phase="failed", reason="rank 3\x1b[31m ran\nout of memory")
    )
    wait_for(told.exists)
    subject, run, *rest = told.read_text().splitlines()
    assert subject == "mdk-tui: 2026-11-30/09-32-12 failed at iteration 4,310: rank 3 ran out of memory"
    assert run == "2026-11-30/09-32-12  gpt3-7b"
    assert rest[-1] == "mdk-tui attach 2026-11-30/09-32-12"
    assert said == []


def test_a_command_that_hangs_is_ended_and_said() -> None:
    said: list[str] = []
    clock = Clock()
    told = notifier("import time; time.sleep(1000)", said, clock)
    told.look(after(error="broken"))
    told.look(after(error="broken"))
    assert said == []
    clock.now = LIMIT + 1
    told.look(after(error="broken"))
    assert said == ["the command of [notify] ended with status -9"]


def test_a_missing_command_is_reported() -> None:
    said: list[str] = []
    Notifier("a/b", PLAN, RUNNING, NotifySettings(("/nowhere/mail",)), said.append).look(
        after(error="broken")
    )
    assert said == ["the command of [notify] could not be started: No such file or directory"]


def test_a_companion_that_keeps_failing_is_restarted_a_few_times(tmp_path: Path) -> None:
    said: list[str] = []
    clock = Clock()
    program = f"import os, sys; open({str(tmp_path / 'starts')!r}, 'a').write('x'); sys.exit(3)"
    beside = Companion(
        (sys.executable, "-c", program, "RUN", "WORKSPACE"), dict(os.environ), said.append, clock
    )
    for failures in range(1, RESTARTS + 2):
        wait_for(lambda failures=failures: beside.look(RUNNING) or len(said) == failures)
        clock.now += RESTART_PAUSE
    beside.look(RUNNING)
    assert (tmp_path / "starts").read_text() == "x" * (RESTARTS + 1)


def test_only_one_holds_a_lock(tmp_path: Path) -> None:
    lock = tmp_path / "it.lock"
    program = f"from pathlib import Path; from backends.files import hold_lock; print(hold_lock(Path({str(lock)!r})))"
    assert hold_lock(lock)
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "False"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    yield Workspace(tmp_path)


def test_a_real_run_that_fails_tells_it(workspace: Workspace) -> None:
    told = workspace.root / "told"
    workspace.settings.write_text(
        f'[notify]\ncommand = ["sh", "-c", \'printf %s "$1" >"$0.part" && mv "$0.part" "$0"\', "{told}", "{{subject}}"]\n'
    )
    folder = start_scripted(workspace)
    try:
        wait_for_phase(folder, "running")
        (workspace.root / "end.part").write_text("3")
        (workspace.root / "end.part").rename(workspace.root / "end")
        wait_for(told.exists)
        assert "It left with status 3" in told.read_text()
        assert folder.name in told.read_text()
    finally:
        clean_up(folder)
