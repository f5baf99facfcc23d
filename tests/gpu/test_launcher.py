"""The launcher on a GPU: preset smoke through `mdk-tui launch`, mpirun and singularity; watched, stopped, resumed, served.

One story: the tests run in the order of the file, each on what the one before left.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.runs.catalog import RunInfo, describe, run_folders
from backends.runs.checkpoints import checkpoints, read_tracker
from backends.runs.folder import RunFolder
from backends.runs.processes import marked_processes
from backends.runs.watching import newest_values
from tui.app import MdkApp, Opening
from tui.appearance import Appearance
from tui.screens.monitor import MonitorScreen

START = 240.0  # s for python to come up, compile, load and print its first iterations
LONG = (
    "--train-iters",
    "100000",
    "--lr-decay-iters",
    "100000",
    "--log-interval",
    "5",
    "--eval-interval",
    "100000",
)
KEEP = os.environ.get("OUT")  # where logs are kept, if anywhere


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(site: Any) -> Iterator[None]:
    """End what a failed test leaves running; keep the logs."""
    yield
    for folder in run_folders(site.workspace):
        if not describe(folder).over:
            site.call("stop", folder.name, "--now")
        if KEEP:
            shutil.copy(folder.log, Path(KEEP) / f"launcher-{folder.path.name}.log")


def launched(site: Any, *words: str) -> RunFolder:
    data = ("--data-path", str(site.data), *LONG)
    info = site.json("launch", "--preset", "smoke", *words, "--", *data)
    return RunFolder(Path(info["path"]))


def until(folder: RunFolder, holds: Callable[[RunInfo], object], what: str) -> RunInfo:
    deadline = time.monotonic() + START
    while not holds(info := describe(folder)):
        words = f"{what}: {info.phase}, {info.reason}\n{folder.log.read_text(errors='replace')[-3000:]}"
        assert not info.over, words
        assert time.monotonic() < deadline, words
        time.sleep(0.2)
    return info


@pytest.fixture(scope="module")
def first(site: Any) -> RunFolder:
    """The run that most of the story is about, training."""
    folder = launched(site, "--gpus", "1")
    until(folder, lambda info: (info.iteration or 0) >= 20, "the first iterations")
    return folder


def saved(folder: RunFolder) -> Path:
    return Path(folder.plan().save or "")


def test_a_dry_run_finds_nothing_wrong_and_prints_the_tutorials_command(site: Any) -> None:
    shown = site.json(
        "launch", "--preset", "smoke", "--dry-run", "--", "--data-path", "launcher_text_document"
    )
    assert [problem for problem in shown["problems"] if problem["severity"] == "error"] == []
    argv = shown["argv"]
    assert argv[0] == "mpirun" and "--nv" in argv and str(site.image) in argv
    assert str(site.data) in argv, "the data was found in the clone"
    assert shown["env"]["MASTER_PORT"].isdigit()


def test_flags_that_this_megatron_does_not_know_are_named(site: Any) -> None:
    words = ("--data-path", str(site.data), "--num-leyers", "2")
    shown = site.json("launch", "--preset", "smoke", "--dry-run", "--", *words)
    (problem,) = [problem for problem in shown["problems"] if problem["field"] == "--num-leyers"]
    assert "Did you mean --num-layers?" in problem["remedy"]
    unknown = [
        p
        for p in site.json("launch", "--preset", "smoke", "--dry-run")["problems"]
        if "does not know" in p["message"]
    ]
    assert unknown == []


def test_status_and_summary_see_it_train(site: Any, first: RunFolder) -> None:
    status = site.json("status", first.name)
    assert (status["phase"], status["kind"], status["train_iters"]) == ("running", "train", 100_000)
    assert status["iteration"] >= 20
    summary = site.json("summary", first.name)
    assert summary["phase"] == "running" and summary["last"]["lm loss"] < 12
    assert summary["last"]["throughput per GPU (TFLOP/s/GPU)"] > 0
    assert str(saved(first)).startswith(str(site.workspace.checkpoints)), (
        "the folder is chosen before the launch"
    )


async def test_the_monitor_shows_its_numbers_and_its_gpu(site: Any, first: RunFolder) -> None:
    app = MdkApp(site.workspace, Appearance(calm=True), Opening("monitor", first))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        deadline = time.monotonic() + 60
        while True:
            screen = app.screen
            model = screen.model if isinstance(screen, MonitorScreen) else None
            if model is not None and (model.record.iteration or 0) >= 20:
                break
            assert time.monotonic() < deadline
            await pilot.pause(0.1)
    assert app.failures == []


def test_its_command_reproduces_it_by_hand(first: RunFolder) -> None:
    script = first.command.read_text()
    assert script.startswith("#!/bin/sh") and "exec mpirun" in script and "export MASTER_PORT=" in script


def test_a_second_job_on_the_node_meets_at_another_port(site: Any, first: RunFolder) -> None:
    second = launched(site, "--gpus", "1")
    ports = [folder.plan().environment["MASTER_PORT"] for folder in (first, second)]
    assert len(set(ports)) == 2
    until(second, lambda info: (info.iteration or 0) >= 5, "iterations of the second job")
    assert not describe(first).over
    ended = site.json("stop", second.name, "--now")
    assert ended["phase"] in ("finished", "failed")


def test_an_earlier_run_says_how_fast_it_is(site: Any, first: RunFolder) -> None:
    from backends.launch.facts import measured_throughput

    measured = measured_throughput(first.plan(), site.workspace)
    assert measured is not None and measured.value > 0
    assert newest_values(first.log)


def test_a_stop_saves_and_ends_with_status_0(site: Any, first: RunFolder) -> None:
    ended = site.json("stop", first.name, limit=300)
    assert (ended["phase"], ended["exit_code"]) == ("finished", 0), first.log.read_text(errors="replace")[
        -3000:
    ]
    tracker = read_tracker(saved(first))
    assert tracker.problem is None and isinstance(tracker.iteration, int) and tracker.iteration >= 20
    (checkpoint, *_) = checkpoints(saved(first))
    assert checkpoint.complete and checkpoint.iteration == tracker.iteration
    state = first.state()
    assert state is not None and marked_processes(state.mark) == []


def test_a_resume_goes_on(site: Any, first: RunFolder) -> None:
    before = read_tracker(saved(first)).iteration
    assert isinstance(before, int)
    info = site.json("resume", str(saved(first)))
    again = RunFolder(Path(info["path"]))
    until(again, lambda info: (info.iteration or 0) > before, "iterations after the resume")
    log = again.log.read_text(errors="replace")
    assert f"successfully loaded checkpoint from {saved(first)}" in log
    plan = again.plan()
    assert (plan.load, plan.save, plan.parent) == (str(saved(first)), str(saved(first)), first.name)
    ended = site.json("stop", again.name, limit=300)
    assert (ended["phase"], ended["exit_code"]) == ("finished", 0)
    after = read_tracker(saved(first)).iteration
    assert isinstance(after, int) and after > before


def test_a_server_with_derived_flags_answers(site: Any, first: RunFolder) -> None:
    served = site.json("serve", str(saved(first)), "--until-ready", limit=400)
    assert served["phase"] == "running" and served["address"], served
    answer = site.json("ask", "import ", "--tokens", "8", "--url", served["address"])
    assert answer["text"].startswith("import ") and answer["continuation"]
    site.json("stop", served["run"], limit=120)


def test_an_edited_command_runs_and_is_written_down(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/--train-iters 100000/--train-iters 10/" "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    folder = launched(site, "--gpus", "1", "--edit")
    deadline = time.monotonic() + START
    while not describe(folder).over:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    info = describe(folder)
    assert (info.phase, info.iteration) == ("finished", 10), folder.log.read_text(errors="replace")[-3000:]
    assert "--train-iters" in folder.plan().command and folder.plan().train_iters == 10
    assert json.loads(folder.plan_file.read_text())["command"][0] == "mpirun"
