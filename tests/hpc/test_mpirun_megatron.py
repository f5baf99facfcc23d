"""The patched training script through the launcher, with a stand-in for python that talks as Megatron-LM does."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from example_script import example
from waiting import until

from backends.launch.start import start
from backends.launch.stop import stop_run
from backends.resources import resource_folder
from backends.runs.catalog import describe
from backends.runs.folder import RunFolder
from backends.runs.planning import continue_plan, train_plan
from backends.runs.processes import marked_processes
from backends.workspace import Workspace

pytestmark = pytest.mark.hpc
FLAGS = ("--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "4", "--seq-length", "64",
         "--max-position-embeddings", "64", "--micro-batch-size", "1", "--global-batch-size", "2", "--lr", "1e-3",
         "--train-iters", "100000", "--save-interval", "1000", "--mock-data", "--fp16")  # fmt: skip
# Rank 0 trains aloud; TERM makes it save. Both ranks meet where MASTER_PORT says: it must be free.
STAND_IN = """\
#!/usr/bin/python3
import os, signal, socket, sys, time
rank, words = int(os.environ["RANK"]), sys.argv
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append("TERM"))
if rank == 0:
    meeting = socket.create_server(("localhost", int(os.environ["MASTER_PORT"])))
save = words[words.index("--save") + 1]
print(f"argv {rank}:", words, "gpus", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
if rank == 0 and "--load" in words:
    print(f"  successfully loaded checkpoint from {save} [ t 0, p 0 ] at iteration 1", flush=True)
number = 0
while not ended:
    number += 1
    if rank == 0:
        print(f" [2026-11-30 05:00:00] iteration {number:8d}/  100000 | consumed samples: {2 * number:12d} | "
              "elapsed time per iteration (ms): 100.0 | learning rate: 1.000000E-03 | global batch size:     2 | "
              "lm loss: 1.000000E+00 | loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations:   0 | "
              "number of nan iterations:   0 |", flush=True)
    time.sleep(0.1)
if rank == 0:
    os.makedirs(f"{save}/iter_{number:07d}/mp_rank_00", exist_ok=True)
    open(f"{save}/iter_{number:07d}/mp_rank_00/model_optim_rng.pt", "w").write("weights")
    open(f"{save}/latest_checkpointed_iteration.txt", "w").write(str(number))
    print(f"  successfully saved checkpoint from iteration {number:7d} to {save}", flush=True)
    print("[exiting program after receiving SIGTERM.] datetime: 2026-11-30 05:00:00 ", flush=True)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """With as much of a clone as the launcher and the script need."""
    workspace = Workspace(tmp_path)
    script = workspace.megatron / "examples/gpt3/train_gpt3_7b_mpi.sh"
    script.parent.mkdir(parents=True)
    script.write_text(example())
    patch = resource_folder("patches") / "pretrain_7b_mpi.patch"
    subprocess.run(
        ["patch", "-l", str(script), "-i", str(patch)], check=True, capture_output=True, timeout=120
    )
    (workspace.megatron / "gpt2").mkdir()
    for name in ("vocab.json", "merges.txt"):
        (workspace.megatron / "gpt2" / name).touch()
    return workspace


@pytest.fixture
def environment(tmp_path: Path, hpc_environment: dict[str, str]) -> dict[str, str]:
    stand_in = tmp_path / "bin" / "python"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    return {**hpc_environment, "PATH": f"{stand_in.parent}{os.pathsep}{hpc_environment['PATH']}"}


@pytest.fixture
def started() -> Iterator[list[RunFolder]]:
    """Kill what a failed test leaves running."""
    folders: list[RunFolder] = []
    yield folders
    for pid in [pid for folder in folders for pid in marked(folder)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked(folder: RunFolder) -> list[int]:
    state = folder.state()
    return [process.pid for process in marked_processes(state.mark)] if state else []


def trained(folder: RunFolder) -> None:
    until(lambda: describe(folder).iteration or describe(folder).over, "an iteration")
    assert not describe(folder).over, folder.log.read_text()[-2000:]


def test_users_who_start_at_once_meet_at_ports_of_their_own(
    workspace: Workspace, environment: dict[str, str], started: list[RunFolder], tmp_path: Path
) -> None:
    """Two workspaces know nothing of each other's plans, and no rank listens yet when the second port is chosen."""
    others = [workspace, Workspace(tmp_path / "other")]
    shutil.copytree(workspace.megatron, others[1].megatron)

    def begin(own: Workspace) -> RunFolder:
        plan = train_plan("megatron", FLAGS, (), own.checkpoints / "job", launcher="mpirun", processes=1)
        return start(plan, own, environment=environment)

    with ThreadPoolExecutor(2) as pool:
        started += pool.map(begin, others)
    for folder in started:
        trained(folder)
    assert len({folder.plan().environment["MASTER_PORT"] for folder in started}) == 2
    for folder, own in zip(started, others, strict=True):
        *_, info = stop_run(folder, own)
        assert (info.phase, info.exit_code) == ("finished", 0), folder.log.read_text()[-2000:]


def test_two_jobs_share_a_node_stop_with_a_checkpoint_and_go_on(
    workspace: Workspace, environment: dict[str, str], started: list[RunFolder]
) -> None:
    for number, gpus in enumerate([(0, 1), (2, 3)]):
        plan = train_plan("megatron", FLAGS, (), workspace.checkpoints / f"job{number}",
                          launcher="mpirun", gpus=gpus, processes=2)  # fmt: skip
        started.append(start(plan, workspace, environment=environment))
    for folder in started:
        trained(folder)
    ports = [folder.plan().environment["MASTER_PORT"] for folder in started]
    assert len(set(ports)) == 2
    assert ["gpus 0,1" in folder.log.read_text() for folder in started] == [True, False]
    assert "gpus 2,3" in started[1].log.read_text()

    for folder in started:
        *_, info = stop_run(folder, workspace)
        assert (info.phase, info.exit_code) == ("finished", 0), folder.log.read_text()[-2000:]
        assert "successfully saved checkpoint" in folder.log.read_text()
        assert marked(folder) == []

    again = continue_plan(workspace, workspace.checkpoints / "job0", ())
    started.append(start(again, workspace, environment=environment))
    trained(started[-1])
    assert f"'--load', '{workspace.checkpoints / 'job0'}'" in started[-1].log.read_text()
    *_, info = stop_run(started[-1], workspace, now=True)
    assert info.over and marked(started[-1]) == []
