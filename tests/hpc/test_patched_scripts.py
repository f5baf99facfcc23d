"""The patched training script as it is used: mpirun, singularity, bash, and a stand-in for python that records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from example_script import example

from backends.resources import resource_folder

pytestmark = pytest.mark.hpc
FIVE = ("save", "tensorboard", "vocab.json", "merges.txt", "data_text_document")
# Python as Megatron behaves: TERM makes it save and end with status 0, on every rank. A second TERM would kill it.
STAND_IN = """\
#!/usr/bin/python3
import json, os, signal, sys
stop = {signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, stop)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
with open("record." + os.environ["RANK"], "w") as file:
    json.dump({"argv": sys.argv[1:], "env": {name: os.environ.get(name) for name in names}}, file)
print("training", flush=True)
if not os.environ.get("AT_ONCE") and not signal.sigtimedwait(stop, 60):
    sys.exit("nobody said TERM")
print("saved", flush=True)
# Nobody goes before all have saved: at the first status that is not 0, mpirun kills the others.
open("all-saved", "w" if os.environ["RANK"] == "0" else "r").close()
signal.pthread_sigmask(signal.SIG_UNBLOCK, stop)
sys.exit(int(os.environ.get("END", "0")) if os.environ["RANK"] == "1" else 0)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train_gpt3_7b_mpi.sh"
    path.write_text(example())
    patch = resource_folder("patches") / "pretrain_7b_mpi.patch"
    subprocess.run(["patch", "-l", str(path), "-i", str(patch)], check=True, capture_output=True, timeout=120)
    os.mkfifo(tmp_path / "all-saved")
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    return path


def start(
    script: Path, image: Path | None, environment: dict[str, str], *more: str, **added: str
) -> subprocess.Popen[str]:
    folder = script.parent
    added = {
        "APPTAINERENV_PREPEND_PATH": str(folder),
        "PATH": f"{folder}{os.pathsep}{environment['PATH']}",
        **added,
    }
    contained = (
        ["singularity", "exec", "--bind", str(folder), "--pwd", str(folder), str(image)] if image else []
    )
    return subprocess.Popen(
        ["mpirun", "--np", "2", *contained, "bash", str(script), *FIVE, *more],
        cwd=folder, env=environment | added, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def finish(job: subprocess.Popen[str], seconds: float = 60) -> str:
    try:
        return job.communicate(timeout=seconds)[0]
    finally:
        if job.poll() is None:
            job.kill()


def record(script: Path, rank: int) -> dict[str, Any]:
    return json.loads((script.parent / f"record.{rank}").read_text())


@pytest.fixture(params=["bare", "contained"])
def image(request: pytest.FixtureRequest) -> Path | None:
    """Without an image the host's mpirun starts the script itself."""
    return request.getfixturevalue("cpu_image") if request.param == "contained" else None


def test_each_rank_knows_who_it_is(script: Path, image: Path | None, hpc_environment: dict[str, str]) -> None:
    job = start(script, image, hpc_environment, "--num-layers", "2", AT_ONCE="1", MASTER_PORT="50001")
    output = finish(job)
    assert job.returncode == 0, output
    for rank in (0, 1):
        said = record(script, rank)
        assert said["env"] == {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "localhost", "MASTER_PORT": "50001",
        }  # fmt: skip
        assert said["argv"][:2] == ["-u", "pretrain_gpt.py"]
        assert said["argv"][-2:] == ["--num-layers", "2"]


@pytest.mark.parametrize("end", [0, 7])
def test_usr1_to_mpirun_saves_on_every_rank(
    script: Path, image: Path | None, hpc_environment: dict[str, str], end: int
) -> None:
    job = start(script, image, hpc_environment, END=str(end))
    assert job.stdout
    lines: list[str] = []
    while lines.count("training\n") < 2:
        lines.append(job.stdout.readline())
        assert lines[-1], "".join(lines)
    job.send_signal(signal.SIGUSR1)
    output = finish(job)
    assert output.count("saved") == 2, output
    assert job.returncode == end, output


def test_no_rank_starts_without_the_checkpoint(
    script: Path, image: Path | None, hpc_environment: dict[str, str]
) -> None:
    job = start(script, image, hpc_environment, "--load", "nothing")
    output = finish(job)
    assert job.returncode == 2, output
    assert "nothing/latest_checkpointed_iteration.txt" in output
    assert not list(script.parent.glob("record.*"))
