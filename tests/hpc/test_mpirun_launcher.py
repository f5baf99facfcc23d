"""The demo launched as `mpirun --np 2 singularity exec cpu.sif …`: trained together, stopped, killed."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from backends.launch.start import start
from backends.launch.stop import stop_run
from backends.models.presets import TINY
from backends.runs.catalog import describe
from backends.runs.checkpoints import read_tracker
from backends.runs.folder import RunFolder
from backends.runs.planning import train_plan
from backends.runs.processes import MARK, is_alive, marked_processes
from backends.workspace import Workspace

pytestmark = [
    pytest.mark.hpc,
    pytest.mark.skipif(importlib.util.find_spec("autograd") is None, reason="the demo needs autograd"),
]
BEGUN = "[before the start of training step]"
LOSS = re.compile(r"lm loss: (\S+)")


class Jobs:
    """Starts runs of the demo in the image; what a failed test leaves running is killed."""

    def __init__(self, root: Path, image: Path, environment: dict[str, str]) -> None:
        self.workspace, self._image = Workspace(root), image
        self._environment = {name: value for name, value in environment.items() if name != MARK}
        self._started: list[RunFolder] = []

    def start(self, name: str, ranks: int, *changes: str) -> RunFolder:
        words = ("--micro-batch-size", "2", "--global-batch-size", "4", "--num-layers", "1", *changes)
        save = self.workspace.checkpoints / name
        plan = train_plan("demo", TINY.arguments, words, save, launcher="mpirun", processes=ranks)
        plan = dataclasses.replace(plan, image=str(self._image))
        folder = start(plan, self.workspace, environment=self._environment)
        self._started.append(folder)
        return folder

    def close(self) -> None:
        for folder in self._started:
            for pid in marked(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def jobs(tmp_path: Path, cpu_image: Path, hpc_environment: dict[str, str]) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path, cpu_image, hpc_environment)
    yield jobs
    jobs.close()


def marked(folder: RunFolder) -> list[int]:
    state = folder.state()
    return [process.pid for process in marked_processes(state.mark)] if state else []


def log(folder: RunFolder) -> str:
    return folder.log.read_text(errors="replace")


def over(folder: RunFolder) -> bool:
    return describe(folder).over


def test_two_ranks_train_as_one_does(jobs: Jobs) -> None:
    """Each rank sees its own half of each batch: equal losses mean that the gradients were averaged."""
    losses: dict[int, list[float]] = {}
    for ranks in (1, 2):
        folder = jobs.start(
            f"ranks{ranks}", ranks, "--train-iters", "8", "--log-interval", "1", "--eval-iters", "0"
        )
        until(lambda run=folder: over(run), "the end")
        assert describe(folder).phase == "finished", log(folder)[-3000:]
        assert f"using world size: {ranks}, data-parallel size: {ranks}" in log(folder)
        losses[ranks] = [float(value) for value in LOSS.findall(log(folder))]
        assert marked(folder) == []
    assert len(losses[1]) == 8 and losses[1][-1] < losses[1][0]
    assert losses[2] == pytest.approx(losses[1], rel=1e-6)


def test_a_stop_saves_on_all_ranks_and_leaves_no_process(jobs: Jobs) -> None:
    folder = jobs.start("stopped", 2, "--train-iters", "100000", "--log-interval", "1")
    until(lambda: describe(folder).iteration, "an iteration")
    *_, info = stop_run(folder, jobs.workspace)
    assert (info.phase, info.exit_code) == ("finished", 0), log(folder)[-3000:]
    tracker = read_tracker(Path(info.save or ""))
    assert tracker.problem is None and isinstance(tracker.iteration, int)
    assert f"successfully saved checkpoint from iteration {tracker.iteration:7d}" in log(folder)
    assert marked(folder) == []


def test_silent_ranks_of_a_killed_mpirun_are_swept(jobs: Jobs) -> None:
    """They outlive mpirun in process groups of their own. The supervisor is held so long that this is seen."""
    rare = ("--log-interval", "100000", "--eval-interval", "100000", "--save-interval", "100000")
    folder = jobs.start("orphaned", 2, "--train-iters", "100000", *rare)
    until(lambda: BEGUN in log(folder), "the start of training")
    state = folder.state()
    assert state is not None and state.job is not None and state.supervisor is not None
    os.kill(state.supervisor.pid, signal.SIGSTOP)
    try:
        os.kill(state.job.pid, signal.SIGKILL)
        until(lambda: not is_alive(state.job) and not is_alive(state.leader), "the end of mpirun")
        assert len(marked(folder)) >= 2
    finally:
        os.kill(state.supervisor.pid, signal.SIGCONT)
    until(lambda: over(folder), "the end of the run")
    assert marked(folder) == []
    info = describe(folder)
    assert (info.phase, info.signal) == ("failed", signal.SIGKILL)


def test_a_rank_that_stands_still_is_named_until_it_continues(jobs: Jobs) -> None:
    jobs.workspace.settings.write_text("[mpi]\nsilence_minutes = 0.05\n")
    folder = jobs.start("stands-still", 2, "--train-iters", "100000", "--log-interval", "1")
    until(lambda: (describe(folder).iteration or 0) > 2, "iterations")
    rank = b"OMPI_COMM_WORLD_RANK=1"
    ranks = [pid for pid in marked(folder) if rank in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: "rank 1 on " in (describe(folder).note or ""), f"the note: {describe(folder)}")
    note, stopped_at = describe(folder).note or "", describe(folder).iteration or 0
    assert "is stopped by a signal" in note and any(f"kill -CONT {pid}" in note for pid in ranks)
    assert describe(folder).phase == "running", "mpirun notices nothing"
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    until(lambda: (describe(folder).iteration or 0) > stopped_at, "more iterations")
    until(lambda: describe(folder).note is None, f"no note: {describe(folder)}")


def test_a_stop_at_once_saves_nothing(jobs: Jobs) -> None:
    folder = jobs.start(
        "at-once", 2, "--train-iters", "100000", "--log-interval", "1", "--save-interval", "100000"
    )
    until(lambda: describe(folder).iteration, "an iteration")
    *_, info = stop_run(folder, jobs.workspace, now=True)
    assert info.over and marked(folder) == []
    assert "saving checkpoint" not in log(folder)
