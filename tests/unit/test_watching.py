"""Watching the runs of a workspace."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

from fake_runs import TRAINING

from backends.runs.catalog import RunInfo
from backends.runs.folder import RunFolder
from backends.runs.watching import newest_values, watch_runs
from backends.workspace import Workspace


def test_the_newest_numbers_are_those_of_the_end(logs: Path, tmp_path: Path) -> None:
    line = " iteration {:>8}/    1000 | consumed samples: 40 | elapsed time per iteration (ms): 12.5 | lm loss: {}E+00 |\n"
    log = tmp_path / "output.log"
    log.write_text("".join(line.format(at, 9 - at / 100) for at in range(1, 500)) + "half a line")
    found = newest_values(log, tail=2000)
    assert (found["lm loss"], found["elapsed time per iteration (ms)"]) == (4.01, 12.5)
    assert newest_values(tmp_path / "none") == {}
    log.write_bytes(b"\x00\xff" * 1000)
    assert newest_values(log) == {}


def test_only_changes_are_yielded_and_ended_runs_are_read_once(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    (workspace.runs / "2024-11-30/01-01-01").mkdir(parents=True)
    (workspace.runs / "2024-11-30/01-01-02").mkdir(parents=True)
    ended, looks = threading.Event(), [0, 0]

    def look(folder: RunFolder) -> RunInfo:
        first = folder.name.endswith("01")
        looks[not first] += 1
        iteration = 5 if first else max(looks[1] - 3, 0)
        if looks[1] == 6:
            ended.set()
        phase, end = ("finished", "2024-11-30T02:00:00+00:00") if first else ("running", None)
        return dataclasses.replace(TRAINING.info, path=folder.path, run=folder.name, phase=phase, ended=end, iteration=iteration, save=folder.name)  # fmt: skip

    told = [
        [run.info.iteration for run in runs] for runs in watch_runs(workspace, ended, look, interval=0.001)
    ]
    assert told == [[0, 5], [1, 5], [2, 5], [3, 5]]
    assert looks == [1, 6]


def test_a_run_that_another_run_continues_is_read_again(tmp_path: Path) -> None:
    workspace, save = Workspace(tmp_path), tmp_path / "save"
    save.mkdir()
    tracker = save / "latest_checkpointed_iteration.txt"
    tracker.write_text("50")
    for name in ("01-01-01", "01-01-02"):
        (workspace.runs / "2024-11-30" / name).mkdir(parents=True)
    ended = threading.Event()

    def look(folder: RunFolder) -> RunInfo:
        phase = "finished" if folder.name.endswith("01") else "running"
        return dataclasses.replace(TRAINING.info, path=folder.path, phase=phase, save=str(save))

    watch = watch_runs(workspace, ended, look, interval=0.001)
    assert [run.checkpoint for run in next(watch)] == [50, 50]
    tracker.write_text("100")
    assert [run.checkpoint for run in next(watch)] == [100, 100]
    ended.set()


def test_a_run_that_only_seemed_lost_is_looked_at_again(tmp_path: Path) -> None:
    """A silent host speaks again; a state that could not be read for a moment can be."""
    workspace = Workspace(tmp_path)
    (workspace.runs / "2024-11-30/01-01-01").mkdir(parents=True)
    ended, phases = threading.Event(), iter(["running", "lost", "running"])

    def look(folder: RunFolder) -> RunInfo:
        return dataclasses.replace(TRAINING.info, path=folder.path, phase=next(phases), ended=None)

    watch = watch_runs(workspace, ended, look, interval=0.001)
    assert [next(watch)[0].info.phase for _ in range(3)] == ["running", "lost", "running"]
    ended.set()
