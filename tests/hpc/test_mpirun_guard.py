"""A resume under mpirun that starts from random weights is ended before it can save."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from backends.files import write_json
from backends.launch.start import start_supervisor
from backends.runs.catalog import describe
from backends.runs.folder import RunFolder, create_run_folder, moment_of
from backends.runs.plan import RunPlan
from backends.runs.processes import marked_processes
from backends.workspace import Workspace

pytestmark = [
    pytest.mark.hpc,
    pytest.mark.skipif(importlib.util.find_spec("autograd") is None, reason="the demo needs autograd"),
]
WORDS = ("--num-layers", "1", "--hidden-size", "16", "--seq-length", "16", "--max-position-embeddings", "16",
         "--micro-batch-size", "1", "--global-batch-size", "2", "--train-iters", "100000", "--log-interval", "1",
         "--save-interval", "100000", "--eval-iters", "0", "--exit-signal-handler")  # fmt: skip


@pytest.fixture
def unchecked(tmp_path: Path, cpu_image: Path) -> Iterator[RunFolder]:
    """A run that nobody checked before: it is to load from a folder that holds nothing, as a node that does not see the
    shared disk would."""
    workspace = Workspace(tmp_path)
    save = tmp_path / "save"
    save.mkdir()
    workspace.settings.write_text("[mlflow]\nenabled = false\n")
    folder = create_run_folder(workspace.runs, moment_of("2026-11-30/05-00-00"))
    plan = RunPlan("train", "demo", launcher="mpirun", image=str(cpu_image), arguments=WORDS, processes=2,
                   load=str(save), save=str(save))  # fmt: skip
    write_json(folder.plan_file, plan.as_json())
    yield folder
    if state := folder.state():
        for process in marked_processes(state.mark):
            os.kill(process.pid, signal.SIGKILL)


def test_the_guard_ends_all_ranks_before_they_save(
    unchecked: RunFolder, tmp_path: Path, hpc_environment: dict[str, str]
) -> None:
    start_supervisor(unchecked, Workspace(tmp_path), hpc_environment)
    until(lambda: describe(unchecked).over, "the end")
    info, log = describe(unchecked), unchecked.log.read_text()
    assert "will start from random" in log and "saving checkpoint" not in log
    assert info.phase == "failed" and info.reason and "random weights" in info.reason
    state = unchecked.state()
    assert state is not None and marked_processes(state.mark) == []
    assert not any((tmp_path / "save").iterdir())
